"""What the strategies share whose optimiser works on tensors of ours: AdamW, norm, clipping, the finite check."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from seismic_model.config import RunConfig
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies.base import MOMENTS, Fragment, Strategy, adamw, prime


class LocalAdamW(Strategy):
    """AdamW over what this process holds of the full-precision weights."""

    def __init__(self, model: nn.Module, config: RunConfig, mesh: Mesh, replica: int) -> None:
        super().__init__(model, config, mesh, replica)
        self.model = model
        self._config = config

    def _train(self, masters: Mapping[str, Tensor], starts: Mapping[str, int]) -> None:
        """Let AdamW change ``masters``, parts of the parameters that begin at ``starts`` when flattened. Collective."""
        self.optimiser = adamw(masters, self._config)
        prime(self.optimiser, masters.values())
        fragments = {}
        for name, master in masters.items():
            moments = {key: self.optimiser.state[master][key].view(-1) for key in MOMENTS}
            fragments[name] = Fragment(starts[name], {"weight": master.view(-1), **moments})
        self._hold(fragments)

    @torch.no_grad()
    def _reduce_and_apply(self) -> float:
        gradients = self._reduce()
        # a float32 norm over a million values is off by 1e-4
        norms = [torch.linalg.vector_norm(each, dtype=torch.float64) for each in gradients]
        squared = torch.stack(norms).square().sum()
        if self.replica > 1:
            squared = self.mesh.total(squared) * self.replica / self.mesh.world
        norm = math.sqrt(squared)
        if math.isfinite(norm):
            torch._foreach_mul_(gradients, min(1.0, self._config.gradient_clip / (norm + 1e-6)))
            self.optimiser.step()
            self._publish()
        self._drop_gradients()
        return norm

    @abstractmethod
    def _reduce(self) -> list[Tensor]:
        """The world's mean gradients of what this process holds, which its masters have as ``grad``."""

    @abstractmethod
    def _drop_gradients(self) -> None: ...
