"""A week as people start it: the flow in a process of its own, with a lake, a registry and jobs of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from ingestion.lake import Lake
from ingestion.synthetic import BASINS, make_survey, write_segy

FLOWS = Path(__file__).parents[1] / "flows"
WEEK = "2026-W49"
RUN = "2026-w49-tiny-s0"
SETTINGS = {
    "split": {"cell_size": 700, "held_out_share": 0.2, "salt": "tests", "held_out_surveys": ["deltaic"]},
    "gate": {"margin": -10, "survey_tolerance": 10},  # every candidate wins: this is about the week, not the model
    "recipes": {
        "tiny": {
            "window": [16, 16, 16],
            "keep_ratio": 0.25,
            "steps": 12,
            "batch": 4,
            "learning_rate": 0.001,
            "warmup_steps": 2,
            "cp": 2,
            "processes": 2,
            "checkpoint_every": 3,
        }
    },
}


@dataclass(frozen=True)
class Place:
    """One lake with its own registry, jobs and Metaflow store."""

    lake: Lake
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(self.folder),
            "MLFLOW_TRACKING_URI": f"sqlite:///{self.folder / 'mlflow.db'}",
            "SFM_JOBS": str(self.folder / "jobs"),
        }

    def command(self, *arguments: str) -> list[str]:
        settings = self.folder / "settings.yaml"
        settings.write_text(yaml.safe_dump(SETTINGS))
        flow = [sys.executable, str(FLOWS / "weekly_retrain.py"), "--no-pylint", "--config", "settings", str(settings)]
        return [*flow, "run", "--max-workers=2", "--lake", self.lake.uri, "--week", WEEK, *arguments]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment | environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def drop(self, name: str, segy: bytes) -> None:
        self.lake.write(f"incoming/{name}", segy)

    def take_over_surveys(self, other: Place) -> None:
        """As if the surveys that ``other`` took in had been taken in here."""
        for folder in ("incoming", "index", "surveys", "quarantine"):
            for entry in other.lake.objects(folder):
                self.lake.write(entry.key, other.lake.read(entry.key))


def made_surveys(folder: Path) -> dict[str, bytes]:
    """Two that pass, and one that is cut and has a hostile name, by file name."""
    made = {}
    for basin in ("deltaic", "deep_water"):
        write_segy(make_survey(BASINS[basin], seed=1, shape=(56, 56, 48)), folder / basin)
        made[f"{basin}.sgy"] = (folder / basin).read_bytes()
    return made | {"cut $(touch x)'; ../short.sgy".replace("/", "_"): made["deltaic.sgy"][:-777]}
