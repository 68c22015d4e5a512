"""What a launcher costs: from submitting to the first line of a rank, and from its last to the flow's notice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from flows.launchers import Job, Launcher, State
from flows.launchers.local import LocalLauncher
from flows.launchers.slurm import SlurmLauncher, state_folder
from flows.launchers.slurm_settings import SlurmSettings
from flows.training import Patience

WORKER = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "first").touch()
time.sleep(1)
(folder / "last").touch()
"""


def measure(launcher: Launcher, folder: Path) -> tuple[float, float, float]:
    """Seconds: the submitting itself, to the first rank's first line, from the last rank's end to SUCCEEDED."""
    job = Job(f"overhead {folder}", "overhead", "sfm_overhead_worker", (str(folder),), 2)
    before = time.time()
    launcher.submit(job)
    submitted = time.time()
    while (status := launcher.find(job.key)) is None or status.state not in (State.SUCCEEDED, State.FAILED):
        time.sleep(Patience().poll)
    noticed = time.time()
    assert status.state is State.SUCCEEDED, status
    # ranks touch the same file: the time is the last one's
    return submitted - before, (folder / "first").stat().st_mtime - before, noticed - (folder / "last").stat().st_mtime


def test_overhead_is_measured(
    settings: SlurmSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sfm_overhead_worker.py").write_text(WORKER)
    path = f"{tmp_path}:{settings.working_directory}"
    monkeypatch.setenv("PYTHONPATH", f"{path}:{os.environ.get('PYTHONPATH', '')}")
    slurm = settings.model_copy(update={"environment": settings.environment | {"PYTHONPATH": path}})
    lines = []
    for name, launcher in (("local", LocalLauncher(tmp_path / "local")), ("slurm", SlurmLauncher(slurm))):
        (folder := tmp_path / f"ranks-{name}").mkdir()
        submit, first, notice = measure(launcher, folder)
        lines.append(
            f"{name:>6}: submit {submit:4.1f} s, to the first line {first:4.1f} s, end to notice {notice:4.1f} s"
        )
    log = Path(state_folder(f"overhead {tmp_path / 'ranks-slurm'}", slurm), "log").read_text()
    assert "start 0 of job" in log
    with capsys.disabled():
        print("", "launcher overhead, 2 processes, poll 2 s:", *lines, sep="\n")
