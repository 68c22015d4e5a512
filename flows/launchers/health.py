"""Whether the nodes of a job can train: one of these for each process to come, before the first step.

Slurm starts them (``slurm.sh.j2``). A node is bad that has too little scratch, too few GPUs, a GPU whose memory is in
use, or GPUs that cannot add up a number between them; why is written to the file ``--mark``.

Exit codes: 0 all is well; 1 this node is bad; 3 another one is, or did not come.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

PEER_FAILED = 3
_BAD = 1
_SCRATCH_GIB = 1.0
_MEET_SECONDS = 300.0  # until every process has loaded torch, from a cold shared file system too
_REDUCE_SECONDS = 120.0
_LEAVE_SECONDS = 10.0
_NUMBERS = 2**20


def main(arguments: list[str] | None = None) -> int:
    """Check this process's part of its node, then all nodes together; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m flows.launchers.health", description="Check this node.")
    parser.add_argument("--mark", type=Path, required=True, help="file that says why this node is bad")
    parser.add_argument("--scratch", required=True, help="folder on this node")
    parser.add_argument("--gpu-memory-gib", type=float, help="free on this process's GPU; without it no GPU is used")
    given = parser.parse_args(arguments)
    problem = scratch_problem(given.scratch)
    if given.gpu_memory_gib and not problem:
        problem = gpu_problem(int(os.environ["SLURM_LOCALID"]), given.gpu_memory_gib)
    if problem:
        given.mark.write_text(problem + "\n")
    return _together(problem, given.mark, use_gpus=given.gpu_memory_gib is not None)


def scratch_problem(folder: str) -> str:
    """Why ``folder`` is no scratch space; empty when it is."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(bytes(2**20))
            file.flush()
        free = shutil.disk_usage(folder).free / 2**30
    except OSError as error:
        return f"scratch {folder} cannot be written: {error.strerror}"
    return "" if free >= _SCRATCH_GIB else f"scratch {folder} has {free:.2f} GiB free, expected {_SCRATCH_GIB:g}"


def gpu_problem(index: int, memory_gib: float) -> str:
    """Why GPU ``index`` of this node cannot train; empty when it can."""
    import torch

    if index >= torch.cuda.device_count():
        return f"{torch.cuda.device_count()} GPUs are visible, expected at least {index + 1}"
    try:
        free = torch.cuda.mem_get_info(index)[0] / 2**30
    except RuntimeError as error:
        return f"GPU {index}: {str(error).splitlines()[0]}"
    return "" if free >= memory_gib else f"GPU {index} has {free:.1f} GiB free, expected {memory_gib:g}"


def _together(problem: str, mark: Path, *, use_gpus: bool) -> int:
    """Meet, hear whether every node is well, and add up a number: on each node, then over all."""
    import torch
    import torch.distributed as dist

    rank, world, local = (int(os.environ[f"SLURM_{name}"]) for name in ("PROCID", "NTASKS", "LOCALID"))
    device = torch.device("cuda", local) if use_gpus else torch.device("cpu")
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    limit = dt.timedelta(seconds=_MEET_SECONDS)
    try:
        store = dist.TCPStore(address, port, world, rank == 0, limit, wait_for_workers=False)  # type: ignore[attr-defined]
        store.set(f"health/{rank}", problem or "well")
        others = [store.get(f"health/{each}").decode() for each in range(world)]
    except dist.DistError as error:
        print(f"process {rank}: not every process came to {address}:{port} in {_MEET_SECONDS:g} s: {error}")
        return _BAD if problem else PEER_FAILED
    if any(each != "well" for each in others):
        _outlive_readers(store, rank, world)
        return _BAD if problem else PEER_FAILED
    if use_gpus:
        with _limited(_BAD, f"GPU {local} cannot be used", mark):
            torch.cuda.set_device(device)
    with _limited(PEER_FAILED, f"process {rank}: the nodes do not come together"):  # each waits for all others
        dist.init_process_group("nccl" if use_gpus else "gloo", store=store, rank=rank, world_size=world)
        on_node, _ = dist.new_subgroups(int(os.environ["SLURM_NTASKS_PER_NODE"]))  # type: ignore[no-untyped-call]
    with _limited(_BAD, "its processes cannot add up a number between them", mark):
        _add_up(torch.ones(_NUMBERS, device=device), on_node)
    with _limited(PEER_FAILED, f"process {rank}: the nodes cannot add up a number between them"):
        _add_up(torch.ones(_NUMBERS, device=device), dist.group.WORLD)
        dist.destroy_process_group()
    return 0


def _add_up(numbers: torch.Tensor, group: dist.ProcessGroup | None) -> None:
    import torch.distributed as dist

    dist.all_reduce(numbers, group=group)
    total, expected = float(numbers.sum()), float(_NUMBERS * dist.get_world_size(group))
    if total != expected:
        raise RuntimeError(f"they make {total:g} of {expected:g}")


@contextmanager
def _limited(code: int, problem: str, mark: Path | None = None) -> Iterator[None]:
    """End this process with ``code`` when the block fails or hangs."""

    def end(how: str) -> None:
        print(f"{problem}: {how}", flush=True)
        if mark:
            mark.write_text(f"{problem}: {how}\n")
        os._exit(code)  # past a collective that does not end

    timer = threading.Timer(_REDUCE_SECONDS, end, [f"not in {_REDUCE_SECONDS:g} s"])
    timer.start()
    try:
        yield
    except RuntimeError as error:
        end(str(error).splitlines()[0])
    finally:
        timer.cancel()


def _outlive_readers(store: Any, rank: int, world: int) -> None:
    """The store lives in process 0, which must not end before the others have read it."""
    left = store.add("health/left", 1)
    deadline = time.monotonic() + _LEAVE_SECONDS
    while rank == 0 and left < world and time.monotonic() < deadline:
        time.sleep(0.05)
        left = store.add("health/left", 0)


if __name__ == "__main__":
    sys.exit(main())
