"""The training lease in a run: process 0 takes it, every process looks at it before it writes."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import torch
from obstore.exceptions import BaseError

from ingestion.lake import Lake
from seismic_model.parallel.mesh import Mesh
from seismic_model.training.heartbeat import last_sign
from seismic_model.training.lease import PLACE_VARIABLE, TTL_SECONDS, FencedError, HeldElsewhereError, Lease, acquire

_RENEWALS = 6  # in the time that it lasts

logger = logging.getLogger(__name__)


class NotStartedError(Exception):
    """Process 0 did not get the lease; its log says why."""


class FencedLake(Lake):
    """``lake`` as long as nobody has taken over: changes raise ``FencedError`` from then on.

    Between the look and the change lies no more than the one request, so what a process that is stopped just there
    may still do is to finish that: put again a file that is named by its content, commit a manifest that is not there
    yet, or write figures that the successor writes anew.
    """

    def __init__(self, lake: Lake, lease: Lease) -> None:
        super().__init__(lake.uri)
        self._lease = lease

    def write(self, key: str, data: bytes | Path | Iterable[bytes | memoryview]) -> None:
        """As ``Lake.write``. Raises ``FencedError``."""
        self._lease.check()
        super().write(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """As ``Lake.create``. Raises ``FencedError``."""
        self._lease.check()
        return super().create(key, data)

    def delete(self, keys: list[str]) -> None:
        """As ``Lake.delete``. Raises ``FencedError``."""
        self._lease.check()
        super().delete(keys)


@contextmanager
def held(lake: Lake, run: str, mesh: Mesh, ttl: float = TTL_SECONDS) -> Iterator[FencedLake]:
    """The lake to write to while ``run`` holds its training lease. Collective.

    It is renewed until the block ends, or ``run`` has stood still for ``ttl`` seconds: a run that hangs with nobody to
    end it must not keep the next week out for ever.
    Raises ``HeldElsewhereError`` in process 0 and ``NotStartedError`` in the others when another start holds it.
    """
    refusal = None
    token = 0
    if mesh.rank == 0:
        try:
            token = acquire(lake, run, _place(), _this_process(), ttl).token
        except HeldElsewhereError as error:
            refusal = error
    token = int(mesh.total(torch.tensor(token)))
    if refusal:
        raise refusal
    if token == 0:
        raise NotStartedError("process 0 did not get the training lease; its log says who holds it")
    lease = Lease(lake, token)
    with _kept(lease, run, ttl) if mesh.rank == 0 else nullcontext():
        yield FencedLake(lake, lease)


@contextmanager
def _kept(lease: Lease, run: str, ttl: float) -> Iterator[None]:
    """Renew ``lease`` in a thread while ``run`` moves, release it at the end."""
    ended = threading.Event()

    def renew() -> None:
        sign, moved = 0.0, time.monotonic()
        while not ended.wait(ttl / _RENEWALS):
            with _told("renewed"), suppress(FencedError):  # the next write of the run says so
                if (now := last_sign(lease.lake, run)) != sign:
                    sign, moved = now, time.monotonic()
                if time.monotonic() - moved < ttl:
                    lease.renew()

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with _told("released"):
            lease.release()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """A lake that refuses is no fault of the training: the lease lasts for a while, and then expires."""
    try:
        yield
    except BaseError as error:
        logger.warning("the training lease was not %s: %s", what, str(error).splitlines()[0])


def _place() -> str:
    """This machine, for those who start torchrun by hand."""
    return os.environ.get(PLACE_VARIABLE) or f"by hand on {socket.gethostname()}"


def _this_process() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    return f"{f'Slurm job {job}, ' if job else ''}process {os.getpid()} of {socket.gethostname()}"
