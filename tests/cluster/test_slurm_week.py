"""The weekly flow through a real Slurm: undisturbed, then disturbed by people and by the controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_cluster import Cluster
from slurm_weeks import Week, week_on
from weeks import made_surveys

from ingestion.lake import Lake

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def first_week(started: Cluster, s3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    """A week that nobody disturbed; its surveys are there for the next one."""
    folder = tmp_path_factory.mktemp("weeks")
    with week_on(Lake(f"{s3}/slurm-weeks"), folder, started, "2026-W40") as week:
        segy = made_surveys(folder)
        for name in ("deltaic.sgy", "deep_water.sgy"):
            week.lake.write(f"incoming/{name}", segy[name])
        week.start()
        week.flows[-1].wait()
        yield week


@pytest.fixture
def week(first_week: Week, slurm: Cluster) -> Iterator[Week]:
    with week_on(first_week.lake, first_week.folder, slurm, "2026-W41") as week:
        yield week


def test_a_week_trains_on_two_nodes_and_ends_with_a_candidate(first_week: Week) -> None:
    first_week.ends_with_a_candidate()
    assert len(first_week.numbers) == 1
    assert f"start 0 of job {first_week.numbers[0]} on n[1-2]" in first_week.log


def test_a_week_outlives_its_flow_its_job_and_the_controller(week: Week) -> None:
    before = week.versions
    week.start()
    week.stops_after_a_checkpoint()
    week.kill()

    week.start()
    week.until(lambda: "] step " in week.said)  # it follows the job that it found
    assert len(week.numbers) == 1
    step = week.reached
    week.slurm.ask("scancel", *week.numbers)
    why = week.fails()
    assert "was ended by cancellation at step" in why
    assert "a person or the scheduler's owner ended it, then start the week again" in why
    assert week.slurm.ask("squeue", "--noheader").strip() == ""
    assert week.reached >= step

    week.start()
    step = week.stops_after_a_checkpoint(week.reached)
    week.slurm.stop_controller()
    week.goes_on()
    week.until(lambda: "waiting for the scheduler" in week.said)
    week.until(lambda: week.reached > step)  # the job does not mind
    week.slurm.start_controller()
    week.ends_with_a_candidate(before)
    assert len(week.numbers) == 2
    assert "goes on from step" in week.log
