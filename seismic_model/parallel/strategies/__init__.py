"""How gradients, optimiser and weights are spread over the processes, behind one interface."""

from __future__ import annotations

from torch import nn

from seismic_model.config import RunConfig
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies.base import DTYPES, MOMENTS, ParameterState, Strategy
from seismic_model.parallel.strategies.ddp import AllReduce
from seismic_model.parallel.strategies.fsdp import FullyShard
from seismic_model.parallel.strategies.zero import Zero, import_deepspeed

__all__ = ["DTYPES", "MOMENTS", "ParameterState", "Strategy", "build", "import_deepspeed"]


def build(model: nn.Module, config: RunConfig, mesh: Mesh) -> Strategy:
    """The strategy that ``config.strategy`` names, around ``model`` moved to this process's device and precision."""
    kind = AllReduce if config.strategy == "ddp" else Zero if config.strategy.startswith("zero") else FullyShard
    return kind(model.to(mesh.device, DTYPES[config.precision]), config, mesh)
