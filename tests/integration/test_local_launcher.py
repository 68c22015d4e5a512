"""The local launcher with real torchrun processes."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from flows.launchers import Cause, Job, LauncherError, State, Status
from flows.launchers.local import LocalLauncher

WORKER = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / f"pid-{os.environ['RANK']}-{os.getpid()}").touch()
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
if "wait" in sys.argv:
    while not (folder / "go").exists():
        time.sleep(0.05)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sfm_test_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    return tmp_path


def job(place: Path, *arguments: str, key: str = "lake/run'; $(touch x)") -> Job:
    return Job(key, "run", "sfm_test_worker", (str(place), *arguments), processes=2)


def pids(place: Path) -> list[int]:
    return [int(path.name.split("-")[2]) for path in place.glob("pid-*")]


def wait_for(launcher: LocalLauncher, key: str, state: State) -> Status:
    for _ in range(600):
        status = launcher.find(key)
        if status is not None and status.state is state:
            return status
        time.sleep(0.1)
    raise AssertionError(f"job did not become {state}: {status}")


def wait_for_ranks(place: Path, count: int) -> None:
    for _ in range(600):
        if len(pids(place)) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{pids(place)} ranks started, expected {count}")


def test_a_job_is_found_by_its_key_and_its_end_is_told(place: Path) -> None:
    launcher = LocalLauncher(place / "jobs")
    good = job(place, "0")
    assert launcher.find(good.key) is None
    launcher.submit(good)
    status = wait_for(LocalLauncher(place / "jobs"), good.key, State.SUCCEEDED)
    assert status.exit_code == 0
    assert "rank 1 of 2" in status.log_tail


def test_a_failed_job_is_failed_and_can_be_submitted_again(place: Path) -> None:
    launcher = LocalLauncher(place / "jobs")
    launcher.submit(job(place, "3"))
    assert wait_for(launcher, job(place).key, State.FAILED).exit_code != 0
    launcher.submit(job(place, "0"))
    wait_for(launcher, job(place).key, State.SUCCEEDED)


def test_submitting_a_running_job_attaches_to_it(place: Path) -> None:
    launcher = LocalLauncher(place / "jobs")
    waiting = job(place, "0", "wait")
    launcher.submit(waiting)
    wait_for_ranks(place, 2)
    LocalLauncher(place / "jobs").submit(waiting)
    (place / "go").touch()
    wait_for(launcher, waiting.key, State.SUCCEEDED)
    assert len(pids(place)) == 2


def test_a_job_whose_supervisor_was_killed_stays_running_until_its_ranks_end(place: Path) -> None:
    launcher = LocalLauncher(place / "jobs")
    waiting = job(place, "0", "wait")
    launcher.submit(waiting)
    wait_for_ranks(place, 2)
    torchrun = psutil.Process(pids(place)[0]).parent()
    assert torchrun is not None
    supervisor = torchrun.parent()
    assert supervisor is not None
    supervisor.kill()
    supervisor_gone = launcher.find(waiting.key)
    assert supervisor_gone is not None
    assert supervisor_gone.state is State.RUNNING
    (place / "go").touch()
    status = wait_for(launcher, waiting.key, State.FAILED)  # nobody saw it end well, so it is run again
    assert status.exit_code is None


def test_a_job_ends_at_its_time_limit_with_nobody_to_follow_it(place: Path) -> None:
    launcher = LocalLauncher(place / "jobs")
    waiting = replace(job(place, "0", "wait"), hours=50 / 3600)  # half of that is for saving
    launcher.submit(waiting)
    wait_for_ranks(place, 2)
    status = wait_for(launcher, waiting.key, State.FAILED)
    assert status.cause is Cause.TIME_LIMIT
    assert not any(psutil.pid_exists(pid) for pid in pids(place))
    (place / "go").touch()
    launcher.submit(replace(waiting, hours=None))
    wait_for(launcher, waiting.key, State.SUCCEEDED)


def test_cancel_ends_every_process(place: Path) -> None:
    launcher = LocalLauncher(place / "jobs")
    waiting = job(place, "0", "wait")
    launcher.submit(waiting)
    wait_for_ranks(place, 2)
    launcher.cancel(waiting.key)
    wait_for(launcher, waiting.key, State.FAILED)
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids(place))


def test_a_killed_rank_fails_the_job(place: Path) -> None:
    launcher = LocalLauncher(place / "jobs")
    waiting = job(place, "0", "wait")
    launcher.submit(waiting)
    wait_for_ranks(place, 2)
    os.kill(pids(place)[0], signal.SIGKILL)
    assert wait_for(launcher, waiting.key, State.FAILED).exit_code != 0


def spoil_link(folder: Path) -> str:
    folder.with_name("theirs").mkdir()
    folder.symlink_to("theirs")
    return "is a symbolic link"


def spoil_mode(folder: Path) -> str:
    folder.mkdir()
    folder.chmod(0o770)
    return f"is of user {os.getuid()}, mode 0770"


def spoil_owner(folder: Path) -> str:
    if os.geteuid():
        pytest.skip("only root may give a folder away")
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    return "is of user 12345, mode 0700"


@pytest.mark.parametrize("spoil", [spoil_link, spoil_mode, spoil_owner])
def test_a_folder_that_others_can_write_to_is_not_trusted(
    place: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], str]
) -> None:
    monkeypatch.delenv("SFM_JOBS", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    folder = place / f"sfm-jobs-{os.getuid()}"
    said = spoil(folder)
    launcher = LocalLauncher()
    for act in (lambda: launcher.submit(job(place, "0")), lambda: launcher.find("x"), lambda: launcher.cancel("x")):
        with pytest.raises(LauncherError, match=f"{said}; expected a folder of user .* in SFM_JOBS"):
            act()
    assert not list(folder.iterdir())


def test_the_folder_of_jobs_is_private(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SFM_JOBS", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    launcher = LocalLauncher()
    assert launcher.find(job(place).key) is None
    launcher.submit(job(place, "0"))
    wait_for(launcher, job(place).key, State.SUCCEEDED)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (launcher.root, *launcher.root.iterdir())] == [0o700] * 2
