"""Follow one training job from the flow: launch or attach, show its metrics, and say how it ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from flows.launchers import Job, Launcher, State
from ingestion.lake import Lake
from seismic_model.config import RunConfig, run_folder
from seismic_model.training.metrics import read_metrics

_POLL_SECONDS = 2.0


class TrainingFailedError(Exception):
    """The job ended without success; submitting it again resumes from its last committed checkpoint."""


def train(config: RunConfig, processes: int, launcher: Launcher, show: Callable[[list[dict[str, Any]]], None]) -> None:
    """Run ``config`` to its end, attaching when it already runs; ``show`` gets all metrics when there are new ones.

    Raises ``TrainingFailedError`` with the end of the job's log.
    """
    lake = Lake(config.lake)
    key = job_key(lake, config.run)
    tracking = {name: os.environ[name] for name in ("MLFLOW_TRACKING_URI",) if name in os.environ}
    arguments = ("--config", lake.uri_of(config.key))
    launcher.submit(Job(key, config.run, "seismic_model.train", arguments, processes, tracking))
    shown = 0
    while True:
        status = launcher.find(key)
        metrics = read_metrics(lake, config.run)
        if metrics and metrics[-1]["step"] != shown:
            shown = metrics[-1]["step"]
            show(metrics)
        if status is None or status.state is State.FAILED:
            code = status.exit_code if status else None
            log = status.log_tail if status else ""
            raise TrainingFailedError(f"training {config.run} ended with exit code {code}; its log ends:\n{log}")
        if status.state is State.SUCCEEDED:
            _check_finished(lake, config)
            return
        time.sleep(_POLL_SECONDS)


def job_key(lake: Lake, run: str) -> str:
    """The idempotency key of a run's job: one lake, one run, one job."""
    return f"{lake.uri}/{run_folder(run)}"


def _check_finished(lake: Lake, config: RunConfig) -> None:
    """A job that was asked to stop ends well too, with its work saved but not done."""
    from seismic_model.training.checkpoint import latest

    newest = latest(lake, config.run)
    if newest is None or newest.step < config.steps:
        done = newest.step if newest else 0
        raise TrainingFailedError(f"training {config.run} was stopped after {done} of {config.steps} steps")
