"""Runs and data sets as lineage sees them: their configs and nothing else."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

from planned import MODEL

from ingestion.lake import Lake
from ingestion.manifest import Normalisation
from seismic_model.config import Init, RunConfig
from seismic_model.data.dataset import Dataset, Difference, SplitPolicy, SurveyEntry, dataset_key

OLD, NEW = "1" * 64, "2" * 64


def frozen(lake: Lake, week: str, **surveys: tuple[str, float]) -> str:
    """Digest and weight of each survey."""
    dataset = Dataset(
        week=week,
        created=datetime(2026, 11, 30, tzinfo=UTC),
        window=(8, 8, 8),
        split=SplitPolicy(cell_size=400, held_out_share=0.2, salt="1"),
        held_out_cells=[],
        surveys=[
            SurveyEntry(
                survey=survey,
                digest=digest,
                manifest_sha256=digest,
                normalisation=Normalisation(centre=0, scale=1, clip=6),
                weight=weight,
                licence=None,
            )
            for survey, (digest, weight) in surveys.items()
        ],
        excluded=[],
        difference=Difference(previous=None, added=[], removed=[], superseded=[], unchanged=[]),
    )
    lake.write(dataset_key(week), dataset.to_bytes())
    return week


def run(lake: Lake, name: str, week: str, parent: str | None = None, version: str | None = None) -> None:
    init = Init(origin="weights", run=parent, step=1, weights_sha256=OLD) if parent else Init()
    config = RunConfig(
        lake=lake.uri,
        run=name,
        dataset=dataset_key(week),
        dataset_sha256=hashlib.sha256(lake.read(dataset_key(week))).hexdigest(),
        model=MODEL,
        window=(8, 8, 8),
        steps=1,
        batch=1,
        init=init,
    )
    lake.write(config.key, config.to_bytes())
    if version:
        lake.write(f"runs/{name}/outcome.json", json.dumps({"version": version}).encode())
