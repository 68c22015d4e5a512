"""How gradients, optimiser and weights are spread over the processes, behind one interface."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from seismic_model.config import RunConfig, StrategyName
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies.base import DTYPES, MOMENTS, ParameterState, Strategy
from seismic_model.parallel.strategies.zero import Zero, import_deepspeed

__all__ = ["DTYPES", "MOMENTS", "ParameterState", "Strategy", "build", "import_deepspeed"]


def build(model: nn.Module, config: RunConfig, mesh: Mesh) -> Strategy:
    """The strategy that ``config.strategy`` names, around ``model`` moved to this process's device and precision."""
    return _kind(config.strategy)(model.to(mesh.device, DTYPES[config.precision]), config, mesh)


def _kind(strategy: StrategyName) -> Callable[[nn.Module, RunConfig, Mesh], Strategy]:
    """Only what is used is loaded: FSDP alone is a third of the time that a process takes to start."""
    if strategy == "ddp":
        from seismic_model.parallel.strategies.ddp import AllReduce

        return AllReduce
    if strategy in ("fsdp2", "hsdp"):
        from seismic_model.parallel.strategies.fsdp import FullyShard

        return FullyShard
    return Zero
