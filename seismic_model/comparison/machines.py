"""Machines that measure together: they begin each strategy side by side, and end it when any of them fails.

Machine 0 keeps a store that the others reach. Into it each writes how its part of a launch ended, and all wait for the
last one before the next. torchrun alone would not do: a machine whose processes fail leaves the others waiting for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

_PATIENCE = timedelta(minutes=10)  # until all machines have been given the command
_FAREWELL = 60  # seconds that machine 0 waits for the others to read what was told last


@dataclass(frozen=True)
class Machines:
    """``count`` machines of which this is ``number``; ports from ``port`` on are free on machine 0, ``head``."""

    store: Store
    number: int
    count: int
    head: str
    port: int

    def torchrun(self, turn: int) -> list[str]:
        """What makes torchrun find the others in launch ``turn``: a port of its own, so that no other disturbs it."""
        if self.count == 1:
            return ["--standalone"]
        meeting = [f"--master-addr={self.head}", f"--master-port={self.port + 1 + turn}"]
        return [f"--nnodes={self.count}", f"--node-rank={self.number}", *meeting]

    def tell(self, turn: int, fault: str) -> None:
        """Tell the others how a launch ended here; "" without a fault."""
        said = f"machine {self.number}: {fault}" if fault and self.count > 1 else fault
        self.store.set(_key(turn, self.number), said)

    def faults(self, turn: int) -> list[str]:
        """What was told of a launch so far, save of those that ended well."""
        keys = [_key(turn, number) for number in range(self.count)]
        told = [self.store.get(key).decode() for key in keys if self.store.check([key])]
        return [fault for fault in told if fault]

    def all_told(self, turn: int) -> bool:
        """Whether the launch has ended everywhere."""
        return bool(self.store.check([_key(turn, number) for number in range(self.count)]))


@contextmanager
def meet(number: int, count: int, head: str, port: int) -> Iterator[Machines]:
    """Meet the others; machine 0 leaves last. Raises ``ConnectionError`` when they do not come."""
    if count == 1:
        yield Machines(dist.HashStore(), number, count, head, port)  # type: ignore[attr-defined]
        return
    try:
        # returns when all are here
        store = dist.TCPStore(head, port, count, is_master=number == 0, timeout=_PATIENCE)  # type: ignore[attr-defined]
    except (dist.DistError, RuntimeError) as error:
        raise ConnectionError(
            f"{count} machines did not meet at {head}:{port} within {_PATIENCE}: {error}. Give the same command to "
            f"each, with --machine 0 on {head} and with a port that is free there and open to the others"
        ) from error
    yield Machines(store, number, count, head, port)
    store.set(f"left/{number}", "")
    deadline = time.monotonic() + _FAREWELL
    while number == 0 and not store.check([f"left/{each}" for each in range(count)]) and time.monotonic() < deadline:
        time.sleep(0.1)


def _key(turn: int, number: int) -> str:
    return f"turn/{turn}/{number}"
