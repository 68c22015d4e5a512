"""The Slurm launcher on a real Slurm, with real torchrun processes that stand in for a training."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster
from slurm_jobs import end_of, job, launcher_for, started_in, wait_for, wait_for_ranks, with_worker

from flows.launchers import Cause, LauncherError, State, Status, UnreachableError
from flows.launchers.slurm import SlurmLauncher, state_folder
from flows.launchers.slurm_settings import SlurmSettings


@dataclass(frozen=True)
class Ended:
    """What is left of a job."""

    launcher: SlurmLauncher
    place: Path
    status: Status


@pytest.fixture(scope="module")
def ended(started: Cluster, nodes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A job that ended well, submitted from an environment with a secret in it."""
    place = with_worker(tmp_path_factory.mktemp("ended"))
    settings = SlurmSettings(folder=str(place / "jobs"), **nodes | {"processes_per_node": 2})
    launcher = launcher_for(settings, place)
    good = job(place, "0", "tell", processes=4)
    assert launcher.find(good.key) is None
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SFM_WEBHOOK_URL", "https://secret")
        launcher.submit(good)
    return Ended(launcher, place, end_of(launcher, good.key))


def test_a_job_is_found_by_its_key_and_its_end_is_told(ended: Ended) -> None:
    status = ended.status
    assert (status.state, status.exit_code, status.cause) == (State.SUCCEEDED, 0, None), status.log_tail
    assert "rank 3 of 4" in status.log_tail
    assert [node for _, _, node, _ in started_in(ended.place)] == ["n1", "n1", "n2", "n2"]
    assert status.place.endswith(" on n[1-2]")
    assert status.bad_nodes == ()
    assert ended.launcher.find("another key") is None


def test_a_job_gets_nothing_of_the_flows_environment(ended: Ended) -> None:
    assert "SLURM_JOB_ID" in (ended.place / "environment").read_text()
    assert "secret" not in (ended.place / "environment").read_text()


def test_a_job_that_slurm_has_forgotten_is_told_by_what_it_left(ended: Ended, tmp_path: Path) -> None:
    settings, key = ended.launcher.settings, job(ended.place).key
    result = Path(state_folder(key, settings), "result.json")

    def told(accounting: str = "") -> tuple[State, Cause | None, int | None]:
        shell = str(_forgetful_shell(tmp_path, accounting))
        status = SlurmLauncher(settings.model_copy(update={"command": (shell, "-c")})).find(key)
        assert status is not None
        return status.state, status.cause, status.exit_code

    assert told() == (State.SUCCEEDED, None, 0)
    result.rename(tmp_path / "result.json")
    assert told() == (State.FAILED, Cause.ERROR, None)  # no trace of how it ended: run it again
    number = started_in(ended.place)[0][0]
    assert told(f"{number}|OUT_OF_MEMORY|n[1-2]|2026-11-30T10:00:00") == (State.FAILED, Cause.OUT_OF_MEMORY, None)
    assert told(f"{number}|COMPLETED|n[1-2]|2026-11-30T10:00:00") == (State.SUCCEEDED, None, 0)
    (tmp_path / "result.json").rename(result)


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
    assert len(started_in(place)) == 2
    assert launcher.find("another key") is None


def test_cancel_lets_the_ranks_save(launcher: SlurmLauncher, place: Path) -> None:
    launcher.submit(job(place, "0", "save", "wait"))
    wait_for_ranks(launcher, place, 2)
    launcher.cancel(job(place).key)
    status = launcher.find(job(place).key)
    assert status is not None
    assert (status.state, status.cause) == (State.FAILED, Cause.CANCELLED), status
    assert len(list(place.glob("saved-*"))) == 2


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
    assert started_in(place) == []


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
