"""What a run measures at each step, as ``metrics.jsonl`` on the lake."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from obstore.exceptions import BaseError

from ingestion.lake import Lake
from seismic_model.config import run_folder

_FLUSH_SECONDS = 5.0
_BYTES_PER_SECOND = 200_000  # at most, on average: object stores cannot append, so each flush writes everything

logger = logging.getLogger(__name__)


class MetricsError(Exception):
    """The figures of a run cannot be read or written; the message says what to do."""


class MetricsLog:
    """Lines of one run, one JSON object a step; one process writes them.

    Lines after ``done_steps`` are dropped: the run goes on from there and writes them anew.
    """

    def __init__(self, lake: Lake, run: str, done_steps: int) -> None:
        self._lake = lake
        self._key = f"{run_folder(run)}/metrics.jsonl"
        known = read_metrics(lake, run)
        self._lines = [json.dumps(entry) for entry in known if entry["step"] <= done_steps]
        self._size = sum(map(len, self._lines))
        self._due = time.monotonic()

    def append(self, entry: dict[str, Any]) -> None:
        """Add a step's line; it reaches the lake within seconds or, where that fails now, at the next ``flush``."""
        line = json.dumps(entry, allow_nan=False)
        self._lines.append(line)
        self._size += len(line)
        if time.monotonic() >= self._due:
            self.try_flush()

    def try_flush(self) -> None:
        """Write all lines; a lake that does not take them costs nothing but a warning."""
        try:
            self.flush()
        except MetricsError as error:
            logger.warning("%s", error)
            self._due = time.monotonic() + _FLUSH_SECONDS

    def flush(self) -> None:
        """Write all lines. Raises ``MetricsError`` when the lake does not take them."""
        try:
            self._lake.write(self._key, "".join(f"{line}\n" for line in self._lines).encode())
        except BaseError as error:
            raise MetricsError(
                f"the lake did not take {self._lake.uri_of(self._key)}: {str(error).splitlines()[0]}; see that it can "
                "be written, then start the run again: it goes on from its checkpoint"
            ) from error
        self._due = time.monotonic() + _FLUSH_SECONDS + self._size / _BYTES_PER_SECOND


def read_metrics(lake: Lake, run: str) -> list[dict[str, Any]]:
    """Entries of ``metrics.jsonl``, oldest first; none before the first step.

    Fields, of all processes together: ``step`` (done, from 1), ``loss`` (mean over decoded live voxels of what is
    minimised: squared error of normalised amplitudes; with patch normalisation that of shape, mean and log deviation),
    ``survey_error`` (squared error of normalised amplitudes for each survey in the batch, where it is finite),
    ``learning_rate``, ``gradient_norm`` (before clipping), ``seconds`` (of the step),
    ``voxels_per_second`` and ``tokens_per_second`` (of whole crops),
    ``mfu`` (share of the devices' data-sheet rate, without one of what a large matrix product reaches; forward and
    backward counted once), ``data_wait_share`` (of the step, mean over processes),
    ``communication_share`` (the same for waits at hops, all-to-alls and reduces, and so for slower
    processes; what DeepSpeed and FSDP2 reduce by themselves is not in it), ``peak_memory`` (bytes of the fullest
    process: tensors on CUDA, else the most that it ever held), ``skipped`` (batches so far whose gradients were not
    finite), ``time`` (seconds since the epoch). A skipped step has ``skipped_samples``, the ids of those whose
    loss was not finite, or of all; what is not finite itself is left out, so it may have no ``loss``.

    Raises ``MetricsError`` when the file is damaged.
    """
    key = f"{run_folder(run)}/metrics.jsonl"
    try:
        entries = [json.loads(line) for line in lake.read(key).splitlines()]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise MetricsError(_damaged(lake, key, str(error))) from error
    if not all(isinstance(entry, dict) and isinstance(entry.get("step"), int) for entry in entries):
        raise MetricsError(_damaged(lake, key, "a line has no step"))
    return entries


def _damaged(lake: Lake, key: str, reason: str) -> str:
    return (
        f"{lake.uri_of(key)} is damaged ({reason}); restore it, or delete it to go on without the figures of the "
        "steps that are done"
    )


def describe(entry: Mapping[str, Any]) -> str:
    """What people want to see of a step while it trains, in one line."""
    outcome = f"loss {entry['loss']:.4f}" if "loss" in entry else "no finite loss"
    if "skipped_samples" in entry:
        outcome += " (skipped)"
    return (
        f"{outcome}, {entry['voxels_per_second'] / 1e6:.2f} Mvoxel/s, {entry['mfu']:.0%} MFU, "
        f"{entry['data_wait_share']:.1%} waiting for data, {entry['communication_share']:.1%} for other processes"
    )
