"""The weekly flow through a real Slurm, two nodes a job, undisturbed and disturbed in the middle of its training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from slurm_cluster import NODES, Cluster
from weeks import SETTINGS

from ingestion.lake import Lake
from ingestion.synthetic import BASINS, make_survey, write_segy
from seismic_model.registry.versions import aliases, connect
from seismic_model.training.checkpoint import latest

pytestmark = pytest.mark.timeout(1200)
REPOSITORY = Path(__file__).parents[2]
STEPS = 12  # of the recipe in SETTINGS


@dataclass(frozen=True)
class Week:
    """One lake with its registry, on one cluster; each test has a week of its own on it."""

    lake: Lake
    folder: Path
    slurm: Cluster

    @property
    def tracking(self) -> str:
        return f"sqlite:///{self.folder / 'mlflow.db'}"

    def start(self, week: str, *arguments: str, **cluster: object) -> subprocess.Popen[str]:
        """A flow in a process of its own; its output goes to ``<week>.out``."""
        slurm = {
            "folder": str(self.folder / "jobs"),
            "python": sys.executable,
            "working_directory": str(REPOSITORY),
            "processes_per_node": 1,
            "environment": {name: value for name, value in os.environ.items() if name.startswith("AWS_")},
        }
        settings = self.folder / f"{week}.yaml"
        settings.write_text(yaml.safe_dump(SETTINGS | {"slurm": slurm | cluster}))
        flow = [sys.executable, str(REPOSITORY / "flows/weekly_retrain.py"), "--no-pylint", "--config", "settings"]
        flow += [str(settings), "run", "--max-workers=2", "--lake", self.lake.uri, "--week", week, "--launcher=slurm"]
        with self.output(week).open("a") as output:
            return subprocess.Popen(
                [*flow, "--force", *arguments],
                env=os.environ
                | {
                    "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(self.folder),
                    "MLFLOW_TRACKING_URI": self.tracking,
                    "OMP_NUM_THREADS": "1",
                },
                cwd=self.folder,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    def output(self, week: str) -> Path:
        return self.folder / f"{week}.out"

    def said(self, week: str) -> str:
        return self.output(week).read_text()

    def versions(self) -> int:
        return int(aliases(connect(self.tracking)).get("challenger", "0"))

    def jobs(self) -> list[str]:
        """Job numbers that Slurm was given for this lake."""
        return [line for path in (self.folder / "jobs").glob("*/submitted") for line in path.read_text().split()]

    def ranks(self) -> list[psutil.Process]:
        return [each for node in NODES for each in self.slurm.processes(node) if _is_rank(each)]


def _is_rank(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "RANK" in process.environ() and "seismic_model.train" in process.cmdline()
    return False


def run_of(week: str) -> str:
    return f"{week.lower()}-tiny-s0"


def until(condition: Callable[[], bool], flow: subprocess.Popen[str], what: Callable[[], str]) -> None:
    for _ in range(2400):
        if condition():
            return
        assert flow.poll() is None, f"the flow ended too early:\n{what()}"
        time.sleep(0.1)
    raise AssertionError(what())


@pytest.fixture(scope="module")
def first_week(started: Cluster, s3: str, tmp_path_factory: pytest.TempPathFactory) -> Week:
    """A week that nobody disturbed; its surveys are there for the others."""
    week = Week(Lake(f"{s3}/slurm-weeks"), tmp_path_factory.mktemp("weeks"), started)
    for basin in ("deltaic", "deep_water"):
        write_segy(make_survey(BASINS[basin], seed=1, shape=(56, 56, 48)), week.folder / basin)
        week.lake.write(f"incoming/{basin}.sgy", (week.folder / basin).read_bytes())
    flow = week.start("2026-W40")
    assert flow.wait() == 0, week.said("2026-W40")
    return week


@pytest.fixture
def week(first_week: Week, slurm: Cluster) -> Week:
    return first_week


def test_a_week_trains_on_two_nodes_and_ends_with_a_candidate(week: Week) -> None:
    assert reached(week, "2026-W40") == STEPS
    assert week.versions() >= 1
    log = next(iter((week.folder / "jobs").glob("*/log"))).read_text()
    assert "on n[1-2]" in log


@pytest.fixture
def flows() -> Iterator[list[subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []
    yield running
    for flow in running:
        with suppress(ProcessLookupError):
            os.killpg(flow.pid, signal.SIGKILL)


def stop_after_a_checkpoint(week: Week, label: str, flow: subprocess.Popen[str], step: int = 0) -> int:
    """Stop the ranks, in the middle of whatever they do, once a checkpoint after ``step`` is committed; its step."""
    until(lambda: reached(week, label) > step, flow, lambda: week.said(label))
    for rank in week.ranks():
        with suppress(psutil.Error):
            rank.suspend()
    return reached(week, label)


def go_on(week: Week) -> None:
    for rank in week.ranks():
        with suppress(psutil.Error):
            rank.resume()


def reached(week: Week, label: str) -> int:
    newest = latest(week.lake, run_of(label))
    return newest.step if newest else 0


def ends_with_a_candidate(week: Week, label: str, flow: subprocess.Popen[str], before: int) -> None:
    assert flow.wait() == 0, week.said(label)
    assert reached(week, label) == STEPS
    assert week.versions() == before + 1, week.said(label)


def test_a_flow_that_was_killed_finds_its_job(week: Week, flows: list[subprocess.Popen[str]]) -> None:
    label, before, jobs = "2026-W41", week.versions(), len(week.jobs())
    flows.append(week.start(label))
    stop_after_a_checkpoint(week, label, flows[0])
    os.killpg(flows[0].pid, signal.SIGKILL)
    flows[0].wait()
    week.output(label).write_text("")
    flows.append(week.start(label))
    until(lambda: "] step " in week.said(label), flows[1], lambda: week.said(label))  # it follows the job
    go_on(week)
    ends_with_a_candidate(week, label, flows[1], before)
    assert len(week.jobs()) == jobs + 1


def test_a_week_outlives_a_rank_and_a_node(week: Week, flows: list[subprocess.Popen[str]]) -> None:
    label, before, jobs = "2026-W42", week.versions(), len(week.jobs())
    flow = week.start(label)
    flows.append(flow)
    step = stop_after_a_checkpoint(week, label, flow)
    week.ranks()[0].kill()
    go_on(week)
    until(lambda: len(week.jobs()) == jobs + 2, flow, lambda: week.said(label))  # the flow's second try
    stop_after_a_checkpoint(week, label, flow, step)
    week.slurm.kill_node("n2")
    go_on(week)
    ends_with_a_candidate(week, label, flow, before)
    assert len(week.jobs()) == jobs + 2  # the second job changed its nodes
    assert [path.name for path in (week.folder / "jobs").glob("*/bad/*")] == ["n2"]
