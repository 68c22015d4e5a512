"""A sign on the lake that changes while the run moves and stands still when any of its processes hangs."""

from __future__ import annotations

import json
import logging
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from obstore.exceptions import BaseError

from ingestion.lake import Lake
from seismic_model.config import run_folder
from seismic_model.training.lease import FencedError

if TYPE_CHECKING:
    from seismic_model.parallel.mesh import Mesh  # torch, which those who only look do not need

_SECONDS = 10.0  # between two looks

logger = logging.getLogger(__name__)


def last_sign(lake: Lake, run: str) -> float:
    """When, on the store's clock, ``run`` was seen to move last; 0.0 before the first time."""
    try:
        return lake.head(_key(run)).modified
    except FileNotFoundError:
        return 0.0


class Heartbeat:
    """Process 0 writes ``runs/<run>/heartbeat.json`` in a thread, but only when its main thread has moved since.

    The main thread moves when it enters a phase or step, and whenever a wait for other processes ends. All processes
    meet in every step, save and restore: one that hangs stops the others there, so one of them speaks for all.
    Fields: ``phase`` ("restore", "train", "save"; at the end "ended" or "failed"), ``step`` (done), ``waits`` (ended
    so far) and ``time`` (seconds since the epoch).
    """

    def __init__(self, lake: Lake, run: str, mesh: Mesh, seconds: float = _SECONDS) -> None:
        self._lake, self._key = lake, _key(run)
        self._mesh, self._seconds = mesh, seconds
        self._where: tuple[str, int] = ("restore", 0)
        self._written: tuple[str, int, int] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        if self._mesh.rank == 0:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mesh.rank == 0:
            self._ended.set()
            self._thread.join()
            self._where = ("failed" if error else "ended", self._where[1])
            self._write()

    def enter(self, phase: str, step: int) -> None:
        """The run is now in ``phase``, with ``step`` steps done."""
        self._where = (phase, step)

    def _work(self) -> None:
        while True:
            self._write()
            if self._ended.wait(self._seconds):
                return

    def _write(self) -> None:
        moved = (*self._where, self._mesh.waiting.finished)
        if moved == self._written:
            return
        phase, step, waits = moved
        beat = {"phase": phase, "step": step, "waits": waits, "time": time.time()}
        try:
            self._lake.write(self._key, json.dumps(beat).encode())
            self._written = moved
        except (BaseError, FencedError) as error:
            logger.warning("the lake did not take heartbeat.json: %s", str(error).splitlines()[0])


def _key(run: str) -> str:
    return f"{run_folder(run)}/heartbeat.json"
