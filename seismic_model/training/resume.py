"""Where a run begins: at its newest checkpoint, at another run's weights, or from scratch."""

from __future__ import annotations

import logging
from collections.abc import Set

import torch

from ingestion.lake import Lake
from ingestion.manifest import Contract
from seismic_model.config import RunConfig
from seismic_model.parallel.strategies import ParameterState, Strategy
from seismic_model.training import checkpoint
from seismic_model.training.checkpoint import CheckpointError

# what a restart may change without training anything else
_LAYOUT = {"lake", "strategy", "cp", "accumulation", "checkpoint_every", "checkpoints_kept"}

logger = logging.getLogger(__name__)


def restore(lake: Lake, config: RunConfig, strategy: Strategy) -> int:
    """Put weights and moments into ``strategy``; how many steps are done. Collective over all processes.

    Raises ``CheckpointError`` when the checkpoint is damaged, of another model, or written under a config that
    differs in more than its layout.
    """
    newest = checkpoint.latest_for_all(lake, config.run, strategy.mesh)
    try:
        if newest is not None:
            _check_same_training(newest.config, config)
            strategy.load(checkpoint.load_states(lake, newest), newest.applied_steps)
            logger.info("run %s goes on from step %d", config.run, newest.step)
            return newest.step
        if config.init.origin == "weights":
            strategy.load(_initial_states(lake, config), 0)
            logger.info("run %s starts from the weights of %s, step %s", config.run, config.init.run, config.init.step)
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"run {config.run} cannot start from these weights: {error.args[0]}") from error
    return 0


def _initial_states(lake: Lake, config: RunConfig) -> dict[str, ParameterState]:
    """The weights that ``config.init`` names, with moments of zero."""
    init = config.init
    assert init.run is not None  # as its validator demands
    assert init.step is not None
    parent = checkpoint.committed_at(lake, init.run, init.step)
    if differing := _differences(parent.config.model, config.model):
        raise CheckpointError(
            f"run {init.run} trained another model: {differing}. Start from scratch, or with the model of that run"
        )
    weights = checkpoint.load_weights(lake, init.run, init.step)
    if (found := checkpoint.weights_digest(weights)) != init.weights_sha256:
        raise CheckpointError(
            f"the weights of run {init.run} at step {init.step} have digest {found}, the config expects "
            f"{init.weights_sha256}; plan the run again from the weights that are meant"
        )
    return {
        name: ParameterState(weight, torch.zeros_like(weight), torch.zeros_like(weight))
        for name, weight in weights.items()
    }


def _check_same_training(stored: RunConfig, config: RunConfig) -> None:
    if differing := _differences(stored, config, exclude=_LAYOUT):
        raise CheckpointError(
            f"run {config.run} has checkpoints of another config: {differing}. "
            "Give the new config a run name of its own, or restore the old values"
        )


def _differences(stored: Contract, asked: Contract, exclude: Set[str] = frozenset()) -> str:
    before, now = (each.model_dump(exclude=set(exclude)) for each in (stored, asked))
    return "; ".join(f"{name} is {now[name]}, was {before[name]}" for name in now if now[name] != before[name])
