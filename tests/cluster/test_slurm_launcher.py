"""The Slurm launcher on a real Slurm, with real torchrun processes that stand in for a training."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_cluster import Cluster

from flows.launchers import Cause, Job, LauncherError, State, Status, UnreachableError
from flows.launchers.slurm import SlurmLauncher, state_folder
from flows.launchers.slurm_settings import SlurmSettings

WORKER = """
import os, pathlib, signal, sys, time
folder, code, *how = sys.argv[1:]
folder = pathlib.Path(folder)
here = f"{os.environ['SLURM_JOB_ID']}-{os.environ.get('SLURM_RESTART_COUNT', '0')}-{os.environ['SLURMD_NODENAME']}"
(folder / f"pid-{here}-{os.getpid()}").touch()
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n", end="", flush=True)
if "save" in how:
    signal.signal(signal.SIGTERM, lambda *_: ((folder / f"saved-{here}").touch(), sys.exit(0)))
if "tell" in how:
    (folder / "environment").write_text(repr(dict(os.environ)))
if "memory" in how:
    raise MemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
while "wait" in how and not (folder / "go").exists():
    time.sleep(0.05)
sys.exit(int(code))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "sfm_test_worker.py").write_text(WORKER)
    return tmp_path


@pytest.fixture
def launcher(settings: SlurmSettings, place: Path) -> SlurmLauncher:
    path = f"{place}:{settings.working_directory}"
    return SlurmLauncher(settings.model_copy(update={"environment": settings.environment | {"PYTHONPATH": path}}))


def job(place: Path, *arguments: str, key: str = "lake/run'; $(touch x)", processes: int = 2) -> Job:
    return Job(key, "run'; $(touch y)", "sfm_test_worker", (str(place), *arguments), processes)


def started(place: Path) -> list[tuple[int, int, str, int]]:
    """Job, start, node and pid of every rank that ever started."""
    parts = [path.name.split("-") for path in place.glob("pid-*")]
    return sorted((int(number), int(start), node, int(pid)) for _, number, start, node, pid in parts)


def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(what)


def wait_for(launcher: SlurmLauncher, key: str, *states: State) -> Status:
    found: list[Status | None] = [None]

    def there() -> bool:
        found[0] = launcher.find(key)
        return found[0] is not None and found[0].state in states

    try:
        until(there, "")
    except AssertionError:
        raise AssertionError(f"the job did not become {states}: {found[0]}") from None
    assert found[0] is not None
    return found[0]


def end_of(launcher: SlurmLauncher, key: str) -> Status:
    return wait_for(launcher, key, State.SUCCEEDED, State.FAILED)


def wait_for_ranks(launcher: SlurmLauncher, place: Path, count: int) -> None:
    def ready() -> bool:
        status = launcher.find(job(place).key)
        assert status is None or status.state not in (State.SUCCEEDED, State.FAILED), status
        return len(started(place)) >= count

    until(ready, f"only {started(place)} ranks of {count} started; {launcher.find(job(place).key)}")


def test_a_job_is_found_by_its_key_and_its_end_is_told(launcher: SlurmLauncher, place: Path) -> None:
    good = job(place, "0", processes=4)
    launcher = SlurmLauncher(launcher.settings.model_copy(update={"processes_per_node": 2}))
    assert launcher.find(good.key) is None
    launcher.submit(good)
    status = end_of(SlurmLauncher(launcher.settings), good.key)
    assert (status.state, status.exit_code, status.cause) == (State.SUCCEEDED, 0, None), status.log_tail
    assert "rank 3 of 4" in status.log_tail
    assert [node for _, _, node, _ in started(place)] == ["n1", "n1", "n2", "n2"]
    assert status.place.endswith(" on n[1-2]")
    assert status.bad_nodes == ()


