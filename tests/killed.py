"""A run that is killed, and what must be equal to one that is not."""

from __future__ import annotations

from planned import MODEL, plan

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.training import checkpoint
from seismic_model.training.metrics import read_metrics

WIDE = MODEL.model_copy(update={"width": 192})  # a checkpoint of 12 MB: the upload takes long enough to be hit


def settings(lake: Lake, run: str, **changes: object) -> RunConfig:
    return plan(lake, run, **{"model": WIDE, "steps": 40, "warmup_steps": 4} | changes)


def assert_same_end(lake: Lake, run: str, undisturbed: RunConfig) -> None:
    """Weights and losses to the last bit, every step once, and nothing left over."""
    ends = {name: checkpoint.committed_at(lake, name, undisturbed.steps) for name in (run, undisturbed.run)}
    assert ends[run].weights_sha256 == ends[undisturbed.run].weights_sha256
    curves = {name: [(entry["step"], entry["loss"]) for entry in read_metrics(lake, name)] for name in ends}
    assert [step for step, _ in curves[run]] == list(range(1, undisturbed.steps + 1))
    assert curves[run] == curves[undisturbed.run]
    kept = checkpoint.committed(lake, run)
    named = {f"{manifest.folder}/{file}" for manifest in kept for file in ("manifest.json", *manifest.files)}
    assert {entry.key for entry in lake.objects(f"runs/{run}/checkpoints")} == named
