"""Training goes on from saved states in new processes as if it had never stopped, under every strategy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from equality_worker import KINDS
from safetensors.torch import load_file
from test_equality import work


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of four steps, the second from the states after two of the first.

    After the first step came one with an infinite gradient in one rank, which must change nothing.
    """
    return work("resume", tmp_path_factory.mktemp("resume"))


@pytest.fixture
def uninterrupted(folder: Path) -> Path:
    return folder / "uninterrupted"


@pytest.fixture
def resumed(folder: Path) -> Path:
    return folder / "resumed"


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_moments_are_equal_to_the_last_bit(uninterrupted: Path, resumed: Path, kind: str) -> None:
    expected, found = (load_file(folder / f"{kind}-4.safetensors") for folder in (uninterrupted, resumed))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not torch.equal(
        load_file(uninterrupted / f"{kind}-3.safetensors")["decoder.head.weight:weight"], found["head.weight:weight"]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_full_precision(uninterrupted: Path, kind: str) -> None:
    dtype = torch.float64 if kind.endswith("float64") else torch.float32
    states = load_file(uninterrupted / f"{kind}-4.safetensors")
    assert {tensor.dtype for tensor in states.values()} == {dtype}
    if kind.endswith("bfloat16"):  # the masters hold more than the model that computes
        weight = states["decoder.head.weight:weight"]
        assert not torch.equal(weight, weight.bfloat16().float())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.endswith("bfloat16")])
def test_all_strategies_walk_the_same_way(uninterrupted: Path, kind: str) -> None:
    """The same steps, clipping and skipped step included, so that a checkpoint of one serves the others."""
    accurate = load_file(uninterrupted / "ddp-float64-4.safetensors")
    found = load_file(uninterrupted / f"{kind}-4.safetensors")
    for name, tensor in accurate.items():
        if name.endswith("exp_avg"):
            assert (found[name] - tensor).abs().max() <= 1e-3 * tensor.abs().max(), name