def test_a_job_gets_nothing_of_the_flows_environment(
    launcher: SlurmLauncher, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFM_WEBHOOK_URL", "https://secret")
    launcher.submit(job(place, "0", "tell"))
    assert wait_for(launcher, job(place).key, State.SUCCEEDED).exit_code == 0
    assert "SLURM_JOB_ID" in (place / "environment").read_text()
    assert "secret" not in (place / "environment").read_text()


def test_a_job_that_failed_is_not_put_back_and_can_be_submitted_again(launcher: SlurmLauncher, place: Path) -> None:
    launcher.submit(job(place, "7"))
    status = end_of(launcher, job(place).key)
    assert (status.state, status.cause, status.bad_nodes) == (State.FAILED, Cause.ERROR, ()), status.log_tail
    assert status.exit_code not in (0, None)
    launcher.submit(job(place, "0"))
    assert end_of(launcher, job(place).key).state is State.SUCCEEDED
    assert len(started(place)) == 4
    assert {start for _, start, _, _ in started(place)} == {0}


def test_two_flows_that_submit_in_the_same_moment_have_one_job(launcher: SlurmLauncher, place: Path) -> None:
    waiting = job(place, "0", "wait")
    launchers = [SlurmLauncher(launcher.settings) for _ in range(4)]
    with ThreadPoolExecutor(4) as flows:
        list(flows.map(lambda each: each.submit(waiting), launchers))
    wait_for_ranks(launcher, place, 2)
    launcher.submit(waiting)  # attaches
    (place / "go").touch()
    status = end_of(launcher, waiting.key)
    assert status.state is State.SUCCEEDED, status
    assert len(started(place)) == 2
    assert launcher.find("another key") is None


def test_a_killed_rank_ends_the_job(launcher: SlurmLauncher, place: Path) -> None:
    launcher.submit(job(place, "0", "wait"))
    wait_for_ranks(launcher, place, 2)
    os.kill(started(place)[1][3], signal.SIGKILL)
    status = end_of(launcher, job(place).key)
    assert (status.state, status.cause, status.bad_nodes) == (State.FAILED, Cause.ERROR, ()), status.log_tail
    assert len(started(place)) == 2


def test_a_job_leaves_a_node_whose_daemon_and_rank_died(launcher: SlurmLauncher, place: Path, slurm: Cluster) -> None:
    launcher.submit(job(place, "0", "wait"))
    wait_for_ranks(launcher, place, 2)
    assert [node for _, _, node, _ in started(place)] == ["n1", "n2"]
    slurm.kill_daemon("n2")
    os.kill(started(place)[1][3], signal.SIGKILL)
    wait_for_ranks(launcher, place, 4)
    (place / "go").touch()
    status = end_of(launcher, job(place).key)
    assert status.state is State.SUCCEEDED, status.log_tail
    assert [(start, node) for _, start, node, _ in started(place)] == [(0, "n1"), (0, "n2"), (1, "n1"), (1, "n3")]
    assert len({number for number, *_ in started(place)}) == 1
    assert status.bad_nodes == ("n2",)
    assert "node n2 is bad: it does not answer" in status.log_tail  # before Slurm noticed


def test_a_job_survives_the_node_that_runs_its_script(launcher: SlurmLauncher, place: Path, slurm: Cluster) -> None:
    launcher.submit(job(place, "0", "wait"))
    wait_for_ranks(launcher, place, 2)
    slurm.kill_node("n1")  # a power cut, and the ranks met there; Slurm notices after its SlurmdTimeout
    wait_for_ranks(launcher, place, 4)
    (place / "go").touch()
    status = end_of(launcher, job(place).key)
    assert status.state is State.SUCCEEDED, status.log_tail
    assert [node for _, start, node, _ in started(place) if start] == ["n2", "n3"]
    assert status.bad_nodes == ("n1",)


def test_a_node_that_fails_its_health_check_is_left(launcher: SlurmLauncher, place: Path) -> None:
    python = place / "python"  # on n1 nothing starts
    python.write_text(f'#!/bin/sh\n[ "$SLURMD_NODENAME" != n1 ] || exit 127\nexec {launcher.settings.python} "$@"\n')
    python.chmod(0o755)
    launcher = SlurmLauncher(launcher.settings.model_copy(update={"python": str(python)}))
    launcher.submit(job(place, "0"))
    status = end_of(launcher, job(place).key)
    assert status.state is State.SUCCEEDED, status.log_tail
    assert [node for *_, node, _ in started(place)] == ["n2", "n3"]
    assert status.bad_nodes == ("n1",)
    assert "node n1 is bad: the health check ended with exit code 127" in status.log_tail


def test_a_fault_of_every_node_is_no_fault_of_the_nodes(launcher: SlurmLauncher, place: Path) -> None:
    launcher = SlurmLauncher(launcher.settings.model_copy(update={"scratch": "/proc/scratch"}))
    launcher.submit(job(place, "0"))
    status = end_of(launcher, job(place).key)
    assert (status.state, status.cause) == (State.FAILED, Cause.ERROR)
    assert "scratch /proc/scratch cannot be written: No such file or directory" in status.log_tail
    assert "the settings are more likely wrong than the nodes" in status.log_tail
    assert started(place) == []


def test_cancel_lets_the_ranks_save(launcher: SlurmLauncher, place: Path) -> None:
    launcher.submit(job(place, "0", "save", "wait"))
    wait_for_ranks(launcher, place, 2)
    launcher.cancel(job(place).key)
    status = launcher.find(job(place).key)
    assert status is not None
    assert (status.state, status.cause) == (State.FAILED, Cause.CANCELLED), status
    assert len(list(place.glob("saved-*"))) == 2


def test_a_job_cancelled_by_hand_is_told_apart(launcher: SlurmLauncher, place: Path, slurm: Cluster) -> None:
    launcher.submit(job(place, "0", "wait"))
    wait_for_ranks(launcher, place, 2)
    slurm.ask("scancel", "--user=root")
    status = end_of(launcher, job(place).key)
    assert (status.state, status.cause) == (State.FAILED, Cause.CANCELLED), status


def test_a_waiting_job_says_so_and_can_be_cancelled(launcher: SlurmLauncher, place: Path) -> None:
    launcher.submit(job(place, "0", "wait", key="first", processes=3))
    launcher.submit(job(place, "0", key="second"))
    wait_for(launcher, "first", State.RUNNING)
    status = wait_for(launcher, "second", State.PENDING)
    assert "waits: " in status.place
    launcher.cancel("second")
    assert end_of(launcher, "second").cause is Cause.CANCELLED


def test_a_job_at_its_time_limit_saves_and_says_so(launcher: SlurmLauncher, place: Path) -> None:
    launcher.submit(replace(job(place, "0", "save", "wait"), hours=1 / 60))
    status = end_of(launcher, job(place).key)
    assert (status.state, status.cause) == (State.FAILED, Cause.TIME_LIMIT), status.log_tail


def test_a_job_that_gives_way_to_an_urgent_one_comes_back(launcher: SlurmLauncher, place: Path, slurm: Cluster) -> None:
    launcher.submit(job(place, "0", "save", "wait"))
    wait_for_ranks(launcher, place, 2)
    slurm.ask("sbatch", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    wait_for_ranks(launcher, place, 4)
    (place / "go").touch()
    status = end_of(launcher, job(place).key)
    assert status.state is State.SUCCEEDED, status.log_tail
    assert len([path for path in place.glob("saved-*") if "-0-n" in path.name]) == 2
    assert status.bad_nodes == ()


def test_memory_that_ran_out_is_told_apart(launcher: SlurmLauncher, place: Path) -> None:
    launcher.submit(job(place, "0", "memory"))
    status = end_of(launcher, job(place).key)
    assert (status.state, status.cause) == (State.FAILED, Cause.OUT_OF_MEMORY), status.log_tail
    assert len(started(place)) == 2


@pytest.mark.parametrize(
    ("settings_change", "processes", "words"),
    [
        ({"partition": "moon"}, 2, "invalid partition specified"),
        ({}, 4, r"would wait for ever \(Partition"),
        ({"processes_per_node": 2}, 3, "3 processes do not fill nodes of 2"),
        ({"command": ("no-such-command",)}, 2, "`no-such-command` cannot be run"),
        ({"folder": "/proc/jobs"}, 2, "/proc/jobs"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_plain_words(
    launcher: SlurmLauncher, place: Path, settings_change: dict[str, object], processes: int, words: str
) -> None:
    launcher = SlurmLauncher(launcher.settings.model_copy(update=settings_change))
    with pytest.raises(LauncherError, match=words) as refused:
        launcher.submit(job(place, "0", processes=processes))
    assert not isinstance(refused.value, UnreachableError)
    assert started(place) == []


def test_a_controller_that_is_away_is_no_lost_job(launcher: SlurmLauncher, place: Path, slurm: Cluster) -> None:
    launcher.submit(job(place, "0", "wait"))
    wait_for_ranks(launcher, place, 2)
    slurm.stop_controller()
    with pytest.raises(UnreachableError, match="Unable to contact slurm controller"):
        launcher.find(job(place).key)
    with pytest.raises(UnreachableError):
        launcher.submit(job(place, "0", "wait"))
    slurm.start_controller()
    assert wait_for(launcher, job(place).key, State.RUNNING)
    (place / "go").touch()
    assert end_of(launcher, job(place).key).state is State.SUCCEEDED
    assert len(started(place)) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_told(launcher: SlurmLauncher, place: Path, small_disk: Path) -> None:
    launcher = SlurmLauncher(launcher.settings.model_copy(update={"folder": str(small_disk)}))
    launcher.submit(job(place, "5", "wait"))
    wait_for_ranks(launcher, place, 2)
    _fill(small_disk)
    (place / "go").touch()
    status = end_of(launcher, job(place).key)  # its script could not write why it ended
    assert (status.state, status.cause) == (State.FAILED, Cause.ERROR), status
    with pytest.raises(LauncherError, match="No space left on device"):
        launcher.submit(job(place, "0"))


def test_a_job_that_slurm_has_forgotten_is_told_by_what_it_left(launcher: SlurmLauncher, place: Path) -> None:
    def told(accounting: str = "") -> tuple[State, Cause | None, int | None]:
        shell = str(_forgetful_shell(place, accounting))
        status = SlurmLauncher(launcher.settings.model_copy(update={"command": (shell, "-c")})).find(job(place).key)
        assert status is not None
        return status.state, status.cause, status.exit_code

    launcher.submit(job(place, "0"))
    end_of(launcher, job(place).key)
    assert told() == (State.SUCCEEDED, None, 0)
    Path(state_folder(job(place).key, launcher.settings), "result.json").unlink()
    assert told() == (State.FAILED, Cause.ERROR, None)  # no trace of how it ended: run it again
    number = started(place)[0][0]
    assert told(f"{number}|OUT_OF_MEMORY|n[1-2]|2026-11-30T10:00:00") == (State.FAILED, Cause.OUT_OF_MEMORY, None)
    assert told(f"{number}|COMPLETED|n[1-2]|2026-11-30T10:00:00") == (State.SUCCEEDED, None, 0)


def _fill(disk: Path) -> None:
    with suppress(OSError), (disk / "rest").open("wb", buffering=0) as rest:
        while rest.write(bytes(64)):
            pass


def _forgetful_shell(place: Path, accounting: str) -> Path:
    """A shell on a cluster whose controller has forgotten every ended job."""
    bin_folder = place / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, body in (("squeue", "true"), ("sacct", f"echo '{accounting}'")):
        (bin_folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_folder / name).chmod(0o755)
    shell = bin_folder / "shell"
    shell.write_text(f'#!/bin/sh\nPATH={bin_folder}:$PATH exec bash "$@"\n')
    shell.chmod(0o755)
    return shell
