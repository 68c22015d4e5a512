"""Processes that want the training lease."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

from ingestion.lake import Lake
from seismic_model.training.lease import FencedError, HeldElsewhereError, acquire


def compete(uri: str, owner: str, start: Barrier, said: Connection) -> None:
    """Try once, when all do."""
    lake = Lake(uri)
    start.wait()
    try:
        said.send(acquire(lake, owner, "here", owner).token)
    except HeldElsewhereError as error:
        said.send(error.holder.owner)


def hold(uri: str, said: Connection) -> None:
    """Hold it and write, until somebody else does."""
    from seismic_model.training.fencing import FencedLake  # torch, which the others do not need

    lease = acquire(Lake(uri), "paused", "here", "me", ttl=2)
    mine = FencedLake(Lake(uri), lease)
    said.send("holds")
    while True:
        try:
            lease.renew()
            mine.write("runs/figures", b"paused")
        except FencedError as error:
            said.send(str(error))
            return
        time.sleep(0.2)
