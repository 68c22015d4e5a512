"""One training, interrupted under one layout and continued under another."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import finish
from planned import plan

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.training import checkpoint
from seismic_model.training.metrics import read_metrics

STEPS, INTERRUPTED = 12, 6
RUN = "moved"


@dataclass(frozen=True)
class Layout:
    """What a restart may change."""

    strategy: str
    processes: int
    cp: int = 1
    ulysses: int = 1
    accumulation: int = 1
    activation_checkpointing: str = "none"

    def __str__(self) -> str:
        return (
            f"{self.strategy} on {self.processes}, cp {self.cp} (ulysses {self.ulysses}), "
            f"accumulation {self.accumulation}, recomputing {self.activation_checkpointing}"
        )

    def train(self, lake: Lake, log: Path) -> None:
        """To the last step, from where ``RUN`` on ``lake`` is."""
        finish(self.config(lake), self.processes, log)

    def config(self, lake: Lake) -> RunConfig:
        changes: dict[str, Any] = {**vars(self)}
        del changes["processes"]
        return plan(lake, RUN, steps=STEPS, checkpoint_every=INTERRUPTED, ema_decay=0.9, **changes)


def uninterrupted(layout: Layout, folder: Path) -> Lake:
    """The whole training under one layout; its checkpoints are at steps ``INTERRUPTED`` and ``STEPS``."""
    lake = Lake(str(folder / "lake"))
    layout.train(lake, folder / "log")
    return lake


def continued(whole: Lake, layout: Layout, folder: Path) -> Lake:
    """A copy of ``whole`` whose second half is trained anew under another layout."""
    shutil.copytree(Path(whole.uri.removeprefix("file://")), folder / "lake")
    lake = Lake(str(folder / "lake"))
    lake.delete([f"{checkpoint.checkpoint_folder(RUN, STEPS)}/manifest.json"])
    layout.train(lake, folder / "log")
    assert f"goes on from step {INTERRUPTED}" in (folder / "log").read_text()
    return lake


def largest_difference(found: Lake, expected: Lake) -> float:
    """Of the losses of the steps after the interruption, relative."""
    curves = [[entry["loss"] for entry in read_metrics(lake, RUN)[INTERRUPTED:]] for lake in (found, expected)]
    assert len(curves[0]) == len(curves[1]) == STEPS - INTERRUPTED
    return max(abs(a / b - 1) for a, b in zip(*curves, strict=True))


def product(lake: Lake) -> str:
    """Digest of the weights at the end."""
    return checkpoint.committed_at(lake, RUN, STEPS).weights_sha256
