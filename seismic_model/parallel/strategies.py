"""How gradients, optimiser and weights are spread over the processes: plain all-reduce, or DeepSpeed ZeRO-2.

Both reduce over the whole world and know nothing of context parallelism: the loss carries all scaling. Both
give and take weights and moments by parameter name in full precision, so that a checkpoint belongs to neither.
"""

from __future__ import annotations

import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
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


class Strategy(ABC):
    """Trains one model with AdamW; every process calls the same methods in the same order.

    Attributes:
        model: what to call for the forward pass.
        applied_steps: optimiser steps that changed the weights, AdamW's own count.
    """

    model: nn.Module
    parameters: dict[str, Tensor]
    optimiser: torch.optim.Optimizer

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.applied_steps = 0

    def backward(self, loss_sum: Tensor, count: Tensor) -> None:
        """Add the gradients of one micro-batch.

        Args:
            loss_sum: scalar, squared error summed over own scored voxels.
            count: scored voxels of the whole step, over all processes and micro-batches (``Mesh.total`` of
                ``count_scored``); 0 gives gradients of 0.
        """
        # the loss is a mean over the step; gradients get averaged over the world, where a sum is meant
        self._backward(loss_sum * self.mesh.world / count.clamp(min=1))

    def step(self, learning_rate: float) -> float:
        """Reduce, clip and apply the gathered gradients; the global L2 norm before clipping.

        When the norm is not finite nothing is applied, in any process, and the gradients are dropped.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate
        norm = self._reduce_and_apply()
        self.applied_steps += math.isfinite(norm)
        return norm

    def states(self) -> Iterator[tuple[str, ParameterState]]:
        """Name and state of each parameter, in the same order everywhere. Collective at each item."""
        for name in self.parameters:
            yield name, self._state(name)

    def load(self, states: Mapping[str, ParameterState], applied_steps: int) -> None:
        """Set all weights and moments. Raises ``KeyError`` for a missing name, ``ValueError`` for a wrong shape."""
        for name, parameter in self.parameters.items():
            if name not in states:
                raise KeyError(f"the checkpoint has no parameter {name!r}; was it written by another model?")
            found, expected = tuple(states[name].weight.shape), tuple(parameter.shape)
            if found != expected:
                raise ValueError(f"{name!r} has shape {found} in the checkpoint; the model expects {expected}")
            self._set(name, states[name])
        self._publish()
        self.applied_steps = applied_steps
        for moments in self.optimiser.state.values():
            moments["step"].fill_(applied_steps)

    @abstractmethod
    def _backward(self, loss: Tensor) -> None: ...

    @abstractmethod
    def _reduce_and_apply(self) -> float: ...

    @abstractmethod
    def _state(self, name: str) -> ParameterState: ...

    @abstractmethod
    def _set(self, name: str, state: ParameterState) -> None: ...

    @abstractmethod
    def _publish(self) -> None:
        """Copy full-precision weights to the model that computes."""


def build(model: nn.Module, config: RunConfig, mesh: Mesh) -> Strategy:
    """The strategy that ``config.strategy`` names, around ``model`` moved to this process's device and precision."""
    strategies = {"ddp": AllReduce, "zero2": Zero2}
    if config.strategy not in strategies:
        raise ValueError(f"strategy {config.strategy!r} is not built yet; expected one of {sorted(strategies)}")
    return strategies[config.strategy](model.to(mesh.device, DTYPES[config.precision]), config, mesh)


