"""Real processes hand arrays over to each other, each its own amount to each."""

from __future__ import annotations

import os
import socket

import numpy as np
import torch.multiprocessing as mp

from seismic_model.parallel.handover import hand_over
from seismic_model.parallel.mesh import open_mesh

RANKS = 3


def values(source: int, target: int) -> np.ndarray:
    """1 to 9 numbers; rank 2 owes rank 0 nothing."""
    return np.arange(3 * source + target + 1, dtype=np.float32) + 100 * source + 10 * target


def owes(source: int, target: int) -> bool:
    return source != target and (source, target) != (2, 0)


def work(rank: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with open_mesh(cp=RANKS) as mesh:
        exchange = hand_over(mesh)
        for _ in range(3):
            outgoing = {other: values(rank, other) for other in range(RANKS) if owes(rank, other)}
            sizes = {other: values(other, rank).size for other in range(RANKS) if owes(other, rank)}
            received = exchange(outgoing, sizes)
            assert received.keys() == sizes.keys()
            for other, found in received.items():
                assert np.array_equal(found, values(other, rank))


def test_every_rank_gets_what_each_other_owes_it() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (port,), nprocs=RANKS)
