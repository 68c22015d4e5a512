"""Where a run begins: at its newest checkpoint, at another run's weights, or from scratch."""

from __future__ import annotations

import logging
from collections.abc import Set

from ingestion.lake import Lake
from ingestion.manifest import Contract
from seismic_model.config import RunConfig
from seismic_model.parallel.strategies import Strategy
from seismic_model.training import checkpoint
from seismic_model.training.checkpoint import CheckpointError, CheckpointManifest
from seismic_model.training.loading import load

# what a restart may change without training anything else
_LAYOUT = {
    "lake",
    "strategy",
    "cp",
    "ulysses",
    "accumulation",
    "activation_checkpointing",
    "compile",
    "checkpoint_every",
    "checkpoints_kept",
}

logger = logging.getLogger(__name__)


def restore(lake: Lake, config: RunConfig, strategy: Strategy) -> int:
    """Put weights and moments into ``strategy``; how many steps are done. Collective over all processes.

    Raises ``CheckpointError`` when the checkpoint is damaged, of another model, or written under a config that
    differs in more than its layout.
    """
    newest = checkpoint.latest_for_all(lake, config.run, strategy.mesh)
    if newest is not None:
        check_same_training(newest.config, config)
        load(lake, newest, strategy)
        logger.info("run %s goes on from step %d", config.run, newest.step)
        return newest.step
    if config.init.origin == "weights":
        load(lake, _parent(lake, config), strategy, as_start=True)
        logger.info("run %s starts from the weights of %s, step %s", config.run, config.init.run, config.init.step)
    return 0


def _parent(lake: Lake, config: RunConfig) -> CheckpointManifest:
    """The checkpoint that ``config.init`` names."""
    init = config.init
    assert init.run is not None  # as its validator demands
    assert init.step is not None
    parent = checkpoint.committed_at(lake, init.run, init.step)
    if differing := _differences(parent.config.model, config.model):
        raise CheckpointError(
            f"run {init.run} trained another model: {differing}. Start from scratch, or with the model of that run"
        )
    if parent.weights_sha256 != init.weights_sha256:
        raise CheckpointError(
            f"the weights of run {init.run} at step {init.step} have digest {parent.weights_sha256}, the config "
            f"expects {init.weights_sha256}; plan the run again from the weights that are meant"
        )
    return parent


def check_same_training(stored: RunConfig, config: RunConfig) -> None:
    """Raises ``CheckpointError`` when ``config`` is not that of the run's checkpoints in more than its layout."""
    if differing := _differences(stored, config, exclude=_LAYOUT):
        raise CheckpointError(
            f"run {config.run} has checkpoints of another config: {differing}. "
            "Give the new config a run name of its own, or restore the old values"
        )


def _differences(stored: Contract, asked: Contract, exclude: Set[str] = frozenset()) -> str:
    before, now = (each.model_dump(exclude=set(exclude)) for each in (stored, asked))
    return "; ".join(f"{name} is {now[name]}, was {before[name]}" for name in now if now[name] != before[name])
