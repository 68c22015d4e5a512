"""FSDP2: weights, gradients and optimiser are sharded, each block's weights are gathered while it computes.

``fsdp2`` shards over all processes. ``hsdp`` shards over the processes of one node, whose links are fast, and every
node holds everything: between nodes only gradients travel.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from seismic_model.config import RunConfig
from seismic_model.model.vit import Block
from seismic_model.parallel.mesh import Mesh, MeshError
from seismic_model.parallel.strategies.base import DTYPES
from seismic_model.parallel.strategies.local import LocalAdamW


class FullyShard(LocalAdamW):
    """Blocks compute in the run's precision; their gradients are reduced in float32 (float64)."""

    def __init__(self, model: nn.Module, config: RunConfig, mesh: Mesh) -> None:
        nodes = mesh.world // _processes_of_a_node(mesh) if config.strategy == "hsdp" else 1
        super().__init__(model, config, mesh, replica=mesh.world // nodes)
        accurate = torch.promote_types(DTYPES[config.precision], torch.float32)
        device_mesh = init_device_mesh(mesh.device.type, (nodes, self.replica), mesh_dim_names=("replicate", "shard"))
        # the prediction is a view, which nobody changes in place
        warnings.filterwarnings("ignore", r".*returned a view tensor", module=r"torch\.distributed\.fsdp")
        # angles and statistics are accurate on purpose: the model itself casts what is to be cast
        policy = MixedPrecisionPolicy(DTYPES[config.precision], accurate, cast_forward_inputs=False)
        shard = partial(fully_shard, mesh=device_mesh if nodes > 1 else device_mesh["shard"], mp_policy=policy)
        model.to(accurate)
        for block in [module for module in model.modules() if isinstance(module, Block)]:
            shard(block)
        self._sharded = shard(model)
        self._sharded.set_force_sum_reduction_for_comms(True)  # gloo knows no mean
        self._parameters = {name: cast(DTensor, p) for name, p in model.named_parameters()}
        self._masters = {name: p.to_local().detach() for name, p in self._parameters.items()}
        place = mesh.rank % self.replica
        rows = {name: -(-shape[0] // self.replica) for name, shape in self.shapes.items()}  # of all but the last
        starts = {n: min(place * rows[n], shape[0]) * shape[1:].numel() for n, shape in self.shapes.items()}
        self._train(self._masters, starts)

    def _backward(self, loss: Tensor, last: bool) -> None:
        self._sharded.set_requires_gradient_sync(last)
        loss.backward()  # type: ignore[no-untyped-call]

    def _reduce(self) -> list[Tensor]:
        gradients = [cast(DTensor, parameter.grad).to_local() for parameter in self._parameters.values()]
        for master, gradient in zip(self._masters.values(), gradients, strict=True):
            master.grad = gradient
        return gradients

    def _drop_gradients(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.grad = self._masters[name].grad = None

    def _publish(self) -> None:
        """The model computes with the masters, cast when they are gathered."""


def _processes_of_a_node(mesh: Mesh) -> int:
    size = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
    if size < 1 or mesh.world % size:
        raise MeshError(
            f"strategy 'hsdp' needs equally many processes on each node: LOCAL_WORLD_SIZE is {size or 'not set'}, "
            f"the world has {mesh.world}; start it with torchrun, or take 'fsdp2'"
        )
    return size
