"""One training step on several real processes gives the loss and gradients of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from equality_worker import CASES, MESHES, SEED, Case, batch
from safetensors.torch import load_file
from torch import Tensor

from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.model.masking import Masking, Shard

WORKER = Path(__file__).parent / "equality_worker.py"
TOLERANCE = {"ddp": 1e-10, "zero2": 1e-5}  # float64, float32


def work(what: str, folder: Path) -> Path:
    """Let the worker do its part; its output is shown when it fails."""
    done = subprocess.run(
        [sys.executable, str(WORKER), what, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@dataclass(frozen=True)
class Reference:
    """Mean loss over scored voxels, gradients by name, their norm: plain autograd in float64."""

    loss: float
    gradients: dict[str, Tensor]
    norm: float


def one_process(case: Case) -> Reference:
    config = case.config("ddp", "float64", 1)
    model = MaskedAutoencoder(config.model, SEED).double()
    shard = Shard.of(case.layout, Masking(case.keep_ratio, SEED))
    result = model(*batch(case, shard, 0, range(12)), shard)
    loss = result.loss_sum / result.count.clamp(min=1)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    norm = torch.cat([g.flatten() for g in gradients.values()]).norm()
    return Reference(loss.item(), gradients, norm.item())


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return work("equality", tmp_path_factory.mktemp("equality"))


@pytest.mark.parametrize("mesh", [f"dp{processes // cp}-cp{cp}" for processes, cp in MESHES])
@pytest.mark.parametrize("strategy", ["ddp", "zero2"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_loss_and_gradients_are_those_of_one_process(results: Path, mesh: str, case: Case, strategy: str) -> None:
    expected, found = one_process(case), load_file(results / mesh / f"{case.name}-{strategy}.safetensors")
    tolerance = TOLERANCE[strategy]
    assert found["loss"].item() == pytest.approx(expected.loss, rel=tolerance)
    assert found["norm"].item() == pytest.approx(expected.norm, rel=tolerance)
    for name, gradient in expected.gradients.items():
        error = (found[f"{name}:exp_avg"] - gradient).abs().max()
        assert error <= tolerance * gradient.abs().max(), (name, error / gradient.abs().max())


def test_the_cases_cover_what_they_say() -> None:
    by_name = {case.name: case for case in CASES}
    shards = {
        name: [Shard.of(case.layout, Masking(case.keep_ratio, SEED), 0, cp) for cp in (2, 3)]
        for name, case in by_name.items()
    }
    assert all(len(set(s.lengths)) == 1 for s in shards["even"])
    assert all(len(set(s.lengths)) > 1 for s in shards["uneven"])
    assert all(0 in s.lengths for s in shards["rank-without-tokens"])
    assert all(0 in s.visible_lengths and 0 not in s.lengths for s in shards["rank-without-visible-tokens"])
