"""What all strategies share: the training step's outline, and state that moves between shards and one owner.

Every strategy reduces over the whole world and knows nothing of context parallelism: the loss carries all
scaling. Weights and moments are spread over ``replica`` neighbouring processes, and every group of so many holds
them all: 1 where each process holds everything, the whole world where nothing is held twice.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seismic_model.config import RunConfig
from seismic_model.parallel.mesh import Mesh

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's names


@dataclass(frozen=True)
class ParameterState:
    """One parameter as a checkpoint holds it: full shape, on the CPU, float32 (float64 in a float64 run)."""

    weight: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    ema: Tensor | None = None  # average of the weights over the steps, where the run keeps one


@dataclass(frozen=True)
class Fragment:
    """What this process holds of one parameter: 1-D tensors of full precision that are the state itself, no copies."""

    start: int  # in the flattened parameter
    parts: dict[str, Tensor]  # by the names of ``ParameterState``, all of one length


class Strategy(ABC):
    """Trains one model with AdamW; every process calls the same methods in the same order.

    Attributes:
        model: what to call for the forward pass.
        shapes: of the whole parameters, by name, in the same order everywhere.
        applied_steps: optimiser steps that changed the weights, AdamW's own count.
    """

    model: nn.Module
    optimiser: torch.optim.Optimizer

    def __init__(self, model: nn.Module, config: RunConfig, mesh: Mesh, replica: int) -> None:
        self.mesh = mesh
        self.replica = replica
        self.shapes = {name: p.shape for name, p in model.named_parameters()}
        self.applied_steps = 0
        self._accumulation, self._micro_batches = config.accumulation, 0
        self._ema_decay = config.ema_decay

    def backward(self, loss_sum: Tensor, count: Tensor) -> None:
        """Add the gradients of one micro-batch, ``config.accumulation`` of which make a step.

        Args:
            loss_sum: scalar, squared error summed over own scored voxels.
            count: scored voxels of the whole step, over all processes and micro-batches (``Mesh.total`` of
                ``count_scored``); 0 gives gradients of 0.
        """
        # the loss is a mean over the step; gradients get averaged over the world, where a sum is meant
        self._micro_batches += 1
        self._backward(loss_sum * self.mesh.world / count.clamp(min=1), self._micro_batches == self._accumulation)

    def step(self, learning_rate: float) -> float:
        """Reduce, clip and apply the gathered gradients; the global L2 norm before clipping.

        When the norm is not finite nothing is applied, in any process, and the gradients are dropped.
        """
        if self._micro_batches != self._accumulation:
            raise RuntimeError(f"a step after {self._micro_batches} micro-batches; expected {self._accumulation}")
        self._micro_batches = 0
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate
        norm = self._reduce_and_apply()
        if math.isfinite(norm):
            self.applied_steps += 1
            self._average_weights()
        return norm

    @torch.no_grad()
    def gather(self, name: str, owner: int) -> ParameterState | None:
        """The whole state of parameter ``name`` in process ``owner``, None in all others. Collective."""
        keys, own, shape = list(self._fragments[name].parts), self._fragments[name], self.shapes[name]
        holders = self._replica_of(owner)
        if self.mesh.rank not in holders:
            return None
        sent = torch.stack(list(own.parts.values()))
        if self.mesh.rank != owner:
            if sent.numel():
                dist.send(sent, owner)
            return None
        whole = sent.new_empty(len(keys), shape.numel())
        for rank, (start, size) in zip(holders, self._extents[name], strict=True):
            part = sent if rank == owner else sent.new_empty(len(keys), size)
            if size and rank != owner:
                dist.recv(part, rank)
            whole[:, start : start + size] = part
        return ParameterState(**{key: each.view(shape).cpu() for key, each in zip(keys, whole, strict=True)})

    @torch.no_grad()
    def scatter(self, name: str, owner: int, state: ParameterState | None) -> None:
        """Set parameter ``name`` everywhere to the ``state`` that ``owner`` gives; others give None. Collective.

        A run that keeps an average of the weights begins it at the weight where the state has none. Call
        ``finish_load`` after the last parameter.
        """
        own = self._fragments[name]
        received = torch.stack(list(own.parts.values()))
        holders = self._replica_of(owner)
        if self.mesh.rank == owner:
            assert state is not None
            whole = self._flat(state, own)
            for rank, (start, size) in zip(holders, self._extents[name], strict=True):
                part = whole[:, start : start + size].contiguous()
                if rank == owner:
                    received = part
                elif size:
                    dist.send(part, rank)
        elif self.mesh.rank in holders and received.numel():
            dist.recv(received, owner)
        if self.replica < self.mesh.world and received.numel():
            dist.broadcast(received, holders[self.mesh.rank % self.replica], group=self._peers)
        for part, value in zip(own.parts.values(), received, strict=True):
            part.copy_(value)

    def finish_load(self, applied_steps: int) -> None:
        """Go on from the states that were scattered, which had seen ``applied_steps`` optimiser steps. Collective."""
        self._publish()
        self.applied_steps = applied_steps
        for moments in self.optimiser.state.values():
            moments["step"].fill_(applied_steps)

    @torch.no_grad()
    def _average_weights(self) -> None:
        if self._ema_decay is not None:
            held = [each.parts for each in self._fragments.values() if each.parts["weight"].numel()]
            torch._foreach_lerp_(
                [parts["ema"] for parts in held], [parts["weight"] for parts in held], 1 - self._ema_decay
            )

    def _replica_of(self, rank: int) -> range:
        """The processes that hold, together with ``rank``, everything once."""
        first = rank - rank % self.replica
        return range(first, first + self.replica)

    def _flat(self, state: ParameterState, own: Fragment) -> Tensor:
        like = own.parts["weight"]
        values = {key: getattr(state, key) for key in own.parts}
        if values.get("ema", state.weight) is None:
            values["ema"] = state.weight
        return torch.stack([value.flatten() for value in values.values()]).to(like.device, like.dtype)

    def _hold(self, fragments: dict[str, Fragment]) -> None:
        """Keep what this process has of each parameter, and learn what the others have. Collective."""
        self._fragments = fragments
        if self._ema_decay is not None:
            for each in fragments.values():
                each.parts["ema"] = each.parts["weight"].detach().clone()
        own = [(each.start, each.parts["weight"].numel()) for each in fragments.values()]
        table = torch.zeros(self.mesh.world, len(own), 2, dtype=torch.int64)
        table[self.mesh.rank] = torch.tensor(own)
        extents = self.mesh.total(table)[: self.replica].tolist()  # all replicas are cut alike
        self._extents = {name: [tuple(each[i]) for each in extents] for i, name in enumerate(fragments)}
        groups = self.mesh.world // self.replica
        if 1 < self.replica < self.mesh.world:
            places = [[group * self.replica + place for group in range(groups)] for place in range(self.replica)]
            self._peers, _ = dist.new_subgroups_by_enumeration(places)  # type: ignore[no-untyped-call]
        else:
            self._peers = dist.group.WORLD

    @abstractmethod
    def _backward(self, loss: Tensor, last: bool) -> None: ...

    @abstractmethod
    def _reduce_and_apply(self) -> float: ...

    @abstractmethod
    def _publish(self) -> None:
        """Copy full-precision weights to the model that computes."""


def adamw(parameters: Mapping[str, Tensor], config: RunConfig) -> torch.optim.AdamW:
    """Fused AdamW that decays matrices only, not biases, norms and learned tokens."""
    matrices = {name for name, p in parameters.items() if p.ndim > 1 and name.endswith("weight")}
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in parameters.items() if name in matrices], "weight_decay": config.weight_decay},
        {"params": [p for name, p in parameters.items() if name not in matrices], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)


def prime(optimiser: torch.optim.Optimizer, tensors: Iterable[Tensor]) -> None:
    """Give AdamW the state that its first step would make, so that it can be read and set before."""
    for tensor in tensors:
        moments = {key: torch.zeros_like(tensor, requires_grad=False) for key in MOMENTS}
        optimiser.state[tensor] = {"step": torch.zeros((), device=tensor.device), **moments}
