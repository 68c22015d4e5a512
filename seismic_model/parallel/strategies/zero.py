"""DeepSpeed ZeRO: gradients and optimiser are partitioned over all processes, reduced in float32."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seismic_model.config import RunConfig
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies.base import MOMENTS, Fragment, Strategy, adamw, prime

LARGEST_BUCKET = 500_000_000  # gradients, DeepSpeed's own choice


class Zero(Strategy):
    """ZeRO under DeepSpeed's engine: stage 1 shards the optimiser, 2 the gradients too, 3 the weights too."""

    def __init__(self, model: nn.Module, config: RunConfig, mesh: Mesh) -> None:
        super().__init__(model, config, mesh, replica=mesh.world)
        parameters = dict(model.named_parameters())
        self._stage = int(config.strategy.removeprefix("zero"))
        deepspeed = import_deepspeed(mesh.device)
        deepspeed.init_distributed(dist_backend=dist.get_backend(), verbose=False)
        self.engine, self.zero, _, _ = deepspeed.initialize(
            model=model, optimizer=adamw(parameters, config), config=_deepspeed_config(config, self._stage, parameters)
        )
        self.model = self.engine
        self.optimiser = self.zero.optimizer
        # gives access to moments by parameter before the first step
        if self._stage == 3:
            prime(self.optimiser, self.zero.fp32_partitioned_groups_flat)
        else:
            prime(self.optimiser, (p for group in self.optimiser.param_groups for p in group["params"]))
            self.zero._lazy_init_hp_params_optimizer_state()
        fragment = self._fragment_of_stage_3 if self._stage == 3 else self._fragment
        self._hold({name: fragment(parameter) for name, parameter in parameters.items()})

    def _fragment(self, parameter: Any) -> Fragment:
        held = parameter._hp_mapping
        if held is None:
            return Fragment(0, {key: torch.empty(0, device=self.mesh.device) for key in ("weight", *MOMENTS)})
        moments = {key: held.get_hp_fragment(key) for key in MOMENTS}
        return Fragment(held.lp_fragment_address.start, {"weight": held.get_hp_fragment(), **moments})

    def _fragment_of_stage_3(self, parameter: Any) -> Fragment:
        size = parameter.partition_numel()  # the same in all processes: the last is padded
        start, end = (min(place * size, parameter.ds_numel) for place in (self.mesh.rank, self.mesh.rank + 1))
        parts = {key: self.zero.get_local_fp32_param(parameter, key) for key in MOMENTS}
        parts = {"weight": self.zero.get_local_fp32_param(parameter), **parts}
        return Fragment(start, {key: part[: end - start] for key, part in parts.items()})

    def _backward(self, loss: Tensor, last: bool) -> None:
        self.engine.backward(loss, scale_wrt_gas=False)

    def _reduce_and_apply(self) -> float:
        self.engine.step()
        return float(self.engine.get_global_grad_norm())

    def _publish(self) -> None:
        if self._stage < 3:
            self.zero.update_lp_params()
            return
        self.zero._partition_all_parameters()
        for group in range(len(self.zero.fp16_groups)):
            self.zero._reassign_or_swap_out_partitioned_parameters(group)
        if persistent := self.zero.persistent_parameters:  # small ones, which every process keeps whole
            persistent[0].all_gather(persistent)


def import_deepspeed(device: torch.device) -> Any:
    """DeepSpeed, set up for ``device`` before it looks for one itself."""
    os.environ.setdefault("DS_ACCELERATOR", device.type)  # else it warns
    import deepspeed  # takes seconds, and only this strategy needs it

    # its shared-memory all-reduce is compiled at start: a minute, a C++ compiler, and flags that outlive a kill
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # it calls torch.distributed by names that newer torch renames
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    return deepspeed


def _deepspeed_config(config: RunConfig, stage: int, parameters: dict[str, nn.Parameter]) -> dict[str, Any]:
    numbers = sum(parameter.numel() for parameter in parameters.values())
    return {
        "train_micro_batch_size_per_gpu": 1,  # DeepSpeed only counts samples with it
        "managed_gradient_accumulation": False,  # the loop says when a step ends
        "gradient_clipping": config.gradient_clip,
        # without the second, stage 1 adds the gradients of all micro-batches so far again at each of them
        "bf16": {"enabled": config.precision == "bfloat16", "immediate_grad_update": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
        # room for so many gradients is taken at once, however few there are
        "zero_optimization": {"stage": stage, "reduce_bucket_size": min(numbers, LARGEST_BUCKET)},
        "steps_per_print": None,
    }
