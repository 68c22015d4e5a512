"""The loop of one process: its losses, bad batches, SIGTERM and the way back."""

from __future__ import annotations

import functools
import logging
import os
import re
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from obstore.exceptions import GenericError
from planned import MODEL, one_process, plan
from torch import Tensor

from ingestion.lake import Lake
from seismic_model.config import ModelConfig, RunConfig
from seismic_model.data.dataset import load_dataset
from seismic_model.data.reader import CropReader, MicroBatch
from seismic_model.training import checkpoint
from seismic_model.training.loop import MAX_SKIPPED, TrainingError, train
from seismic_model.training.metrics import MetricsError, read_metrics
from seismic_model.training.tokens import TokenBatch


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def run(config: RunConfig) -> str:
    lake = Lake(config.lake)
    with one_process() as mesh:
        return train(config, lake, load_dataset(lake, config.dataset, config.dataset_sha256), mesh)


def final_weights(config: RunConfig) -> str:
    manifest = checkpoint.latest(Lake(config.lake), config.run)
    assert manifest is not None
    assert manifest.step == config.steps
    return manifest.weights_sha256


def on_step(monkeypatch: pytest.MonkeyPatch, change: Callable[[MicroBatch], None]) -> None:
    """Let ``change`` see each micro-batch just before the loop does."""
    stream = CropReader.stream

    def changed(reader: CropReader) -> Generator[MicroBatch, None, None]:
        for batch in stream(reader):
            change(batch)
            yield batch

    monkeypatch.setattr(CropReader, "stream", changed)


def test_accumulation_changes_nothing_but_rounding(lake: Lake) -> None:
    for name, accumulation in (("whole", 1), ("parts", 4)):
        run(plan(lake, name, accumulation=accumulation, precision="float64"))
    whole, parts = ([entry["loss"] for entry in read_metrics(lake, name)] for name in ("whole", "parts"))
    assert parts == pytest.approx(whole, rel=1e-9)


def test_positions_count_voxels_of_the_reference(lake: Lake) -> None:
    """The surveys have bins of 25 m and samples of 4 ms."""
    usual = {"inline_m": 25, "crossline_m": 25, "time_ms": 4, "depth_m": 10}
    references = {"none": None, "same": usual, "finer": usual | {"time_ms": 2}}
    for name, reference in references.items():
        model = ModelConfig.model_validate(MODEL.model_dump() | {"reference_spacing": reference})
        run(plan(lake, name, steps=2, precision="float64", model=model))
    none, same, finer = ([entry["loss"] for entry in read_metrics(lake, name)] for name in references)
    assert same == none
    assert finer[0] != pytest.approx(none[0], rel=1e-6)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_compiled_blocks_compute_the_same(lake: Lake, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    """Traced but run without generated code, which would take minutes to make."""
    recomputed = {"steps": 3, "strategy": strategy, "activation_checkpointing": "selective"}
    run(plan(lake, "plain", **recomputed))
    traced: list[str] = []

    def count(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        traced.append(graph.code)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=count))
    run(plan(lake, "compiled", compile=True, **recomputed))
    # before and after attention, in the encoder and in the decoder, whose first block has one mask token for all
    assert len(traced) == 5
    plain, compiled = ([entry["loss"] for entry in read_metrics(lake, name)] for name in ("plain", "compiled"))
    assert compiled == pytest.approx(plain, rel=1e-6)


def test_the_figures_of_a_step_say_what_they_should(lake: Lake) -> None:
    config = plan(lake, steps=3)
    run(config)
    for entry in read_metrics(lake, config.run):
        assert set(entry["survey_error"]) <= {"north", "south"}
        low, high = min(entry["survey_error"].values()), max(entry["survey_error"].values())
        assert low <= entry["loss"] * (1 + 1e-6)
        assert high >= entry["loss"] * (1 - 1e-6)
        assert entry["voxels_per_second"] * entry["seconds"] == pytest.approx(4 * 8 * 8 * 16)
        assert entry["tokens_per_second"] * entry["seconds"] == pytest.approx(4 * 2 * 2 * 4)
        assert 0 <= entry["data_wait_share"] <= 1
        assert 0 < entry["communication_share"] < 1
        assert 0 < entry["mfu"] < 1
        assert 1e8 < entry["peak_memory"] < 1e11
        assert entry["gradient_norm"] > 0


def test_what_a_process_left_that_was_killed_in_its_last_clean_up_goes_at_the_next_start(lake: Lake) -> None:
    config = plan(lake, steps=4, checkpoint_every=2, checkpoints_kept=1)
    run(config)
    kept = {entry.key for entry in lake.objects(f"runs/{config.run}/checkpoints")}
    lake.write(f"{checkpoint.checkpoint_folder(config.run, 2)}/model-00001-of-00001.safetensors", b"half deleted")
    assert run(config) == "finished"
    assert {entry.key for entry in lake.objects(f"runs/{config.run}/checkpoints")} == kept


def test_a_finished_run_is_not_what_another_config_asks_for(lake: Lake) -> None:
    config = plan(lake, steps=2)
    run(config)
    assert run(config.model_copy(update={"checkpoints_kept": 1})) == "finished"
    with pytest.raises(checkpoint.CheckpointError, match="seed is 5, was 0"):
        run(config.model_copy(update={"seed": 5}))


