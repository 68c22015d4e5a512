"""The heartbeat on the lake moves with the run and stands with it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from obstore.exceptions import GenericError
from planned import one_process, plan
from torch import tensor

from ingestion.lake import Lake
from seismic_model.data.dataset import load_dataset
from seismic_model.training import loop
from seismic_model.training.heartbeat import Heartbeat

KEY = "runs/r/heartbeat.json"
LOOK = 0.02  # seconds


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def settle() -> None:
    time.sleep(20 * LOOK)


def test_it_changes_with_every_phase_step_and_wait_and_not_without(lake: Lake) -> None:
    with one_process() as mesh, Heartbeat(lake, "r", mesh, LOOK) as heartbeat:
        settle()
        seen = [lake.read_json(KEY)]
        assert (seen[0]["phase"], seen[0]["step"]) == ("restore", 0)
        for move in (
            lambda: heartbeat.enter("train", 0),
            lambda: heartbeat.enter("train", 1),
            lambda: mesh.total(tensor(1)),
            lambda: heartbeat.enter("save", 1),
        ):
            before = lake.head(KEY)
            settle()
            assert lake.head(KEY) == before  # nothing moved: not even its time
            move()
            settle()
            seen.append(lake.read_json(KEY))
            assert seen[-1] != seen[-2]
            assert seen[-1]["time"] > seen[-2]["time"]
    assert (lake.read_json(KEY)["phase"], lake.read_json(KEY)["step"]) == ("ended", 1)


def test_it_says_that_a_run_failed(lake: Lake) -> None:
    with pytest.raises(RuntimeError), one_process() as mesh, Heartbeat(lake, "r", mesh, LOOK):
        raise RuntimeError
    assert lake.read_json(KEY)["phase"] == "failed"


def test_a_lake_that_refuses_it_costs_a_warning(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_lake: Lake, _key: str, _data: bytes) -> None:
        raise GenericError("503 Slow Down")

    monkeypatch.setattr(Lake, "write", refuse)
    with one_process() as mesh, Heartbeat(lake, "r", mesh, LOOK):
        settle()
        monkeypatch.undo()
        settle()
        assert lake.exists(KEY)
    assert "did not take heartbeat.json: 503 Slow Down" in caplog.text


def test_a_run_leaves_one_that_says_it_ended(lake: Lake) -> None:
    config = plan(lake, steps=2)
    with one_process() as mesh:
        loop.train(config, lake, load_dataset(lake, config.dataset), mesh)
    assert lake.read_json(f"runs/{config.run}/heartbeat.json")["phase"] == "ended"
