"""What a week is doing now, from the lake alone, and when that is a reason to wake someone."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Literal

from pydantic import ValidationError

from flows.budget import Cost, cost
from flows.pause import paused
from flows.surveys import outcomes_of
from flows.week import begun_key, iso_week, outcome, outcome_key, week_folder
from ingestion.lake import Lake
from ingestion.manifest import Contract, SafeName, Week
from seismic_model.config import run_folder
from seismic_model.data.dataset import DatasetError, dataset_key, load_dataset
from seismic_model.registry.audit import entries
from seismic_model.train import ConfigError, read_config
from seismic_model.training.lease import LeaseError, holder
from seismic_model.training.metrics import MetricsError, read_metrics

State = Literal[
    "not begun", "taking in surveys", "data set frozen", "waiting for nodes", "training", "evaluating", "over"
]
_RECENT = 50  # steps that the forecast goes by
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SCORING = timedelta(hours=25)  # nothing else moves while a run is scored, for which its step has a day
_ALIVE = ("restore", "train", "save")  # phases of a heartbeat that is alive


class RunStatus(Contract):
    """One run of the week."""

    run: SafeName
    phase: str  # as its heartbeat says; "waiting" before the first
    step: int
    steps: int
    loss: float | None
    heartbeat_at: datetime | None  # when something moved last
    ends: datetime | None  # forecast
    cost: Cost | None
    decision: str  # "", "lost", "version 7 waits for review", "version 7: approve by ann"


class WeekStatus(Contract):
    """One week."""

    week: Week
    state: State
    begun: datetime | None  # its newest start
    surveys: dict[str, int]  # how many by outcome
    held: list[SafeName]
    dataset: str  # in words; empty: none yet
    runs: list[RunStatus]
    training: str  # who holds the lease, in words; empty: nobody
    paused: str  # in words; empty: not
    moved: datetime | None  # when anything of the week changed last
    report: str  # URI; empty: none yet
    reported: datetime | None  # when a start of it reported last


def scheduled_week(now: datetime) -> str:
    """The week that the schedule started last: that of the last Sunday."""
    return iso_week((now - timedelta(days=now.isoweekday() % 7)).date())


def week_status(lake: Lake, week: str, now: datetime) -> WeekStatus:
    """Everything that the lake says of ``week``."""
    outcomes = outcomes_of(lake, week)
    runs = [_run_status(lake, run) for run in lake.folders("runs") if re.match(rf"{week}-".lower(), run)]
    begun, summary = _modified(lake, begun_key(week)), _modified(lake, f"{week_folder(week)}/summary.json")
    over = summary is not None and (begun is None or summary >= begun)
    dataset = _dataset(lake, week)
    pause = paused(lake)
    return WeekStatus(
        week=week,
        state=_state(over, begun, dataset, runs),
        begun=begun,
        surveys=dict(Counter(each.status for each in outcomes)),
        held=sorted(each.survey for each in outcomes if each.status in ("held", "failed")),
        dataset=dataset,
        runs=runs,
        training=_training(lake, now),
        paused=str(pause) if pause else "",
        moved=_moved(lake, week, runs, frozen=bool(dataset)),
        report=lake.uri_of(f"{week_folder(week)}/report.html") if summary else "",
        reported=summary,
    )


def alarms(status: WeekStatus, now: datetime, begun_by: timedelta, limit: timedelta) -> list[str]:
    """Why someone should look at once: empty when all is well.

    Args:
        status: of the scheduled week.
        now: in UTC.
        begun_by: after Sunday 00:00 UTC, when the week must have begun.
        limit: how long nothing may move before the week is over.
    """
    sunday = datetime.strptime(f"{status.week}-7", "%G-W%V-%u").replace(tzinfo=UTC)
    if status.state == "not begun":
        due = sunday + begun_by
        late = f"week {status.week} has not begun by {due:%a %H:%M} UTC: look at its schedule, or start it by hand"
        return [late] if now > due else []
    if status.state == "evaluating":
        limit = max(limit, _SCORING)
    if status.state == "over" or status.moved is None or now - status.moved <= limit:
        return []
    return [
        f"week {status.week} ({status.state}) has not moved since {status.moved:%Y-%m-%d %H:%M} UTC: read the log of "
        "its step in Metaflow and of its job, then start the week again"
    ]


def unreported(status: WeekStatus, since: datetime | None) -> list[str]:
    """Why someone should look at a week whose flow, begun at ``since``, has ended: empty when it left a report."""
    reported = status.reported if status.state == "over" else None
    if reported and (since is None or reported >= since):
        return []
    where = "there is one of an earlier start" if reported else status.state
    return [
        f"the flow of week {status.week} ended without a report ({where}): read the log of its last step in "
        "Metaflow, then start the week again"
    ]


def parse_weekday(text: str) -> timedelta:
    """``mon 06:00`` as the time since Sunday 00:00. Raises ``ValueError``."""
    match = re.fullmatch(r"([a-z]{3}) ([01]\d|2[0-3]):([0-5]\d)", text.strip().lower())
    if not match or match[1] not in _DAYS:
        raise ValueError(f"{text!r} is no time of a week; expected e.g. 'mon 06:00', in UTC")
    return timedelta(days=(_DAYS.index(match[1]) + 1) % 7, hours=int(match[2]), minutes=int(match[3]))


def _run_status(lake: Lake, run: str) -> RunStatus:
    folder = run_folder(run)
    try:
        steps = read_config(lake.uri_of(f"{folder}/config.json")).steps
    except ConfigError:
        steps = 0
    try:
        metrics = read_metrics(lake, run)
    except MetricsError:
        metrics = []
    at = _modified(lake, f"{folder}/heartbeat.json")
    phase = _phase(lake, f"{folder}/heartbeat.json") if at else "waiting"
    step = metrics[-1]["step"] if metrics else 0
    ends = None
    if at and phase in _ALIVE and metrics:
        pace = statistics.median(entry.get("seconds", 0.0) for entry in metrics[-_RECENT:])
        ends = at + timedelta(seconds=pace * (steps - step))
    return RunStatus(
        run=run,
        phase=phase,
        step=step,
        steps=steps,
        loss=metrics[-1].get("loss") if metrics else None,
        heartbeat_at=at,
        ends=ends,
        cost=cost(lake, run),
        decision=_decision(lake, run),
    )


def _phase(lake: Lake, key: str) -> str:
    try:
        return str(lake.read_json(key)["phase"])
    except (ValueError, TypeError, KeyError):  # whoever wrote it: a week with a bad object must not silence the alarm
        return "unknown"


def _training(lake: Lake, now: datetime) -> str:
    try:
        held = holder(lake)
    except LeaseError as error:
        return str(error)
    return str(held) if held and held.holds(now.timestamp()) else ""


def _decision(lake: Lake, run: str) -> str:
    try:
        ended = outcome(lake, run)
    except ValidationError:
        return f"not known: {outcome_key(run)} is none of this version"
    if ended is None:
        return ""
    if ended.version is None:
        return "not put up for review"
    said = [each for each in entries(lake) if each.version == ended.version and each.action != "register"]
    if not said:
        return f"version {ended.version} waits for review"
    return f"version {ended.version}: {said[-1].action} by {said[-1].by}"


def _state(over: bool, begun: datetime | None, dataset: str, runs: list[RunStatus]) -> State:
    if over:
        return "over"
    open_runs = [each for each in runs if not each.decision]
    if any(each.phase in _ALIVE for each in open_runs):
        return "training"
    if any(each.phase == "ended" and each.step == each.steps for each in open_runs):
        return "evaluating"
    if open_runs:
        return "waiting for nodes"
    if dataset:
        return "data set frozen"
    return "taking in surveys" if begun else "not begun"


def _dataset(lake: Lake, week: str) -> str:
    try:
        dataset = load_dataset(lake, dataset_key(week))
    except DatasetError:
        return ""
    change = dataset.difference
    return f"{len(dataset.surveys)} surveys, {len(change.added)} added, {len(change.removed)} removed"


def _moved(lake: Lake, week: str, runs: list[RunStatus], *, frozen: bool) -> datetime | None:
    """When the week's own objects, its data set, or what its runs write changed last; until then, any arrival."""
    folders = [week_folder(week)] + ([] if frozen else ["index/arrivals"])
    stamps = [entry.modified for folder in folders for entry in lake.objects(folder)]
    times = [datetime.fromtimestamp(stamp, UTC) for stamp in stamps]
    keys = [dataset_key(week)]
    keys += [f"{run_folder(run.run)}/{name}" for run in runs for name in ("config.json", "heartbeat.json")]
    times += [at for key in keys if (at := _modified(lake, key))]
    return max(times, default=None)


def _modified(lake: Lake, key: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(lake.head(key).modified, UTC)
    except FileNotFoundError:
        return None
