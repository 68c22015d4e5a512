"""How much a step of a run computes, and how much its processes could compute and hold."""

from __future__ import annotations

import contextlib
import math
import resource
import sys
import time
from dataclasses import dataclass

import torch

from seismic_model.config import RunConfig
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies import DTYPES
from seismic_model.planner import flops_per_sample
from seismic_model.planner.assumptions import AssumptionsError, read_machine

_EDGE = {"cpu": 512, "cuda": 8192}  # of the matrices that are multiplied to see what a device reaches
_TRIALS = 5


@dataclass(frozen=True)
class StepSize:
    """What all processes together do in one optimiser step, and the most they could do in a second."""

    voxels: int  # of whole crops
    tokens: int  # of whole crops, hidden ones included
    flops: int  # forward and backward, nothing counted twice
    peak_flops: float  # a second

    @classmethod
    def of(cls, config: RunConfig, mesh: Mesh) -> StepSize:
        """Of a run on these processes. Collective."""
        flops = flops_per_sample(config.model, config.window, config.keep_ratio, config.decode_share)
        voxels = config.batch * math.prod(config.window)
        peak = torch.tensor(peak_flops(mesh.device, config.precision), dtype=torch.float64)
        return cls(voxels, voxels // config.model.patch_voxels, config.batch * flops, float(mesh.total(peak)))


def peak_flops(device: torch.device, precision: str) -> float:
    """Operations a second that the data sheet of a GPU promises, where the planner's assumptions have it.

    Of another device, what it reaches here in a large matrix product, the best of a few.
    """
    if device.type == "cuda":
        for word in torch.cuda.get_device_name(device).lower().split():
            with contextlib.suppress(AssumptionsError):
                return read_machine(word).peak(precision)
    edge = _EDGE[device.type]
    a_NN, b_NN = (torch.ones(edge, edge, dtype=DTYPES[precision], device=device) for _ in range(2))
    return max(2 * edge**3 / _seconds_of_product(a_NN, b_NN) for _ in range(_TRIALS))


def _seconds_of_product(a_NN: torch.Tensor, b_NN: torch.Tensor) -> float:
    began = time.perf_counter()
    product_NN = a_NN @ b_NN
    float(product_NN[0, 0])  # waits for it
    return time.perf_counter() - began


def take_peak_memory(device: torch.device) -> int:
    """Bytes: on CUDA the most that tensors took since this was last asked, else the most the process ever held."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