def test_damaged_figures_of_a_run_are_refused_with_what_to_do(lake: Lake) -> None:
    config = plan(lake, steps=2)
    run(config)
    for damaged in (b'{"loss": 1}\n', b'{"step": 1', b"\xff\xfe", b"[]\n"):
        lake.write(f"runs/{config.run}/metrics.jsonl", damaged)
        with pytest.raises(MetricsError, match=r"metrics.jsonl is damaged .* restore it, or delete it"):
            read_metrics(lake, config.run)


@pytest.mark.parametrize(("step", "number"), [(1, signal.SIGTERM), (5, signal.SIGTERM), (2, signal.SIGINT)])
def test_a_signal_saves_and_the_same_run_goes_on_to_the_same_weights(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: int, number: signal.Signals
) -> None:
    undisturbed, stopped = plan(lake, "undisturbed"), plan(lake, "stopped", checkpoint_every=100)
    run(undisturbed)
    with monkeypatch.context() as context:
        on_step(context, lambda batch: os.kill(os.getpid(), number) if batch.step == step else None)
        assert run(stopped) == "stopped"
    assert [manifest.step for manifest in checkpoint.committed(lake, "stopped")] == [step]
    assert run(stopped) == "finished"
    assert final_weights(stopped) == final_weights(undisturbed)
    first, second = ([entry["loss"] for entry in read_metrics(lake, name)] for name in ("undisturbed", "stopped"))
    assert first == second


def test_sigterm_right_after_a_checkpoint_saves_nothing_twice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plan(lake)
    on_step(monkeypatch, lambda batch: os.kill(os.getpid(), signal.SIGTERM) if batch.step == 3 else None)
    assert run(config) == "stopped"
    assert [manifest.step for manifest in checkpoint.committed(lake, config.run)] == [3]


def test_a_batch_without_finite_gradients_changes_nothing_and_is_named(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = plan(lake, steps=5, checkpoint_every=1, checkpoints_kept=5)
    on_step(monkeypatch, lambda batch: poison(batch) if batch.step == 2 else None)
    with caplog.at_level(logging.WARNING):
        run(config)
    assert "step 3 had a gradient norm of nan and was skipped" in caplog.text
    places = r" \((north|south) at \(\d+, \d+, \d+\)\)"
    assert re.search(rf"look at samples 8{places}, 9{places}, 10{places}, 11{places}", caplog.text)
    saved = checkpoint.committed(lake, config.run)
    assert [manifest.applied_steps for manifest in saved] == [1, 2, 2, 3, 4]
    assert saved[1].weights_sha256 == saved[2].weights_sha256 != saved[3].weights_sha256
    entries = read_metrics(lake, config.run)
    assert [entry["step"] for entry in entries] == [1, 2, 3, 4, 5]
    assert [entry["skipped"] for entry in entries] == [0, 0, 1, 1, 1]
    assert [entry.get("skipped_samples") for entry in entries] == [None, None, [8, 9, 10, 11], None, None]
    assert ["loss" in entry and "gradient_norm" in entry for entry in entries] == [True, True, False, True, True]


def test_of_a_skipped_step_only_the_samples_of_the_bad_micro_batch_are_named(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = plan(lake, steps=2, accumulation=2)
    batches = iter(range(4))
    on_step(monkeypatch, lambda batch: poison(batch) if next(batches) == 3 else None)
    run(config)
    assert [entry.get("skipped_samples") for entry in read_metrics(lake, config.run)] == [None, [6, 7]]


def test_a_resumed_run_remembers_its_bad_batches(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plan(lake)

    def disturb(batch: MicroBatch) -> None:
        if batch.step == 1:
            poison(batch)
        if batch.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as context:
        on_step(context, disturb)
        assert run(config) == "stopped"
    assert run(config) == "finished"
    assert [entry["skipped"] for entry in read_metrics(lake, config.run)] == [0] + 11 * [1]


def test_too_many_bad_batches_stop_the_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plan(lake, steps=40)
    on_step(monkeypatch, poison)
    with pytest.raises(TrainingError, match=f"at most {MAX_SKIPPED} are allowed: lower learning_rate"):
        run(config)


def poison(batch: MicroBatch) -> None:
    batch.values_BIXZ[np.nonzero(batch.live_BIXZ)] = np.nan


def test_figures_that_the_lake_does_not_take_cost_a_warning_and_come_with_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = plan(lake, checkpoint_every=12)
    write = Lake.write
    refused: list[str] = []

    def refuse_once(to: Lake, key: str, data: bytes) -> None:
        if key.endswith("metrics.jsonl") and not refused:
            refused.append(key)
            raise GenericError("503 Slow Down")
        write(to, key, data)

    monkeypatch.setattr(Lake, "write", refuse_once)
    assert run(config) == "finished"
    assert re.search(r"did not take .*/metrics.jsonl: 503 Slow Down; see that it can be written", caplog.text)
    assert [entry["step"] for entry in read_metrics(lake, config.run)] == list(range(1, 13))


def test_a_survey_error_beyond_all_numbers_is_left_out_and_training_goes_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With patch normalisation an early model may predict amplitudes whose square overflows."""
    config = plan(lake)
    errors = TokenBatch.survey_errors

    def overflow(batch: TokenBatch, prediction_BMP: Tensor, surveys: int) -> Tensor:
        sums_2S = errors(batch, prediction_BMP, surveys)
        sums_2S[0, 0] = torch.inf
        return sums_2S

    monkeypatch.setattr(TokenBatch, "survey_errors", overflow)
    assert run(config) == "finished"
    assert {survey for entry in read_metrics(lake, config.run) for survey in entry["survey_error"]} == {"south"}
