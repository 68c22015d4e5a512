"""``sfm strategies`` in real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from click.testing import CliRunner
from planned import one_process, plan

from ingestion.lake import Lake
from seismic_model.cli import main
from seismic_model.comparison import measure
from seismic_model.comparison.table import measured_winner
from seismic_model.model.mae import MaskedAutoencoder

T = TypeVar("T")
TINY = ["--model", "tiny", "--window", "8x8x8"]


def wait_for(found: Callable[[], T], seconds: float = 120) -> T:
    give_up = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < give_up
        time.sleep(0.2)
    return value


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def test_the_winner_is_kept_on_the_lake_of_the_run(lake: Lake) -> None:
    config = plan(lake, cp=2, accumulation=2)
    asked = ["strategies", "--config", lake.uri_of(config.key), "--processes", "2", "--steps", "1", "--json"]
    result = CliRunner().invoke(main, [*asked, "--strategy", "fsdp2"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["rows"]
    assert row["fault"] is None
    assert row["samples_per_second"] > 0
    assert row["tokens_per_second"] == pytest.approx(row["samples_per_second"] * 16)
    assert row["peak_memory"] > 2**20
    assert set(row["seconds"]) == {"data", "forward", "backward", "step"}
    assert measured_winner(lake, config, 2) == "fsdp2"
    assert measured_winner(lake, config, 4) is None


def test_a_strategy_that_fails_says_why_and_nothing_is_kept(lake: Lake) -> None:
    config = plan(lake, precision="float64")
    lake.delete([config.dataset])
    asked = ["strategies", "--config", lake.uri_of(config.key), "--processes", "1"]
    result = CliRunner().invoke(main, [*asked, "--strategy", "ddp", "--strategy", "zero1"])
    assert result.exit_code == 1, result.output
    assert re.search(f"ddp +failed: .*{config.dataset}", result.output), result.output
    assert re.search("zero1 +failed: .*float64 needs strategy", result.output), result.output
    assert lake.folders("strategies") == []


def test_what_a_run_compiles_is_compiled_here_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[MaskedAutoencoder] = []
    monkeypatch.setattr(measure, "compile_blocks", compiled.append)
    for asked in (False, True):
        with one_process() as mesh:
            measure.measure(plan(lake, compile=asked), mesh, steps=1, made=True)
        assert len(compiled) == asked


def two_machines(lake: Lake, *options: str, **environment: str) -> list[subprocess.CompletedProcess[str]]:
    """The command on two numbered machines, ``environment`` on the second one only."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "seismic_model.cli", "strategies", *TINY, "--batch=2", "--processes=1"]
    command += ["--steps=1", f"--lake={lake.uri}", *options]
    command += ["--machines=2", "--head=127.0.0.1", f"--port={port}"]
    jobs = [
        subprocess.Popen(
            [*command, f"--machine={number}"],
            env=os.environ | (environment if number else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for number in range(2)
    ]
    try:
        printed = [job.communicate(timeout=240)[0] for job in jobs]
    finally:
        for job in jobs:
            job.terminate()
    return [subprocess.CompletedProcess(job.args, job.returncode, out) for job, out in zip(jobs, printed, strict=True)]


def test_of_two_machines_the_first_has_the_table_and_one_that_fails_stops_no_strategy_but_its_own(
    lake: Lake, tmp_path: Path
) -> None:
    broken = tmp_path / "deepspeed"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise MemoryError('no room here')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    chosen = [f"--strategy={name}" for name in ("zero2", "ddp", "fsdp2")]
    first, second = two_machines(lake, *chosen, "--json", PYTHONPATH=path)
    table = json.loads(first.stdout)
    assert table["processes"] == 2
    assert [row["strategy"] for row in table["rows"]] == ["zero2", "ddp", "fsdp2"]
    failed, *measured = [row["fault"] for row in table["rows"]]
    assert "machine 1: " in failed
    assert "no room here" in failed
    assert measured == [None, None]
    assert second.stdout == "machine 0 has the table\n"
    assert (first.returncode, second.returncode) == (0, 0)


def test_nothing_runs_on_when_the_command_is_ended(lake: Lake) -> None:
    command = [sys.executable, "-m", "seismic_model.cli", "strategies", *TINY, "--batch=2", "--processes=1"]
    job = subprocess.Popen([*command, "--steps=20000", "--strategy=ddp"], stderr=subprocess.DEVNULL)
    try:
        started = wait_for(
            lambda: processes if len(processes := psutil.Process(job.pid).children(recursive=True)) > 1 else []
        )
    finally:
        job.terminate()
    assert job.wait(60) == 128 + signal.SIGTERM
    assert not [process for process in started if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_processes_end_with_the_torchrun_that_started_them(lake: Lake) -> None:
    """Where someone interrupts the command; else they would go on unseen."""
    config = plan(lake)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    command += ["-m", "seismic_model.comparison.measure", f"--config={lake.uri_of(config.key)}", "--made"]
    command += ["--steps=20000", f"--out={lake.uri.removeprefix('file://')}/found"]
    torchrun = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        (process,) = wait_for(lambda: psutil.Process(torchrun.pid).children())
        wait_for(process.net_connections)  # it has joined
    finally:
        torchrun.kill()
        torchrun.wait()
    wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "tiny"], "--window and --batch"),
        (["--config", "file:///nowhere/config.json"], "there is no config"),
        (["--config", "file:///nowhere/config.json", "--model", "tiny"], "--config says all"),
        (
            ["--model", "tiny", "--window", "9x8x8", "--batch", "2"],
            "window (9, 8, 8) is not a positive multiple of patch",
        ),
        (["--model", "tiny", "--window", "8x8", "--batch", "2"], "'8x8' is not of the form"),
        ([*TINY, "--batch", "1", "--cp", "2"], "1 processes cannot form groups of cp=2"),
        ([*TINY, "--batch", "3", "--accumulation", "2"], "batch 3 cannot be dealt out"),
        ([*TINY, "--batch", "2", "--machines", "2", "--machine", "2"], "numbered 0 to 1"),
        ([*TINY, "--batch", "2", "--machines", "2"], "told the --head"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["strategies", "--processes", "1", *options])
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "errors.pydantic.dev" not in result.output
