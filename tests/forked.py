"""Training processes as torchrun starts them, but forked from one that has imported everything: a start takes no time.

``Moment`` names where a process can kill itself with SIGKILL.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ingestion.lake import Lake
from seismic_model import train
from seismic_model.config import RunConfig
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies import import_deepspeed
from seismic_model.training import loop as _  # noqa: F401 what training imports late

Moment = Literal[
    "any time", "before an upload", "in an upload", "before the manifest", "after the manifest", "in the clean-up"
]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


@dataclass(frozen=True)
class Death:
    """Of one process, the ``nth`` time it comes to a moment; "any time" is after so many sums over all processes."""

    rank: int
    moment: Moment
    nth: int


@dataclass
class Job:
    """The processes of one training; what they log is in ``log``."""

    ranks: list[ForkServerProcess]
    log: Path

    def wait(self, seconds: float = 240) -> list[int | None]:
        """Exit codes, minus the number of the signal where one ended it; None for what still runs."""
        deadline = time.monotonic() + seconds
        for rank in self.ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        return [rank.exitcode for rank in self.ranks]

    def wait_for_one(self, seconds: float = 240) -> None:
        """Until the first of them has ended."""
        assert multiprocessing.connection.wait([rank.sentinel for rank in self.ranks], seconds), self.log.read_text()

    def running(self) -> bool:
        return all(rank.exitcode is None for rank in self.ranks)

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to one of them."""
        pid = self.ranks[rank].pid
        assert pid is not None
        os.kill(pid, number)

    def kill(self) -> None:
        """All that still run, and see them gone."""
        for rank in self.ranks:
            rank.kill()
        self.wait()


@contextmanager
def training(config: RunConfig, world: int, log: Path, death: Death | None = None) -> Iterator[Job]:
    """Training in ``world`` processes; none of them outlives the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(world)}
    address["LOCAL_WORLD_SIZE"] = "1" if world % 2 else "2"  # as if there were several nodes
    shared = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "OMP_"))} | address
    ranks = [
        _CONTEXT.Process(target=_rank, args=(config, shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, log, death))
        for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    job = Job(ranks, log)
    try:
        yield job
    finally:
        job.kill()


def finish(config: RunConfig, world: int, log: Path) -> None:
    """Train to the end."""
    with training(config, world, log) as job:
        assert job.wait() == [0] * world, log.read_text()


def _rank(config: RunConfig, environment: dict[str, str], log: Path, death: Death | None) -> None:
    os.environ.update(environment)
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    torch.set_num_threads(1)
    if death and death.rank == int(environment["RANK"]):
        _arm(death)
    sys.exit(train.main(["--config", f"{config.lake}/{config.key}"]))


def _arm(death: Death) -> None:
    """Have this process die as ``death`` says."""
    times = 0

    def due(moment: Moment) -> bool:
        nonlocal times
        times += death.moment == moment
        return death.moment == moment and times == death.nth

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    write, create, delete, total = Lake.write, Lake.create, Lake.delete, Mesh.total
    draw, before = random.Random(death.nth), time.monotonic()

    def dying_write(lake: Lake, key: str, data: object) -> None:
        if key.endswith(".safetensors"):
            if due("before an upload"):
                die()
            if due("in an upload"):
                threading.Timer(draw.uniform(0, 0.02), die).start()
        write(lake, key, data)

    def dying_create(lake: Lake, key: str, data: bytes) -> bool:
        manifest = key.endswith("/manifest.json")
        if manifest and due("before the manifest"):
            die()
        created = create(lake, key, data)
        if manifest and due("after the manifest"):
            die()
        return created

    def dying_delete(lake: Lake, keys: list[str]) -> None:
        for key in keys:
            if "/checkpoints/" in key and due("in the clean-up"):
                die()
            delete(lake, [key])

    def dying_total(mesh: Mesh, value: Tensor) -> Tensor:
        nonlocal before
        if due("any time"):
            threading.Timer(draw.uniform(0, time.monotonic() - before), die).start()
        before = time.monotonic()
        return total(mesh, value)

    patched = {"write": dying_write, "create": dying_create, "delete": dying_delete}
    for name, method in patched.items():
        setattr(Lake, name, method)
    Mesh.total = dying_total


import_deepspeed(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
torch.optim.AdamW([torch.zeros(1)])  # imports what it needs
