"""One weekly flow through a real Slurm that is asked for wrongly, loses ranks, its disk and a node, and hangs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from published import noise, publish
from slurm_cluster import Cluster
from slurm_weeks import Week, week_on

from ingestion.lake import Lake

pytestmark = pytest.mark.timeout(1200)


@dataclass(frozen=True)
class SmallDisk:
    """1 MiB at ``folder``."""

    folder: Path

    def fill(self) -> None:
        """To the last byte."""
        with suppress(OSError), (self.folder / "rest").open("wb", buffering=0) as rest:
            while rest.write(bytes(64)):
                pass

    def clear(self) -> None:
        (self.folder / "rest").unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "small")
    disk.folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk.folder)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk.folder)], check=True)


@pytest.fixture
def week(slurm: Cluster, lake: Lake, tmp_path: Path, small_disk: SmallDisk) -> Iterator[Week]:
    """On a lake that has its surveys, with a small disk for its jobs."""
    publish(lake, "deltaic", noise((32, 32, 32)))
    publish(lake, "deep_water", noise((48, 48, 48), seed=1), origin=(9000.0, 0.0))
    with week_on(lake, tmp_path, slurm, "2026-W42", small_disk.folder) as week:
        yield week


def test_a_week_goes_on_once_its_troubles_are_mended(week: Week, small_disk: SmallDisk) -> None:
    week.start(partition="moon")
    assert "invalid partition specified: moon" in week.fails()
    assert week.numbers == []

    week.start()
    step = week.stops_after_a_checkpoint()
    week.ranks[0].kill()
    week.goes_on()
    week.until(lambda: len(week.numbers) == 2)  # the flow's second try
    step = week.stops_after_a_checkpoint(step)
    week.slurm.kill_daemon("n2")
    for rank in week.ranks_on("n2"):
        rank.kill()
    week.goes_on()
    step = week.stops_after_a_checkpoint(step)  # the job changed its nodes, before Slurm noticed
    assert [path.name for path in week.jobs.glob("*/bad/*")] == ["n2"]
    assert "node n2 is bad: it does not answer" in week.log
    assert f"start 1 of job {week.numbers[1]} on n[1,3]" in week.log
    small_disk.fill()
    week.ranks[0].kill()
    week.goes_on()
    assert "No space left on device" in week.fails()
    assert week.slurm.ask("squeue", "--noheader").strip() == ""
    assert len(week.numbers) == 2

    small_disk.clear()
    week.slurm.start_node("n2")
    week.start(hang_minutes=0.75)
    step = week.stops_after_a_checkpoint(step)
    week.goes_on(week.ranks[0])  # but that one, which hangs for good
    week.until(lambda: "ending the job for standing still" in week.said)
    week.until(lambda: len(week.numbers) > 3)
    week.ends_with_a_candidate()
    assert f"goes on from step {step}" in week.log
