"""`week cancel` ends the job of one run, and says when there is nothing to end."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.launchers import Cause, Job, State
from flows.launchers.local import LocalLauncher
from flows.training import job_key
from flows.week_command import main
from ingestion.lake import Lake
from seismic_model.training.lease import acquire

RUN = "2026-w49-tiny-s0"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("SFM_JOBS", str(tmp_path / "jobs"))
    lake = Lake(str(tmp_path / "lake"))
    lake.write(f"runs/{RUN}/config.json", b"{}")
    return lake


def cancel(lake: Lake, run: str = RUN, *more: str) -> Result:
    return CliRunner().invoke(main, ["cancel", "--lake", lake.uri, "--run", run, *more])


def test_a_job_that_runs_is_asked_to_save_and_ends(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "saving.py").write_text(
        "import pathlib, signal, sys, time\n"
        "def save(*_):\n"
        "    pathlib.Path(sys.argv[1], 'saved').touch()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "pathlib.Path(sys.argv[1], 'runs').touch()\n"
        "time.sleep(300)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    launcher, key = LocalLauncher(), job_key(lake, RUN)
    launcher.submit(Job(key, RUN, "saving", (str(tmp_path),), 1))
    while not (tmp_path / "runs").exists():
        assert launcher.find(key).state is State.RUNNING  # type: ignore[union-attr]
        time.sleep(0.1)
    ended = cancel(lake)
    assert ended.exit_code == 0, ended.output
    assert "ended: this machine" in ended.output
    assert (tmp_path / "saved").exists()
    assert launcher.find(key).cause is Cause.CANCELLED  # type: ignore[union-attr]  # which no flow tries again
    assert "no job of run 2026-w49-tiny-s0 waits or runs" in cancel(lake).output


def test_a_job_that_was_started_elsewhere_is_not_taken_for_none(lake: Lake) -> None:
    lease = acquire(lake, RUN, "another folder of jobs", "process 7")
    said = cancel(lake)
    assert said.exit_code == 1
    assert "another folder of jobs" in said.output
    lease.release()
    assert cancel(lake).exit_code == 0


def test_a_run_that_is_not_there_is_named_safely(lake: Lake) -> None:
    missing = cancel(lake, "x\x1b[2J; rm -rf /")
    assert missing.exit_code == 1
    assert "there is no run x\\x1b[2J; rm -rf /" in missing.output


def test_a_cluster_that_the_settings_do_not_describe_is_said(lake: Lake, tmp_path: Path) -> None:
    assert "no `slurm:` part" in cancel(lake, RUN, "--launcher", "slurm").output
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    assert "is no YAML" in cancel(lake, RUN, "--settings", str(broken)).output
