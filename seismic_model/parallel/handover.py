"""Arrays that ranks which share a crop give each other directly."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from seismic_model.data.sharing import HandOver
from seismic_model.data.store import FloatArray
from seismic_model.parallel.mesh import Mesh


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
