"""Where a run's figures go: the lake, MLflow, and a line on the screen."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.training.lease import FencedError
from seismic_model.training.metrics import MetricsLog, describe
from seismic_model.training.tracking import Tracker

_PRINT_SECONDS = 10.0  # where there is no terminal to redraw a line on


class Reporter:
    """Takes one entry a step (see ``metrics.read_metrics``); used by one process of the run."""

    def __init__(self, config: RunConfig, lake: Lake, done_steps: int) -> None:
        self._steps = config.steps
        self._log = MetricsLog(lake, config.run, done_steps)
        self._tracker = Tracker(config)
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn(config.run),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(config.run, total=config.steps, completed=done_steps, figures="")
        self._print_due = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if isinstance(error, FencedError):  # lake and MLflow now belong to the successor
            return
        self._log.try_flush()  # the last save had all figures that it needs
        self._tracker.close("FAILED" if error else "FINISHED" if self._bar.finished else "KILLED")

    def step(self, entry: dict[str, Any]) -> None:
        """Report one step."""
        self._log.append(entry)
        self._tracker.log(entry)
        figures = describe(entry)
        self._bar.update(self._task, completed=entry["step"], figures=figures)
        if not self._console.is_terminal and (time.monotonic() >= self._print_due or entry["step"] == self._steps):
            self._console.print(f"step {entry['step']} of {self._steps}: {figures}", highlight=False)
            self._print_due = time.monotonic() + _PRINT_SECONDS

    def flush(self) -> None:
        """Have all figures so far on the lake."""
        self._log.flush()
