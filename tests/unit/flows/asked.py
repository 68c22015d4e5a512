"""Requests as the flow makes them of its parameters and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from flows import settings
from flows.steps import request
from flows.week import Outcome, Request, outcome_key
from ingestion.lake import Lake
from seismic_model.data.dataset import dataset_key

RAW: dict[str, Any] = yaml.safe_load(Path(settings.__file__).with_name("demo.yaml").read_text())
PARAMETERS = {
    "week": "2026-W49",
    "surveys": "",
    "size": "tiny",
    "launcher": "local",
    "seed": 0,
    "force": False,
}


def asked(lake: Lake, raw: dict[str, Any] | None = None, **changes: object) -> Request:
    return request({"lake": lake.uri, **PARAMETERS, **changes}, raw or RAW)


def finish(lake: Lake, run: str, week: str = "2026-W49") -> None:
    done = Outcome(run=run, week=week, dataset=dataset_key(week), promote=False, reasons=["lost"], version=None)
    lake.write(outcome_key(run), done.to_bytes())
