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


class Zero(Strategy):
    """ZeRO stage 2 under DeepSpeed's engine."""

    def __init__(self, model: nn.Module, config: RunConfig, mesh: Mesh) -> None:
        super().__init__(model, mesh, replica=mesh.world)
        self.parameters = dict(model.named_parameters())
        deepspeed = import_deepspeed(mesh.device)
        deepspeed.init_distributed(dist_backend=dist.get_backend(), verbose=False)
        self.engine, self.zero, _, _ = deepspeed.initialize(
            model=model, optimizer=adamw(self.parameters, config), config=_deepspeed_config(config)
        )
        self.model = self.engine
        self.optimiser = self.zero.optimizer
        prime(self.optimiser)
        self.zero._lazy_init_hp_params_optimizer_state()  # gives access to moments by parameter before the first step
        self._hold({name: self._fragment(parameter) for name, parameter in self.parameters.items()})

    def _fragment(self, parameter: Any) -> Fragment:
        held = parameter._hp_mapping
        if held is None:
            return Fragment(0, {key: torch.empty(0, device=self.mesh.device) for key in ("weight", *MOMENTS)})
        moments = {key: held.get_hp_fragment(key) for key in MOMENTS}
        return Fragment(held.lp_fragment_address.start, {"weight": held.get_hp_fragment(), **moments})

    def _backward(self, loss: Tensor) -> None:
        self.engine.backward(loss, scale_wrt_gas=False)

    def _reduce_and_apply(self) -> float:
        self.engine.step()
        return float(self.engine.get_global_grad_norm())

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
