"""What a comparison of strategies found: one object on the lake for each model, window, batch and set of processes."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Literal

from pydantic import ValidationError

from ingestion.lake import Lake
from ingestion.manifest import Contract
from seismic_model.config import RunConfig, StrategyName

_DECIDING = {
    *("model", "window", "keep_ratio", "decode_share", "batch", "accumulation"),
    *("precision", "cp", "ulysses", "activation_checkpointing", "compile"),
}


class Parts(Contract):
    """Seconds of a step, mean over processes, each part waited for: together they may take longer than a step."""

    data: float  # waiting for the reader, and cutting tokens
    forward: float
    backward: float  # with what the strategy sends meanwhile
    step: float  # the rest of the reduction, clipping, AdamW, and weights sent back


class Row(Contract):
    """One strategy; figures, or the fault that kept it from having any."""

    strategy: StrategyName
    fault: str | None = None
    samples_per_second: float = 0  # crops, all processes
    tokens_per_second: float = 0  # of whole crops
    peak_memory: int = 0  # bytes, the largest process: tensors on CUDA, else all of it, libraries included
    seconds: Parts | None = None


class Found(Contract):
    """What one launch of ``measure`` leaves behind."""

    device: str
    row: Row


class Comparison(Contract):
    """``strategies/<key>.json``."""

    schema_version: Literal[1] = 1
    config: RunConfig  # its strategy does not count
    processes: int
    device: str
    versions: dict[str, str]
    data: Literal["data set", "made crops"]
    steps: int  # timed, for each strategy
    rows: list[Row]
    created: datetime

    @property
    def key(self) -> str:
        """Where it lies on the lake."""
        return comparison_key(self.config, self.processes)

    @property
    def winner(self) -> StrategyName | None:
        """The fastest of those that ran."""
        ran = [row for row in self.rows if row.fault is None]
        return max(ran, key=lambda row: row.samples_per_second).strategy if ran else None

    def with_rows_of(self, earlier: Comparison) -> Comparison:
        """With what ``earlier`` found of strategies that are not in here, if it found it in the same way."""
        if any(getattr(self, name) != getattr(earlier, name) for name in ("device", "versions", "data")):
            return self
        measured = {row.strategy for row in self.rows}
        others = [row for row in earlier.rows if row.strategy not in measured]
        return self.model_copy(update={"rows": self.rows + others})


def comparison_key(config: RunConfig, processes: int) -> str:
    """Of all that decides how fast a step is, save the strategy and the machine."""
    told = config.model_dump(mode="json", include=_DECIDING) | {
        "processes": processes,
        "ema": config.ema_decay is not None,
    }
    return f"strategies/{hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]}.json"


def read_comparison(lake: Lake, key: str) -> Comparison | None:
    """The table at ``key``, or None where nothing was measured, or by another version."""
    try:
        return Comparison.model_validate_json(lake.read(key))
    except (FileNotFoundError, ValidationError):
        return None


def measured_winner(lake: Lake, config: RunConfig, processes: int) -> StrategyName | None:
    """The fastest strategy for ``config``, or None where none was measured."""
    found = read_comparison(lake, comparison_key(config, processes))
    return found.winner if found else None
