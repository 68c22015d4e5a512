"""Two real processes that share each crop (cp=2, ZeRO-2), killed at bad moments, end with the same weights."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from planned import MODEL, plan

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.training import checkpoint
from seismic_model.training.metrics import read_metrics

STEPS = 40
SEED = 20261130
WIDE = MODEL.model_copy(update={"width": 192})  # a checkpoint of 12 MB: the upload takes long enough to be hit


def settings(lake: Lake, run: str, checkpoint_every: int, strategy: str = "zero2") -> RunConfig:
    return plan(
        lake, run, model=WIDE, steps=STEPS, strategy=strategy, cp=2, checkpoint_every=checkpoint_every, warmup_steps=4
    )


@contextmanager
def torchrun(config: RunConfig, stderr: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Training in two processes; none of them outlives the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    uri = f"{config.lake}/{config.key}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    process = subprocess.Popen(
        [*command, "-m", "seismic_model.train", "--config", uri],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=stderr,
    )
    try:
        yield process
    finally:
        kill_all(process)


def ranks(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        for each in (psutil.Process(process.pid), *ranks(process)):
            each.kill()
    process.wait()


def finish(config: RunConfig) -> None:
    with torchrun(config) as process:
        assert process.wait(120) == 0


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, "training ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def upload_under_way(lake: Lake, run: str) -> bool:
    folders: dict[str, set[str]] = {}
    for entry in lake.objects(f"runs/{run}/checkpoints"):
        folder, _, name = entry.key.rpartition("/")
        folders.setdefault(folder, set()).add(name)
    return any("manifest.json" not in names for names in folders.values())


@pytest.mark.timeout(900)  # six starts of torchrun, each a quarter of a minute on an idle machine
def test_killed_anywhere_it_ends_with_the_weights_of_the_undisturbed_run(lake: Lake) -> None:
    undisturbed = settings(lake, "undisturbed", checkpoint_every=10)
    finish(undisturbed)
    moments = random.Random(SEED)

    # SIGTERM to one process: all save, although no checkpoint is due, and end well
    config = settings(lake, "killed", checkpoint_every=1000)
    with torchrun(config) as process:
        wait_until(lambda: bool(read_metrics(lake, "killed")), process)
        time.sleep(moments.uniform(0, 0.5))
        ranks(process)[-1].send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    stopped = checkpoint.latest(lake, "killed")
    assert stopped is not None
    assert 0 < stopped.step < STEPS

    # a shard that changed is refused by name; restored, the run can go on
    shard = next(key for key in stopped.files if key.startswith("optimizer-00002"))
    with damaged(lake, f"{stopped.folder}/{shard}"):
        with torchrun(settings(lake, "killed", checkpoint_every=4, strategy="ddp"), subprocess.PIPE) as process:
            _, log = process.communicate(timeout=120)
        assert process.returncode != 0
        assert f"{shard} has" in log.decode()
        assert newest(lake, "killed") == stopped.step

    # kill -9 some time after it went on
    config = settings(lake, "killed", checkpoint_every=4)
    with torchrun(config) as process:
        wait_until(lambda: newest(lake, "killed") > stopped.step, process)
        time.sleep(moments.uniform(0, 1))
        kill_all(process)

    # kill -9 between the first shard of a checkpoint and its manifest
    config = settings(lake, "killed", checkpoint_every=1)
    before = newest(lake, "killed")
    for _ in range(3):  # the manifest may win the race
        with torchrun(config) as process:
            wait_until(lambda: upload_under_way(lake, "killed"), process)
            kill_all(process)
        if upload_under_way(lake, "killed"):
            break
    assert upload_under_way(lake, "killed")
    assert newest(lake, "killed") >= before

    finish(settings(lake, "killed", checkpoint_every=10))
    weights = {run: checkpoint.load_weights(lake, run, STEPS) for run in ("undisturbed", "killed")}
    last = {run: checkpoint.latest(lake, run) for run in weights}
    assert last["killed"].weights_sha256 == last["undisturbed"].weights_sha256
    assert len(last["killed"].files) == 4
    assert not upload_under_way(lake, "killed")
    MaskedAutoencoder(WIDE).load_state_dict(weights["killed"])

    curves = {run: [(e["step"], e["loss"]) for e in read_metrics(lake, run)] for run in weights}
    assert [step for step, _ in curves["killed"]] == list(range(1, STEPS + 1))
    assert curves["killed"] == curves["undisturbed"]


@contextmanager
def damaged(lake: Lake, key: str) -> Iterator[None]:
    whole = lake.read(key)
    lake.write(key, whole[:-1] + bytes([whole[-1] ^ 1]))
    yield
    lake.write(key, whole)


def newest(lake: Lake, run: str) -> int:
    manifest = checkpoint.latest(lake, run)
    return manifest.step if manifest else 0
