"""A job that was paused, believed dead and succeeded wakes up: it changes nothing any more."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from forked import finish
from killed import assert_same_end, settings

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.training import checkpoint


@contextmanager
def torchrun(config: RunConfig, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Two processes under a real torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "seismic_model.train", "--config", f"{config.lake}/{config.key}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        yield process
    finally:
        process.kill()  # its ranks die with it
        process.wait()


def objects_of(lake: Lake, run: str) -> dict[str, str]:
    return {entry.key: hashlib.sha256(lake.read(entry.key)).hexdigest() for entry in lake.objects(f"runs/{run}")}


def wait_for_a_checkpoint(lake: Lake, run: str, log: Path) -> None:
    deadline = time.monotonic() + 240
    while not checkpoint.committed(lake, run):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_a_paused_twin_changes_nothing_any_more(lake: Lake, tmp_path: Path) -> None:
    config = settings(lake, "twins", steps=80, checkpoint_every=10)
    with torchrun(config, tmp_path / "paused") as paused:
        wait_for_a_checkpoint(lake, config.run, tmp_path / "paused")
        agent = psutil.Process(paused.pid)
        processes = [agent, *agent.children(recursive=True)]
        for process in processes:
            process.suspend()
        assert checkpoint.latest(lake, config.run).step < config.steps  # type: ignore[union-attr]

        other = settings(lake, "undisturbed", steps=80, checkpoint_every=10)
        with torchrun(other, tmp_path / "other") as refused:
            assert refused.wait(240) != 0
        said = (tmp_path / "other").read_text()
        assert f"training on {lake.uri} is held by run twins" in said
        assert "exitcode  : 2" in said
        assert "Traceback" not in said.split("torch/distributed")[0]  # only torchrun's own
        assert objects_of(lake, other.run).keys() == {other.key}

        with torchrun(config, tmp_path / "successor") as successor:
            assert successor.wait(240) == 0, (tmp_path / "successor").read_text()
        before = objects_of(lake, config.run)
        for process in processes:
            process.resume()
        assert paused.wait(240) != 0
        assert "another start took over training" in (tmp_path / "paused").read_text()
        after = objects_of(lake, config.run)
        # but what was under way: one file of each process, named by its content
        late = {key: digest for key, digest in after.items() if key not in before}
        assert len(late) <= 2
        assert all(re.fullmatch(rf".*-{digest[:16]}\.safetensors", key) for key, digest in late.items())
        assert {key: after[key] for key in before} == before
        lake.delete([*late])
    finish(other, 2, tmp_path / "undisturbed")
    assert_same_end(lake, config.run, other)
