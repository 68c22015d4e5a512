"""Which week, which run: the names under which a repeated start finds what an earlier one did."""

from __future__ import annotations

import datetime as dt
import json
import os

from pydantic import Field, field_validator

from flows.settings import Settings
from ingestion.lake import Lake
from ingestion.manifest import Contract, SafeName, Week
from seismic_model.config import run_folder
from seismic_model.data.dataset import dataset_label

WORKFLOW_MADE = "SFM_WORKFLOW_MADE"  # ISO time, in pods


class Request(Contract):
    """What one start of the flow was asked for, resolved."""

    lake: str
    week: Week
    surveys: list[SafeName]  # empty: all
    size: str
    launcher: str
    seed: int = Field(ge=0)
    force: bool
    settings: Settings

    @field_validator("week")
    @classmethod
    def _exists(cls, value: str) -> str:
        return calendar_week(value)


class Outcome(Contract):
    """``runs/<run>/outcome.json``: written last, so a run that has one is done."""

    run: SafeName
    week: Week
    dataset: str
    promote: bool
    reasons: list[str]
    version: str | None  # in the registry


def begin(request: Request) -> None:
    """Note on the lake that the week was started now."""
    note = {"surveys": request.surveys, "size": request.size, "seed": request.seed, "force": request.force}
    Lake(request.lake).write(begun_key(request.week), json.dumps(note).encode())


def begun_key(week: str) -> str:
    """``weeks/<week>/begun.json``, as old as the newest start."""
    return f"{week_folder(week)}/begun.json"


def begun_at(lake: Lake, week: str) -> float:
    """When ``week`` was started last, in seconds since the epoch; 0 when it never was."""
    try:
        return lake.head(begun_key(week)).modified
    except FileNotFoundError:
        return 0.0


def calendar_week(text: str) -> str:
    """``text`` when it is a week, such as 2026-W49. Raises ``ValueError``."""
    try:
        if iso_week(dt.datetime.strptime(f"{text}-1", "%G-W%V-%u").date()) == text:
            return text
    except ValueError:
        pass
    raise ValueError(f"{text} is not a week of the ISO calendar; expected e.g. 2026-W49")


def iso_week(day: dt.date) -> str:
    """The ISO week of ``day``."""
    return f"{day:%G-W%V}"


def this_week() -> str:
    """The ISO week of now, in UTC; in a workflow's pod, of when that was made, however long the pod then waited."""
    return workflow_week() or iso_week(dt.datetime.now(dt.UTC).date())


def workflow_week() -> str | None:
    """The ISO week, in UTC, in which the workflow of this pod was made; None elsewhere."""
    made = workflow_made()
    return iso_week(made.date()) if made else None


def workflow_made() -> dt.datetime | None:
    """When the workflow of this pod was made, or systemd's start began, in UTC; None elsewhere."""
    made = os.environ.get(WORKFLOW_MADE)
    return dt.datetime.fromisoformat(made).astimezone(dt.UTC) if made else None


def run_name(request: Request, lake: Lake) -> str:
    """The run of this request: the unfinished one when there is one; ``force`` opens another after a finished one."""
    label = dataset_label(request.week, request.surveys or None)
    first = f"{label}-{request.size}-s{request.seed}".lower()
    if not request.force:
        return first
    name, attempt = first, 1
    while outcome(lake, name) is not None:
        attempt += 1
        name = f"{first}-{attempt}"
    return name


def outcome(lake: Lake, run: str) -> Outcome | None:
    """How ``run`` ended, or None."""
    try:
        return Outcome.model_validate_json(lake.read(outcome_key(run)))
    except FileNotFoundError:
        return None


def outcome_key(run: str) -> str:
    """``runs/<run>/outcome.json``."""
    return f"{run_folder(run)}/outcome.json"


def week_folder(week: str) -> str:
    """``weeks/<week>``: what became of each survey, the summary and the report."""
    return f"weeks/{week}"
