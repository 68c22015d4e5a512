"""Where this process stands among all training processes.

World = dp × cp. Ranks that share a crop (context parallelism) are neighbours: rank = dp_rank * cp + cp_rank. Among
those, the ones that exchange heads are the nearest neighbours: cp_rank = ring_rank * ulysses + ulysses_rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from seismic_model.parallel.waiting import Waiting


class MeshError(Exception):
    """The processes cannot be arranged; the message says what was found and expected."""


@dataclass(frozen=True)
class Mesh:
    """This process among ``dp`` groups of ``cp`` ranks, each ``cp / ulysses`` groups of ``ulysses`` ranks."""

    dp: int
    cp: int
    ulysses: int
    dp_rank: int
    cp_rank: int
    host_group: dist.ProcessGroup  # the ranks that share a crop, for what is on the host
    ring_group: dist.ProcessGroup  # cp / ulysses ranks with the same heads, in the order of their tokens
    ulysses_group: dist.ProcessGroup  # ranks that exchange heads, in the order of their tokens
    device: torch.device
    waiting: Waiting  # for hops, all-to-alls and reduces of this process

    @property
    def world(self) -> int:
        """All processes, dp × cp."""
        return self.dp * self.cp

    @property
    def rank(self) -> int:
        """Of this process among all."""
        return self.dp_rank * self.cp + self.cp_rank

    def total(self, value: Tensor) -> Tensor:
        """Sum of ``value`` over all processes, the same everywhere. Collective."""
        total = value.detach().to(self.device, copy=True)
        with self.waiting:
            dist.all_reduce(total)
        return total


@contextmanager
def open_mesh(cp: int, ulysses: int = 1) -> Iterator[Mesh]:
    """Join the processes that torchrun started, in groups of ``cp`` = ring × ``ulysses``; leave them at the end.

    Each process takes the GPU of its local rank with NCCL, or the CPU with gloo where there is none.
    Raises ``MeshError``.
    """
    missing = [name for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") if name not in os.environ]
    if missing:
        raise MeshError(f"{', '.join(missing)} not set; start this program with torchrun")
    world = int(os.environ["WORLD_SIZE"])
    if cp < 1 or world % cp:
        raise MeshError(f"{world} processes cannot form groups of cp={cp}; expected a multiple of cp")
    if ulysses < 1 or cp % ulysses:
        raise MeshError(f"cp={cp} cannot be split into groups of ulysses={ulysses}; expected a divisor of cp")
    device = _device(int(os.environ["LOCAL_RANK"]))
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device)  # else NCCL makes a communicator for each pair that talks
    else:
        dist.init_process_group("gloo")
    try:
        yield arrange(cp, ulysses, device)
    finally:
        dist.destroy_process_group()


def arrange(cp: int, ulysses: int, device: torch.device) -> Mesh:
    """The mesh of the processes that have joined. Collective."""
    dp_rank, cp_rank = divmod(dist.get_rank(), cp)
    firsts = range(0, dist.get_world_size(), cp)
    rings = [[first + turn + near for turn in range(0, cp, ulysses)] for first in firsts for near in range(ulysses)]
    host_group, _ = dist.new_subgroups(group_size=cp, backend="gloo")  # type: ignore[no-untyped-call]
    ring_group, _ = dist.new_subgroups_by_enumeration(rings)  # type: ignore[no-untyped-call]
    ulysses_group, _ = dist.new_subgroups(group_size=ulysses)  # type: ignore[no-untyped-call]
    dist.all_reduce(torch.zeros(1, device=device), group=ring_group)  # NCCL wants all ranks in its first call
    dp = dist.get_world_size() // cp
    waiting = Waiting(device)
    return Mesh(dp, cp, ulysses, dp_rank, cp_rank, host_group, ring_group, ulysses_group, device, waiting)


def _device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise MeshError(f"local rank {local_rank} of {torch.cuda.device_count()} GPUs; start one process per GPU")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
