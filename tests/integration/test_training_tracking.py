"""MLflow shows one run for one training run, resumed or not, and its absence stops nothing."""

from __future__ import annotations

import logging
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from mlflow import MlflowClient
from planned import plan

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.mlflow_client import open_mlflow
from seismic_model.training.tracking import Tracker, find_run, open_run


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return plan(Lake(str(tmp_path / "lake")))


def entry(step: int) -> dict[str, object]:
    figures = {"step": step, "time": time.time(), "survey_error": {"north": 0.5}, "skipped": 0}
    return figures | ({"skipped_samples": [1, 2]} if step == 2 else {"loss": 1 / step})


def track(config: RunConfig, steps: range, status: str) -> None:
    tracker = Tracker(config)
    for step in steps:
        tracker.log(entry(step))
    tracker.close(status)


def test_a_resumed_run_goes_on_in_the_same_mlflow_run(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    client = MlflowClient()
    track(config, range(1, 4), "KILLED")
    first = find_run(client, config)
    assert first is not None
    assert client.get_run(first).info.status == "KILLED"
    track(config, range(4, 451), "FINISHED")
    assert find_run(client, config) == first
    run = client.get_run(first)
    assert run.info.status == "FINISHED"
    assert run.data.params["learning_rate"] == "0.003"
    history = client.get_metric_history(first, "loss")
    assert [(each.step, each.value) for each in history] == [(step, 1 / step) for step in range(1, 451) if step != 2]
    assert [each.value for each in client.get_metric_history(first, "survey_error/north")] == 450 * [0.5]

    elsewhere = config.model_copy(update={"lake": "s3://another"})
    assert find_run(client, elsewhere) is None


def _first_run(barrier: Barrier, config: RunConfig, uri: str) -> str:
    import mlflow  # noqa: F401  (takes seconds, and not the same in each process)

    barrier.wait(60)
    return open_run(open_mlflow(uri), config)


def test_runs_that_start_together_make_one_database(config: RunConfig, tmp_path: Path) -> None:
    """MLflow alone fails: "table experiments already exists"."""
    uri, runs = f"sqlite:///{tmp_path / 'mlflow.db'}", [config.model_copy(update={"run": f"run-{n}"}) for n in range(3)]
    with multiprocessing.Manager() as manager, ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        barrier = manager.Barrier(3)
        ids = [each.result() for each in [pool.submit(_first_run, barrier, run, uri) for run in runs]]
    assert [find_run(open_mlflow(uri), run) for run in runs] == ids
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "lake"] == ["mlflow.db"]


def test_an_absent_server_costs_a_warning_only(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with caplog.at_level(logging.WARNING):
        track(config, range(1, 4), "FINISHED")
    assert "MLflow gets no more metrics of this run (metrics.jsonl has them)" in caplog.text


def test_without_a_tracking_uri_nothing_is_tracked(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    track(config, range(1, 4), "FINISHED")
    assert set(tmp_path.iterdir()) == before
