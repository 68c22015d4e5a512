"""What the training entry says, and exits with, when it cannot start: nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import GenericError
from planned import one_process, plan, world_of_one
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from ingestion.lake import Lake
from seismic_model import train
from seismic_model.data.dataset import load_dataset
from seismic_model.training import loop


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def rewrite(at: Lake, changes: dict[str, Any]) -> str:
    """The URI of a valid config after ``changes`` to its JSON; None removes a field."""
    config = plan(at)
    raw = {k: v for k, v in (json.loads(config.to_bytes()) | changes).items() if v is not None}
    at.write(config.key, json.dumps(raw).encode())
    return at.uri_of(config.key)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps: Input should be greater than 0"),
        ({"stesp": 3}, "stesp: Extra inputs are not permitted"),
        ({"dataset": None}, "dataset: Field required"),
        ({"window": [8, 8, 10]}, "is not a positive multiple of patch"),
        ({"strategy": "zero2", "precision": "float64"}, "float64 needs strategy 'ddp'"),
        ({"strategy": "zero3", "compile": True}, "compile needs another strategy than 'zero3'"),
        ({"init": {"origin": "weights"}}, "needs run, step and weights_sha256"),
        ({"window": [0, 8, 16]}, "is not a positive multiple of patch"),
        ({"keep_ratio": 0.99}, "keep_ratio 0.99 of 16 tokens hides none"),
        ({"betas": [0.9, 1.0]}, "betas.1: Input should be less than 1"),
        ({"seed": 2**64}, "seed: Input should be less than"),
        ({"window": [8, 8, 8]}, r"window is (8, 8, 8), but datasets/2026-W48.json was frozen for (8, 8, 16)"),
        ({"dataset": "datasets/2026-W01.json"}, "does not exist; freeze a data set first"),
        ({"dataset_sha256": "0" * 64}, "it was changed after it was frozen"),
        ({"lake": "ftp://x"}, "expected s3:// or file://"),
    ],
)
def test_a_bad_config_is_refused_by_name(
    lake: Lake, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], message: str
) -> None:
    uri = rewrite(lake, changes)
    before = sorted(entry.key for entry in lake.objects())
    assert train.main(["--config", uri]) == 2
    assert message in caplog.text
    assert sorted(entry.key for entry in lake.objects()) == before


def test_a_config_that_is_not_there_or_no_json_is_refused(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    assert train.main(["--config", lake.uri_of("runs/x/config.json")]) == 2
    assert "there is no config at" in caplog.text
    lake.write("runs/x/config.json", b"steps: 3")
    assert train.main(["--config", lake.uri_of("runs/x/config.json")]) == 2
    assert "Invalid JSON" in caplog.text


def test_a_slip_in_a_path_makes_no_folder(lake: Lake, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    assert train.main(["--config", str(tmp_path / "slip" / "config.json")]) == 2
    assert "there is no config at" in caplog.text
    assert train.main(["--config", rewrite(lake, {"lake": str(tmp_path / "moved")})]) == 2
    assert f"there is no folder '{tmp_path / 'moved'}'" in caplog.text
    assert not (tmp_path / "slip").exists()
    assert not (tmp_path / "moved").exists()


def test_a_lake_that_does_not_answer_is_no_fault_of_the_config(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(_lake: Lake, _key: str) -> bytes:
        raise GenericError("connection refused\n\nDebug source:\nGeneric { … }")

    uri = rewrite(lake, {})
    monkeypatch.setattr(Lake, "read", down)
    assert train.main(["--config", uri]) == 1
    assert "connection refused" in caplog.text
    assert "Debug source" not in caplog.text


def test_torchrun_is_told_why(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(told))
    assert train.main(["--config", rewrite(lake, {"steps": 0})]) == 2
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(told))
    assert failure.message in caplog.text
    assert "steps: Input should be greater than 0" in failure.message


def test_a_start_without_torchrun_is_explained(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    assert train.main(["--config", rewrite(lake, {})]) == 2
    assert "start this program with torchrun" in caplog.text


def test_processes_that_fit_neither_cp_nor_batch_are_refused(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    assert train.main(["--config", rewrite(lake, {"cp": 2})]) == 2
    assert "1 processes cannot form groups of cp=2" in caplog.text


def test_a_finished_run_ends_at_once_and_a_damaged_one_with_1(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = plan(lake)
    with one_process() as mesh:
        loop.train(config, lake, load_dataset(lake, config.dataset), mesh)
    before = {entry.key: entry.etag for entry in lake.objects("runs")}
    caplog.set_level("INFO")
    for name, value in world_of_one().items():
        monkeypatch.setenv(name, value)
    assert train.main(["--config", lake.uri_of(config.key)]) == 0
    assert "the checkpoint of run first at step 12 is its last" in caplog.text
    assert {entry.key: entry.etag for entry in lake.objects("runs")} == before
    lake.write("runs/first/checkpoints/step-00000012/manifest.json", b"{")
    assert train.main(["--config", lake.uri_of(config.key)]) == 1
