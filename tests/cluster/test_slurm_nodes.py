"""Jobs whose nodes are lost, bad or wanted by others: they come back on the right ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from slurm_cluster import Cluster
from slurm_jobs import end_of, job, started_in, wait_for, wait_for_ranks

from flows.launchers import Cause, State
from flows.launchers.slurm import SlurmLauncher, state_folder


def test_a_job_survives_the_node_that_runs_its_script(launcher: SlurmLauncher, place: Path, slurm: Cluster) -> None:
    launcher.submit(job(place, "0", "wait"))
    wait_for_ranks(launcher, place, 2)
    slurm.kill_node("n1")  # a power cut, and the ranks met there; Slurm notices after its SlurmdTimeout
    wait_for_ranks(launcher, place, 4)
    (place / "go").touch()
    status = end_of(launcher, job(place).key)
    assert status.state is State.SUCCEEDED, status.log_tail
    assert [node for _, start, node, _ in started_in(place) if start] == ["n2", "n3"]
    assert status.bad_nodes == ("n1",)


def test_a_node_that_fails_its_health_check_is_left(launcher: SlurmLauncher, place: Path) -> None:
    python = place / "python"  # on n1 nothing starts
    python.write_text(f'#!/bin/sh\n[ "$SLURMD_NODENAME" != n1 ] || exit 127\nexec {launcher.settings.python} "$@"\n')
    python.chmod(0o755)
    launcher = SlurmLauncher(launcher.settings.model_copy(update={"python": str(python)}))
    launcher.submit(job(place, "0"))
    status = end_of(launcher, job(place).key)
    assert status.state is State.SUCCEEDED, status.log_tail
    assert [node for *_, node, _ in started_in(place)] == ["n2", "n3"]
    assert status.bad_nodes == ("n1",)
    assert "node n1 is bad: the health check ended with exit code 127" in status.log_tail


@pytest.mark.parametrize(("ago", "state", "cause"), [(30, State.SUCCEEDED, None), (80, State.FAILED, Cause.TIME_LIMIT)])
def test_the_time_limit_is_one_for_all_starts(
    launcher: SlurmLauncher, place: Path, ago: int, state: State, cause: Cause | None
) -> None:
    python = place / "python"  # on n1 nothing starts, and the start began some minutes ago
    broken = f'touch -d "{ago} minutes ago" "$state/nodes"; exit 127'
    limit = "squeue -h -j $SLURM_JOB_ID -o %l >>$state/limits"
    python.write_text(
        f'#!/bin/sh\nif [ "$SLURMD_NODENAME" = n1 ]; then {broken}; fi\n{limit}\nexec {launcher.settings.python} "$@"\n'
    )
    python.chmod(0o755)
    launcher = SlurmLauncher(launcher.settings.model_copy(update={"python": str(python)}))
    launcher.submit(replace(job(place, "0"), hours=1.0))
    status = end_of(launcher, job(place).key)
    assert (status.state, status.cause) == (state, cause), status.log_tail
    assert len(started_in(place)) == (2 if state is State.SUCCEEDED else 0)
    limits = (Path(state_folder(job(place).key, launcher.settings)) / "limits").read_text().split()
    assert limits[0] == "1:00:00"
    assert (limits[-1] in ("30:00", "29:00", "28:00")) == (state is State.SUCCEEDED)


def test_a_job_of_all_nodes_does_not_wait_for_ever_when_one_is_bad(launcher: SlurmLauncher, place: Path) -> None:
    python = place / "python"  # on n1 nothing starts, as long as it is broken
    broken = place / "broken"
    broken.touch()
    test = f'[ "$SLURMD_NODENAME" != n1 ] || [ ! -e {broken} ]'
    python.write_text(f'#!/bin/sh\n{test} || exit 127\nexec {launcher.settings.python} "$@"\n')
    python.chmod(0o755)
    launcher = SlurmLauncher(launcher.settings.model_copy(update={"python": str(python)}))
    whole = replace(job(place, "0"), processes=3)
    launcher.submit(whole)
    status = end_of(launcher, whole.key)
    assert (status.state, status.cause, status.bad_nodes) == (State.FAILED, Cause.NODE_LOST, ("n1",))
    launcher.cancel(whole.key)  # nor is it left to begin when n1 is well again
    assert end_of(launcher, whole.key).cause is Cause.CANCELLED
    broken.unlink()
    launcher.submit(replace(whole, exclude=status.bad_nodes))  # as the flow does
    status = end_of(launcher, whole.key)
    assert status.state is State.SUCCEEDED, status.log_tail


@pytest.mark.parametrize("exclude", [("n1",), ("gone",)])
def test_nodes_that_cannot_be_done_without_are_used(
    launcher: SlurmLauncher, place: Path, exclude: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.submit(replace(job(place, "0", processes=3), exclude=exclude))
    assert f"Submitted with {exclude[0]} again" in capsys.readouterr().out
    status = end_of(launcher, job(place).key)
    assert status.state is State.SUCCEEDED, status.log_tail
    assert len(started_in(place)) == 3


def test_a_suspended_job_waits(launcher: SlurmLauncher, place: Path, slurm: Cluster) -> None:
    launcher.submit(job(place, "0", "wait"))
    wait_for_ranks(launcher, place, 2)
    slurm.ask("scontrol", "suspend", str(started_in(place)[0][0]))
    wait_for(launcher, job(place).key, State.PENDING)
    launcher.cancel(job(place).key)
    assert end_of(launcher, job(place).key).cause is Cause.CANCELLED


def test_a_fault_of_every_node_is_no_fault_of_the_nodes(launcher: SlurmLauncher, place: Path) -> None:
    launcher = SlurmLauncher(launcher.settings.model_copy(update={"scratch": "/proc/scratch"}))
    launcher.submit(job(place, "0"))
    status = end_of(launcher, job(place).key)
    assert (status.state, status.cause) == (State.FAILED, Cause.ERROR)
    assert "scratch /proc/scratch cannot be written: No such file or directory" in status.log_tail
    assert "the settings are more likely wrong than the nodes" in status.log_tail
    assert started_in(place) == []


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