class AllReduce(Strategy):
    """Every process holds everything; gradients are summed in float32 (float64) in one all-reduce a step."""

    def __init__(self, model: nn.Module, config: RunConfig, mesh: Mesh) -> None:
        super().__init__(mesh)
        self.model = model
        self.clip = config.gradient_clip
        self.parameters = dict(model.named_parameters())
        accurate = torch.promote_types(DTYPES[config.precision], torch.float32)
        # the model's own tensors, or accurate copies of them in a bfloat16 run
        self.masters = {name: p.detach().to(accurate) for name, p in self.parameters.items()}
        self.gradient = torch.zeros(sum(p.numel() for p in self.masters.values()), dtype=accurate, device=mesh.device)
        self.optimiser = _adamw(self.masters, config)
        _prime(self.optimiser)
        parts = torch.split(self.gradient, [p.numel() for p in self.masters.values()])
        for master, part in zip(self.masters.values(), parts, strict=True):
            master.grad = part.view_as(master)

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

    def _state(self, name: str) -> ParameterState:
        master = self.masters[name]
        moments = (self.optimiser.state[master][key] for key in MOMENTS)
        return ParameterState(*(t.clone().cpu() for t in (master, *moments)))

    def _set(self, name: str, state: ParameterState) -> None:
        master = self.masters[name]
        master.copy_(state.weight)
        for key in MOMENTS:
            self.optimiser.state[master][key].copy_(getattr(state, key))

    @torch.no_grad()
    def _publish(self) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(self.masters[name])


class Zero2(Strategy):
    """DeepSpeed ZeRO stage 2: gradients and optimiser are partitioned over all processes, reduced in float32."""

    def __init__(self, model: nn.Module, config: RunConfig, mesh: Mesh) -> None:
        super().__init__(mesh)
        self.parameters = dict(model.named_parameters())
        deepspeed = import_deepspeed(mesh.device)
        deepspeed.init_distributed(dist_backend=dist.get_backend(), verbose=False)
        self.engine, self.zero, _, _ = deepspeed.initialize(
            model=model, optimizer=_adamw(self.parameters, config), config=_deepspeed_config(config)
        )
        self.model = self.engine
        self.optimiser = self.zero.optimizer
        _prime(self.optimiser)
        self.zero._lazy_init_hp_params_optimizer_state()  # gives access to moments by parameter before the first step

    def _backward(self, loss: Tensor) -> None:
        self.engine.backward(loss, scale_wrt_gas=False)

    def _reduce_and_apply(self) -> float:
        self.engine.step()
        return float(self.engine.get_global_grad_norm())

    def _state(self, name: str) -> ParameterState:
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        parameter = self.parameters[name]
        moments = (safe_get_full_optimizer_state(parameter, key) for key in MOMENTS)
        return ParameterState(*(t.cpu() for t in (safe_get_full_fp32_param(parameter), *moments)))

    def _set(self, name: str, state: ParameterState) -> None:
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        parameter = self.parameters[name]
        safe_set_full_fp32_param(parameter, state.weight)
        for key in MOMENTS:
            safe_set_full_optimizer_state(parameter, getattr(state, key), key)

    def _publish(self) -> None:
        self.zero.update_lp_params()


def import_deepspeed(device: torch.device) -> Any:
    """DeepSpeed, set up for ``device`` before it looks for one itself."""
    os.environ.setdefault("DS_ACCELERATOR", device.type)  # else it warns
    import deepspeed  # takes seconds, and only this strategy needs it

    # its shared-memory all-reduce is compiled at start: a minute, a C++ compiler, and flags that outlive a kill
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # it calls torch.distributed by names that newer torch renames
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    return deepspeed


def _deepspeed_config(config: RunConfig) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,  # DeepSpeed only counts samples with it
        "managed_gradient_accumulation": False,  # the loop says when a step ends
        "gradient_clipping": config.gradient_clip,
        "bf16": {"enabled": config.precision == "bfloat16"},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
        "zero_optimization": {"stage": 2},
        "steps_per_print": None,
    }


def _adamw(parameters: Mapping[str, Tensor], config: RunConfig) -> torch.optim.AdamW:
    """AdamW that decays matrices only, not biases, norms and the mask token."""
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters.values() if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters.values() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas)


def _prime(optimiser: torch.optim.Optimizer) -> None:
    """Give AdamW the state that its first step would make, so that it can be read and set before."""
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            moments = {key: torch.zeros_like(parameter, requires_grad=False) for key in MOMENTS}
            optimiser.state[parameter] = {"step": torch.tensor(0.0), **moments}
