"""The week on one page: ``weeks/<week>/report.html`` for people, ``summary.json`` for programs.

The page of a trained run stays as ``runs/<run>/report.html`` when another run of its week takes the week's page, which
links to it. ``weeks/index.html`` lists all weeks that are over.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template
from pydantic import ValidationError

from flows.budget import Cost
from flows.surveys import SurveyOutcome
from flows.week import week_folder
from ingestion.lake import Lake
from ingestion.manifest import Contract, Week
from seismic_model.config import RunConfig, run_folder
from seismic_model.data.dataset import Dataset
from seismic_model.evaluation.scores import METHODS, Decision, Evaluation

_TEMPLATE, _INDEX = (Path(__file__).with_name(name) for name in ("report.html", "weeks.html"))
INDEX_KEY = "weeks/index.html"


class Line(Contract):
    """One row of the summary."""

    name: str
    value: str


class Summary(Contract):
    """``weeks/<week>/summary.json``: the week in a few lines."""

    week: Week
    lines: list[Line]
    report: str  # key of the page on the lake


@dataclass(frozen=True)
class WeekResult:
    """All that the report shows; what the week did not reach is None or empty."""

    week: str
    outcomes: Sequence[SurveyOutcome]
    dataset: Dataset | None = None
    why_not: str = ""  # nothing was trained, or not to its end
    failed: bool = False  # training began, and ended for good before its last step
    config: RunConfig | None = None
    strategy_note: str = ""  # why this one, where the recipe left it open
    metrics: Sequence[Mapping[str, Any]] = ()
    candidate: Evaluation | None = None
    champion: Evaluation | None = None
    decision: Decision | None = None
    version: str | None = None  # in the registry
    cost: Cost | None = None
    pictures: Mapping[str, bytes] = field(default_factory=dict)  # PNG by caption


def publish(lake: Lake, result: WeekResult) -> tuple[Summary, str]:
    """Write page and summary to the lake, the summary last; both are returned."""
    folder = week_folder(result.week)
    summary = Summary(week=result.week, lines=_lines(result), report=f"{folder}/report.html")
    own = result.config.run if result.config else None
    page = _render(result, summary, [run for run in _runs_with_page(lake, result.week) if run != own])
    if own:
        lake.write(run_page(own), page.encode())
    lake.write(summary.report, page.encode())
    lake.write(f"{folder}/summary.json", summary.to_bytes())
    lake.write(INDEX_KEY, index_page(summaries(lake)).encode())
    return summary, page


def run_page(run: str) -> str:
    """``runs/<run>/report.html``: as deep as the week's page, so that one link is right in both."""
    return f"{run_folder(run)}/report.html"


def kept(lake: Lake, week: str) -> tuple[Summary, str] | None:
    """Summary and page as an earlier start of ``week`` left them, the week over again; None where there are none."""
    key = f"{week_folder(week)}/summary.json"
    try:
        summary = Summary.model_validate_json(lake.read(key))
        page = lake.read(summary.report).decode()
    except (FileNotFoundError, ValidationError):
        return None
    lake.write(key, summary.to_bytes())
    return summary, page


def summaries(lake: Lake) -> list[Summary]:
    """Of all weeks that have one, newest first."""
    found = []
    for week in sorted(lake.folders("weeks"), reverse=True):
        with suppress(FileNotFoundError, ValidationError):  # not over, or of another version
            found.append(Summary.model_validate_json(lake.read(f"{week_folder(week)}/summary.json")))
    return found


def index_page(weeks: Sequence[Summary]) -> str:
    """All weeks on one page, linked by relative address."""
    rows = [
        {"week": each.week, "report": each.report.removeprefix("weeks/")}
        | {line.name: line.value for line in each.lines}
        for each in weeks
    ]
    return _template(_INDEX).render(weeks=rows)


def _runs_with_page(lake: Lake, week: str) -> list[str]:
    runs = [run for run in lake.folders("runs") if run.startswith(f"{week.lower()}-")]
    return [run for run in sorted(runs) if lake.exists(run_page(run))]


def _lines(result: WeekResult) -> list[Line]:
    count = Counter(outcome.status for outcome in result.outcomes)
    held = [outcome.survey for outcome in result.outcomes if outcome.status in ("held", "failed")]
    why_not = ("failed: " if result.failed else "") + result.why_not.partition("\n")[0]
    rows = [
        ("surveys in", str(count["passed"])),
        ("held back", f"{len(held)}: {', '.join(held)}" if held else "0"),
        ("data set", _dataset_line(result.dataset) if result.dataset else "none"),
        ("trained", f"{result.config.steps} steps, run {result.config.run}" if result.config else why_not),
    ]
    if result.config and result.strategy_note:
        rows.append(("strategy", f"{result.config.strategy}: {result.strategy_note}"))
    if result.cost:
        rows.append(("cost", _cost_line(result.cost)))
    if result.decision:
        rows += _decision_lines(result.decision, result.version)
    return [Line(name=name, value=value) for name, value in rows]


def _cost_line(cost: Cost) -> str:
    money = f", {cost.money:,.2f} USD" if cost.money is not None else ""
    return f"{cost.gpu_hours:,.2f} GPU hours{money}"


def _dataset_line(dataset: Dataset) -> str:
    change = dataset.difference
    parts = [f"{len(getattr(change, part))} {part}" for part in ("added", "superseded", "removed", "unchanged")]
    left_out = f", {len(dataset.excluded)} too small or not passed" if dataset.excluded else ""
    return f"{len(dataset.surveys)} surveys ({', '.join(parts)}{left_out})"


def _decision_lines(decision: Decision, version: str | None) -> list[tuple[str, str]]:
    against = "the best baseline" if decision.champion_run is None else f"champion {decision.champion_run}"
    return [
        ("candidate", f"held-out error {decision.candidate:.3f}, {against} {decision.reference:.3f}"),
        ("decision", f"up for review as version {version}" if decision.promote else "not put up for review"),
        ("because", "; ".join(decision.reasons)),
    ]


def _render(result: WeekResult, summary: Summary, others: Sequence[str]) -> str:
    return _template(_TEMPLATE).render(
        result=result,
        others={run: f"../../{run_page(run)}" for run in others},
        summary=summary,
        methods=METHODS,
        loss_curve=_encoded(_loss_curve(result.metrics)) if result.metrics else None,
        pictures={caption: _encoded(picture) for caption, picture in result.pictures.items()},
    )


def _template(file: Path) -> Template:
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(file.read_text())


def _encoded(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def _loss_curve(metrics: Sequence[Mapping[str, Any]]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), dpi=120, layout="constrained")
    axes = figure.subplots()
    shown = [m for m in metrics if "loss" in m]
    axes.plot([m["step"] for m in shown], [m["loss"] for m in shown], linewidth=0.8, color="tab:blue")
    axes.set(xlabel="optimiser step", ylabel="loss (normalised amplitude²)")
    axes.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
