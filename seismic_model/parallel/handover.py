"""Which part of a crop each rank of a group needs, and how they give each other what they have read of it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from seismic_model.data.sharing import HandOver, SlabGroup
from seismic_model.data.store import FloatArray
from seismic_model.model.masking import TokenLayout
from seismic_model.parallel.mesh import Mesh


def slab_group(layout: TokenLayout, mesh: Mesh) -> SlabGroup:
    """The ranks that share a crop with this one, and the inlines that hold the tokens of each."""
    slabs = tuple(layout.inline_slab(layout.shard(rank, mesh.cp)) for rank in range(mesh.cp))
    return SlabGroup(slabs, mesh.cp_rank, hand_over(mesh))


def hand_over(mesh: Mesh) -> HandOver:
    """The exchange among the ranks of the context-parallel group, on the host, so that a GPU's work goes on."""

    def exchange(outgoing: Mapping[int, FloatArray], sizes: Mapping[int, int]) -> dict[int, FloatArray]:
        received = {rank: torch.empty(size, dtype=torch.float32) for rank, size in sizes.items()}
        sent = {rank: torch.from_numpy(values) for rank, values in outgoing.items()}
        hops = [
            dist.P2POp(operation, tensor, dist.get_global_rank(mesh.host_group, rank), mesh.host_group)
            for operation, tensors in ((dist.isend, sent), (dist.irecv, received))
            for rank, tensor in tensors.items()
        ]
        for work in dist.batch_isend_irecv(hops):
            work.wait()
        return {rank: tensor.numpy() for rank, tensor in received.items()}

    return exchange
