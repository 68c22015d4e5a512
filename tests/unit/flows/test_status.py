"""What a week is doing, read from the lake, and when someone is woken."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from asked import asked, finish
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from planned import SPLIT, WINDOW
from planned import plan as planned
from published import noise
from published import publish as publish_survey

from flows.budget import Meter
from flows.pause import pause
from flows.report import WeekResult, publish
from flows.settings import Budget
from flows.status import alarms, parse_weekday, scheduled_week, week_status
from flows.surveys import SurveyOutcome, remember
from flows.week import Outcome, begin, outcome_key
from flows.week_command import main
from ingestion.lake import Lake
from seismic_model.data.freeze import freeze
from seismic_model.registry.audit import AuditEntry, record
from seismic_model.training.lease import acquire

WEEK, RUN = "2026-W48", "2026-w48-tiny-s0"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def state(lake: Lake) -> str:
    return week_status(lake, WEEK, datetime.now(UTC)).state


def beat(lake: Lake, phase: str, step: int) -> None:
    lake.write(f"runs/{RUN}/heartbeat.json", json.dumps({"phase": phase, "step": step, "waits": 1, "time": 0}).encode())


def steps(lake: Lake, count: int) -> None:
    lines = [json.dumps({"step": step, "seconds": 10.0, "loss": 1 / step}) for step in range(1, count + 1)]
    lake.write(f"runs/{RUN}/metrics.jsonl", "\n".join(lines).encode())


def ended(lake: Lake, version: str | None) -> None:
    done = Outcome(run=RUN, week=WEEK, dataset="d", promote=bool(version), reasons=[], version=version)
    lake.write(outcome_key(RUN), done.to_bytes())


def decided(lake: Lake, action: str) -> None:
    entry = {"at": datetime.now(UTC), "action": action, "model": "m", "version": "7", "by": "ann", "reason": None}
    record(lake, AuditEntry.model_validate(entry | {"weights_sha256": None, "aliases_before": {}}))


def test_a_week_from_nothing_to_its_end(lake: Lake) -> None:
    assert state(lake) == "not begun"
    begin(asked(lake, week=WEEK))
    assert state(lake) == "taking in surveys"
    planned(lake, run="other")
    assert state(lake) == "data set frozen"
    planned(lake, run=RUN, steps=100)
    assert state(lake) == "waiting for nodes"
    beat(lake, "train", 40)
    steps(lake, 40)
    found = week_status(lake, WEEK, datetime.now(UTC))
    assert found.state == "training"
    (run,) = found.runs
    assert (run.run, run.phase, run.step, run.steps, run.loss) == (RUN, "train", 40, 100, 1 / 40)
    assert run.ends is not None
    assert run.heartbeat_at is not None
    assert run.ends - run.heartbeat_at == timedelta(seconds=600)  # 60 steps of 10 s
    beat(lake, "failed", 40)
    assert state(lake) == "waiting for nodes"  # it is submitted again
    beat(lake, "ended", 100)
    steps(lake, 100)
    assert state(lake) == "evaluating"
    ended(lake, "7")
    publish(lake, WeekResult(WEEK, []))
    assert state(lake) == "over"
    begin(asked(lake, week=WEEK))
    assert state(lake) != "over"


def test_who_decides_and_what_was_decided(lake: Lake) -> None:
    planned(lake, run=RUN)
    finish(lake, RUN, WEEK)
    assert week_status(lake, WEEK, datetime.now(UTC)).runs[0].decision == "not put up for review"
    ended(lake, "7")
    decided(lake, "register")
    assert week_status(lake, WEEK, datetime.now(UTC)).runs[0].decision == "version 7 waits for review"
    decided(lake, "reject")
    assert week_status(lake, WEEK, datetime.now(UTC)).runs[0].decision == "version 7: reject by ann"


def week(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_command_shows_all_of_it(lake: Lake) -> None:
    request = asked(lake, week=WEEK)
    begin(request)
    for survey, outcome in (("north", "passed"), ("south", "held")):
        remembered = {"survey": survey, "status": outcome, "digest": None, "findings": [], "report": None}
        remember(request, SurveyOutcome.model_validate(remembered))
    planned(lake, run=RUN, steps=100)
    acquire(lake, RUN, "here", "process 7 of n1")
    beat(lake, "train", 40)
    steps(lake, 40)
    Meter(lake, RUN, 8, Budget(gpu_hours=50, price_per_gpu_hour=2)).keep()
    pause(lake, "ann", "cluster\nmoves")
    before = {entry.key: entry.modified for entry in lake.objects()}
    shown = week("status", "--lake", lake.uri, "--week", WEEK)
    assert shown.exit_code == 0
    for part in (
        "training, begun",
        "1 held, 1 passed; held back: south",
        "2 surveys, 2 added",
        f"{RUN}: train, step 40 of 100, loss 0.0250, moved",
        "UTC at this pace",
        "0.9 of 50.0 GPU hours, 2 USD",
        f"run {RUN} (process 7 of n1; here) since",
        "training is paused by ann since",
        "cluster\\nmoves",
    ):
        assert part in shown.output
    told = json.loads(week("status", "--lake", lake.uri, "--week", WEEK, "--json").output)
    assert (told["state"], told["held"], told["runs"][0]["step"]) == ("training", ["south"], 40)
    assert {entry.key: entry.modified for entry in lake.objects()} == before  # a look changes nothing


def test_pausing_and_resuming_by_command(lake: Lake) -> None:
    lake.write("x", b"")
    assert "paused by bob" in week("pause", "--lake", lake.uri, "--by", "bob", "--reason", "heat").output
    assert "paused by bob" in week("status", "--lake", lake.uri).output
    assert "ended: training is paused by bob" in week("resume", "--lake", lake.uri).output
    assert week("resume", "--lake", lake.uri).output == "training was not paused\n"


SUNDAY = datetime(2026, 11, 29, tzinfo=UTC)  # of week 48


@pytest.mark.parametrize(("hours", "rings"), [(0, False), (30, False), (30.1, True), (100, True)])
def test_a_week_that_never_begins_rings_when_it_is_due(lake: Lake, hours: float, rings: bool) -> None:
    now = SUNDAY + timedelta(hours=hours)
    assert scheduled_week(now) == WEEK
    found = alarms(week_status(lake, WEEK, now), now, parse_weekday("mon 06:00"), timedelta(hours=6))
    assert bool(found) == rings
    assert not rings or "has not begun by Mon 06:00 UTC" in found[0]


def test_a_week_that_stands_still_rings_until_it_is_over(lake: Lake) -> None:
    begin(asked(lake, week=WEEK))
    moved = week_status(lake, WEEK, SUNDAY).moved
    assert moved is not None
    for hours, rings in ((5.9, False), (6.1, True)):
        now = moved + timedelta(hours=hours)
        found = alarms(week_status(lake, WEEK, now), now, parse_weekday("mon 06:00"), timedelta(hours=6))
        assert bool(found) == rings
    assert "taking in surveys) has not moved since" in found[0]
    publish(lake, WeekResult(WEEK, []))
    assert not alarms(week_status(lake, WEEK, now), now + timedelta(days=3), timedelta(0), timedelta(hours=6))


def test_a_lake_whose_schedule_has_not_begun_names_its_newest_week(lake: Lake) -> None:
    lake.write("index/arrivals/east.json", b"{}")
    said = week("status", "--lake", lake.uri).output
    assert "newest" not in said
    assert "moved" not in said
    begin(asked(lake, week="2099-W01"))
    assert "newest       2099-W01 on this lake; `--week 2099-W01`" in week("status", "--lake", lake.uri).output
    assert "newest" not in week("status", "--lake", lake.uri, "--week", WEEK).output


@pytest.mark.parametrize("bad", [b"", b"[]", b'{"x": 1}'])
def test_objects_that_cannot_be_read_do_not_silence_the_alarm(lake: Lake, bad: bytes) -> None:
    begin(asked(lake, week=WEEK))
    planned(lake, RUN)
    steps(lake, 3)
    for key in (
        f"runs/{RUN}/heartbeat.json",
        "locks/training/000000000007.json",
        "control/paused.json",
        outcome_key(RUN),
    ):
        lake.write(key, bad)
    moved = week_status(lake, WEEK, SUNDAY).moved
    assert moved is not None
    found = week_status(lake, WEEK, moved + timedelta(days=1))
    assert alarms(found, moved + timedelta(days=1), timedelta(0), timedelta(hours=6))
    assert "is no claim of this version" in found.training
    assert "control/paused.json is there, but not of this version" in found.paused
    assert week("resume", "--lake", lake.uri).exit_code == 0
    assert week_status(lake, WEEK, SUNDAY).paused == ""


def test_a_week_that_cannot_be_looked_at_rings(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("flows.notify._channels", lambda: [("list", lambda _, notice: told.append(notice.text))])
    lake.write(f"weeks/{WEEK}/surveys/north.json", b"{}")
    assert week("status", "--lake", lake.uri, "--week", WEEK, "--alarm").exit_code == 1
    assert "an object on the lake is none of this version: SurveyOutcome" in told[0]


def test_a_second_pause_is_told_that_the_first_one_stands(lake: Lake) -> None:
    lake.write("x", b"")
    first = week("pause", "--lake", lake.uri, "--by", "ann", "--reason", "move")
    second = week("pause", "--lake", lake.uri, "--by", "bob", "--reason", "oh")
    assert [("stands" in each.output, each.exit_code) for each in (first, second)] == [(False, 0), (True, 0)]
    assert "training is paused by ann" in second.output


def test_what_arrives_for_the_next_week_does_not_hide_that_this_one_stands_still(lake: Lake) -> None:
    begin(asked(lake, week=WEEK))
    for is_frozen in (False, True):
        if is_frozen:
            publish_survey(lake, "north", noise((40, 40, 24)))
            freeze(lake, WEEK, WINDOW, SPLIT)
        before = week_status(lake, WEEK, SUNDAY).moved
        time.sleep(0.01)
        lake.write("index/arrivals/later.json", b"{}")
        assert (week_status(lake, WEEK, SUNDAY).moved == before) == is_frozen


def test_a_flow_that_ended_without_a_report_is_told_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("flows.notify._channels", lambda: [("list", lambda _, notice: told.append(notice.text))])
    begin(asked(lake, week=WEEK))
    for _ in range(2):
        assert week("status", "--lake", lake.uri, "--week", WEEK, "--ended").exit_code == 1
    assert len(told) == 1
    assert f"the flow of week {WEEK} ended without a report (taking in surveys)" in told[0]
    publish(lake, WeekResult(WEEK, []))
    assert week("status", "--lake", lake.uri, "--week", WEEK, "--ended").exit_code == 0
    assert len(told) == 1


def test_the_report_of_an_earlier_start_does_not_speak_for_one_that_died_at_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(asked(lake, week=WEEK))
    publish(lake, WeekResult(WEEK, []))
    look = ("status", "--lake", lake.uri, "--week", WEEK, "--ended")
    reported = week_status(lake, WEEK, datetime.now(UTC)).reported
    assert reported is not None
    for later, code in ((timedelta(minutes=-1), 0), (timedelta(minutes=1), 1)):
        monkeypatch.setenv("SFM_WORKFLOW_MADE", (reported + later).isoformat())
        assert week(*look).exit_code == code
    assert "ended without a report (there is one of an earlier start)" in week(*look).output


def test_scoring_may_take_its_day(lake: Lake) -> None:
    begin(asked(lake, week=WEEK))
    found = week_status(lake, WEEK, SUNDAY).model_copy(update={"state": "evaluating"})
    assert found.moved is not None
    for hours, rings in ((24, False), (26, True)):
        now = found.moved + timedelta(hours=hours)
        assert bool(alarms(found, now, timedelta(0), timedelta(hours=6))) == rings


def test_the_alarm_exits_with_1_in_words(lake: Lake) -> None:
    lake.write("x", b"")
    rung = week("status", "--lake", lake.uri, "--alarm", "--begun-by", "sun 00:00")
    assert rung.exit_code == 1
    assert "ALARM: week" in rung.output
    assert week("status", "--lake", lake.uri).exit_code == 0
    wrong = week("status", "--lake", lake.uri, "--alarm", "--begun-by", "monday")
    assert wrong.exit_code == 2
    for none in ("2026-W99", "2026-W1", "../runs", "2026-W49\n"):
        refused = week("status", "--lake", lake.uri, "--week", none)
        assert (refused.exit_code, "is not a week of the ISO calendar" in refused.output) == (2, True)
    assert "expected e.g. 'mon 06:00'" in wrong.output


@given(st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)))
def test_the_scheduled_week_is_that_of_the_last_sunday(now: datetime) -> None:
    sunday = datetime.strptime(f"{scheduled_week(now)}-7", "%G-W%V-%u")
    assert timedelta(0) <= now - sunday < timedelta(days=7)
