"""Plain data parallelism: every process holds everything, gradients are summed by all-reduce."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seismic_model.config import RunConfig
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies.base import DTYPES, MOMENTS, Fragment, Strategy, adamw, prime


class AllReduce(Strategy):
    """Gradients are summed in float32 (float64) in one all-reduce a step."""

    def __init__(self, model: nn.Module, config: RunConfig, mesh: Mesh) -> None:
        super().__init__(model, mesh, replica=1)
        self.model = model
        self.clip = config.gradient_clip
        self.parameters = dict(model.named_parameters())
        accurate = torch.promote_types(DTYPES[config.precision], torch.float32)
        # the model's own tensors, or accurate copies of them in a bfloat16 run
        self.masters = {name: p.detach().to(accurate) for name, p in self.parameters.items()}
        self.gradient = torch.zeros(sum(p.numel() for p in self.masters.values()), dtype=accurate, device=mesh.device)
        self.optimiser = adamw(self.masters, config)
        prime(self.optimiser)
        parts = torch.split(self.gradient, [p.numel() for p in self.masters.values()])
        for master, part in zip(self.masters.values(), parts, strict=True):
            master.grad = part.view_as(master)
        self._hold({name: self._fragment(master) for name, master in self.masters.items()})

    def _fragment(self, master: Tensor) -> Fragment:
        moments = {key: self.optimiser.state[master][key].view(-1) for key in MOMENTS}
        return Fragment(0, {"weight": master.view(-1), **moments})

    def _backward(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, list(self.parameters.values()))
        self.gradient += torch.cat([g.reshape(-1) for g in gradients])

    @torch.no_grad()
    def _reduce_and_apply(self) -> float:
        dist.all_reduce(self.gradient)
        self.gradient /= self.mesh.world
        norm = float(torch.linalg.vector_norm(self.gradient, dtype=torch.float64))
        if math.isfinite(norm):
            self.gradient *= min(1.0, self.clip / (norm + 1e-6))
            self.optimiser.step()
            self._publish()
        self.gradient.zero_()
        return norm

    @torch.no_grad()
    def _publish(self) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(self.masters[name])
