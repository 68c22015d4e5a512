"""The same figures in MLflow, when ``MLFLOW_TRACKING_URI`` is set.

A thread of its own sends them: a slow or absent server costs training nothing but a warning.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from seismic_model.config import RunConfig
from seismic_model.mlflow_client import open_mlflow, sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "seismic-vit-mae"
RUN_TAG, LAKE_TAG = "sfm.run", "sfm.lake"  # by these a resumed run, or the registry, finds the MLflow run
_BATCH = 200  # entries at a time
_CALL = 1000  # metrics in one call, MLflow's limit
_NO_FIGURES = ("step", "time", "survey_error", "skipped_samples")
_CLOSE_SECONDS = 20.0  # less than torchrun leaves after SIGTERM

logger = logging.getLogger(__name__)


class Tracker:
    """Sends the metrics of one run to MLflow; a resumed run goes on in the same MLflow run."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._entries: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._status = "FAILED"
        self._thread: threading.Thread | None = None
        if os.environ.get("MLFLOW_TRACKING_URI"):
            self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
            self._thread.start()

    def log(self, entry: dict[str, Any]) -> None:
        """Hand over one step's metrics; returns at once."""
        if self._thread and self._thread.is_alive():
            self._entries.put(entry)

    def close(self, status: str) -> None:
        """Send what is left and give the MLflow run its status: FINISHED, KILLED or FAILED."""
        self._status = status
        if self._thread:
            self._entries.put(None)
            self._thread.join(_CLOSE_SECONDS)
            if self._thread.is_alive():
                logger.warning("MLflow did not take all metrics within %g s; metrics.jsonl has them", _CLOSE_SECONDS)

    def _work(self) -> None:
        try:
            client = open_mlflow(os.environ["MLFLOW_TRACKING_URI"])
            run_id = open_run(client, self._config)
            while entries := self._take():
                _send(client, run_id, entries)
            client.set_terminated(run_id, self._status)
        except Exception as error:  # whatever a tracking server does, training goes on
            logger.warning("MLflow gets no more metrics of this run (metrics.jsonl has them): %s", error)

    def _take(self) -> list[dict[str, Any]]:
        """What has been handed over, waiting for the first; empty at the end."""
        entries: list[dict[str, Any]] = []
        while not entries or (len(entries) < _BATCH and not self._entries.empty()):
            entry = self._entries.get()
            if entry is None:
                self._entries.put(None)
                break
            entries.append(entry)
        return entries


def find_run(client: MlflowClient, config: RunConfig) -> str | None:
    """Id of the MLflow run of a training run, or None when it was never tracked."""
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return None
    tagged = client.search_runs([experiment.experiment_id], f"tags.`{RUN_TAG}` = '{config.run}'")
    ids: list[str] = [run.info.run_id for run in tagged if run.data.tags.get(LAKE_TAG) == config.lake]
    return ids[0] if ids else None


def open_run(client: MlflowClient, config: RunConfig) -> str:
    """Id of the MLflow run of a training run, made when it is not there yet."""
    run_id = find_run(client, config)
    if run_id is not None:
        client.update_run(run_id, status="RUNNING")
        return run_id
    tags = {RUN_TAG: config.run, LAKE_TAG: config.lake}
    run_id = str(client.create_run(_experiment(client), run_name=config.run, tags=tags).info.run_id)
    for name, value in config.model_dump(mode="json").items():
        client.log_param(run_id, name, value)
    return run_id


def _experiment(client: MlflowClient) -> str:
    """With a server, that decides where artifacts lie; beside an SQLite file, not in whatever folder this runs."""
    from mlflow.exceptions import MlflowException

    if found := client.get_experiment_by_name(EXPERIMENT):
        return str(found.experiment_id)
    database = sqlite_file(client.tracking_uri)
    artifacts = (database.parent / "artifacts").as_uri() if database else None
    try:
        return str(client.create_experiment(EXPERIMENT, artifact_location=artifacts))
    except MlflowException:
        if made := client.get_experiment_by_name(EXPERIMENT):  # by another run in the same second
            return str(made.experiment_id)
        raise


def _send(client: MlflowClient, run_id: str, entries: list[dict[str, Any]]) -> None:
    from mlflow.entities import Metric

    metrics = [
        Metric(name, float(value), int(entry["time"] * 1000), entry["step"])
        for entry in entries
        for name, value in _figures(entry)
    ]
    for first in range(0, len(metrics), _CALL):
        client.log_batch(run_id, metrics=metrics[first : first + _CALL])


def _figures(entry: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Name and value of each figure of a step, one for each survey as well; sample ids are only in metrics.jsonl."""
    for survey, error in entry["survey_error"].items():
        yield f"survey_error/{survey}", error
    yield from ((name, value) for name, value in entry.items() if name not in _NO_FIGURES)
