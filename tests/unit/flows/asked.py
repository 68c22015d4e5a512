"""Requests as the flow makes them of its parameters and settings."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import yaml

from flows import settings
from flows.steps import request
from flows.week import Outcome, Request, outcome_key
from ingestion.lake import Lake
from ingestion.manifest import StoredKey
from seismic_model.config import RunConfig
from seismic_model.data.dataset import dataset_key
from seismic_model.training.checkpoint import CheckpointManifest, checkpoint_folder

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


def commit(config: RunConfig, step: int) -> None:
    """A checkpoint as far as its manifest."""
    names = [f"{kind}-00001-of-00001-0.safetensors" for kind in ("model", "optimizer")]
    manifest = CheckpointManifest(
        run=config.run,
        step=step,
        samples=2 * step,
        applied_steps=step,
        weights_sha256="0" * 64,
        config=config,
        files=dict.fromkeys(names, StoredKey(size=0, sha256="0" * 64)),
        processes=1,
        created=dt.datetime.now(dt.UTC),
    )
    Lake(config.lake).write(f"{checkpoint_folder(config.run, step)}/manifest.json", manifest.to_bytes())
