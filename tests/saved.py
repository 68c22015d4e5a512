"""Strategies in a known state for tests, and their checkpoints."""

from __future__ import annotations

from contextlib import closing

import torch

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.parallel import strategies
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies import ParameterState, Strategy
from seismic_model.training.saving import Saver

PARTS = ("weight", "exp_avg", "exp_avg_sq", "ema")


def save(lake: Lake, config: RunConfig, strategy: Strategy, step: int) -> None:
    """Commit the checkpoint of ``step``."""
    with closing(Saver(lake, config, strategy)) as saver:
        saver.begin(step)
        saver.finish()


def build(config: RunConfig, mesh: Mesh, seed: int = 0) -> Strategy:
    """A strategy whose state, with moments and ``seed`` applied steps, is drawn from ``seed``."""
    strategy = strategies.build(MaskedAutoencoder(config.model, seed), config, mesh)
    draw(strategy, config, seed)
    return strategy


def draw(strategy: Strategy, config: RunConfig, seed: int) -> None:
    """Set all state to what ``seed`` draws. Of one process."""
    generator = torch.Generator().manual_seed(seed)
    parts = len(PARTS) - (config.ema_decay is None)
    for name, shape in strategy.shapes.items():
        strategy.scatter(name, 0, ParameterState(*(torch.rand(shape, generator=generator) for _ in range(parts))))
    strategy.finish_load(applied_steps=seed)


def states(strategy: Strategy) -> dict[str, dict[str, torch.Tensor]]:
    """All state by parameter and part. Of one process."""
    gathered = {name: strategy.gather(name, 0) for name in strategy.shapes}
    return {
        name: {part: getattr(state, part) for part in PARTS if getattr(state, part) is not None}
        for name, state in gathered.items()
    }


def assert_equal(found: Strategy, expected: dict[str, dict[str, torch.Tensor]]) -> None:
    """To the last bit."""
    for name, state in states(found).items():
        assert state.keys() == expected[name].keys()
        for part, tensor in state.items():
            assert torch.equal(tensor, expected[name][part]), (name, part)
