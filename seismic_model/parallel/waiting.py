"""How long a process's computing stood still for something else: other processes, or data."""

from __future__ import annotations

import time

import torch

_HELD = 10_000  # ends of waits that nobody asked for, until they are added up


class Waiting:
    """Adds up the time of ``with`` blocks around waits, one at a time.

    On the CPU that is the host's time. On CUDA the host does not stop at ``Work.wait()``, the compute stream does:
    there its time between the two ends of the block is taken (not run yet).

    Attributes:
        finished: waits that came to their end; a process that moves, moves this.
    """

    def __init__(self, device: torch.device) -> None:
        self.finished = 0
        self._seconds = 0.0  # of those that were added up
        self._cuda = device.type == "cuda"
        self._began: list[float | torch.cuda.Event] = []
        self._ended: list[float | torch.cuda.Event] = []

    def __enter__(self) -> None:
        self._began.append(self._now())

    def __exit__(self, *_: object) -> None:
        self._ended.append(self._now())
        self.finished += 1
        if len(self._ended) >= _HELD:
            self._seconds = self.take()

    def take(self) -> float:
        """Seconds since this was last asked."""
        total = sum((_seconds(*span) for span in zip(self._began, self._ended, strict=True)), self._seconds)
        self._began, self._ended, self._seconds = [], [], 0.0
        return total

    def _now(self) -> float | torch.cuda.Event:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def _seconds(began: float | torch.cuda.Event, ended: float | torch.cuda.Event) -> float:
    if isinstance(began, torch.cuda.Event):
        assert isinstance(ended, torch.cuda.Event)
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1000
    assert isinstance(ended, float)
    return ended - began
