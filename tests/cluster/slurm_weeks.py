"""Weekly flows through a real Slurm, each in a process of its own, and what may happen to them in mid-training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml
from slurm_cluster import NODES, Cluster
from weeks import SETTINGS

from ingestion.lake import Lake
from seismic_model.registry.versions import aliases, connect
from seismic_model.training.checkpoint import latest

REPOSITORY = Path(__file__).parents[2]
STEPS = 72  # room for one trouble after the other
_RECIPE = SETTINGS["recipes"]["tiny"] | {"steps": STEPS, "checkpoint_every": 6}
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass
class Week:
    """One week on a lake with its registry, trained on two nodes of one cluster."""

    lake: Lake
    folder: Path
    slurm: Cluster
    label: str
    jobs: Path  # shared by all nodes
    flows: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def tracking(self) -> str:
        return f"sqlite:///{self.folder / 'mlflow.db'}"

    @property
    def run(self) -> str:
        return f"{self.label.lower()}-tiny-s0"

    def start(self, hang_minutes: float = 10, **cluster: object) -> None:
        """A flow in a process of its own; what earlier ones said is forgotten."""
        slurm = {
            "folder": str(self.jobs),
            "python": str(node_python(self.folder)),
            "working_directory": str(REPOSITORY),
            "processes_per_node": 1,
            "save_seconds": 10,
            "environment": {
                name: value for name, value in os.environ.items() if name.startswith("AWS_") and name not in _SECRETS
            },
        }
        recipes = {"recipes": {"tiny": _RECIPE}, "hang_minutes": hang_minutes}
        settings = self.folder / f"{self.label}.yaml"
        settings.write_text(yaml.safe_dump(SETTINGS | recipes | {"slurm": slurm | cluster}))
        flow = [sys.executable, str(REPOSITORY / "flows/weekly_retrain.py"), "--no-pylint", "--config", "settings"]
        flow += [str(settings), "run", "--max-workers=2", "--lake", self.lake.uri, "--week", self.label]
        with self._output.open("w") as output:
            started = subprocess.Popen(
                [*flow, "--launcher=slurm", "--force"],
                env=os.environ
                | {
                    "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(self.folder),
                    "MLFLOW_TRACKING_URI": self.tracking,
                    "OMP_NUM_THREADS": "1",
                },
                cwd=self.folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.flows.append(started)

    def kill(self) -> None:
        """The flow and its steps, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.flows[-1].pid, signal.SIGKILL)
        self.flows[-1].wait()

    def ends_with_a_candidate(self, before: int = 0) -> None:
        """Its training is whole, and one version more than ``before`` is up for review."""
        assert self.flows[-1].wait() == 0, self.said
        assert self.reached == STEPS
        assert self.versions == before + 1, self.said
        assert self.told["trained"] == f"{STEPS} steps, run {self.run}"
        assert self.told["decision"] == f"up for review as version {before + 1}"

    def fails(self) -> str:
        """What the published summary says then; it is on the page too."""
        assert self.flows[-1].wait() != 0, self.said
        why = self.told["trained"]
        assert why.startswith("failed: "), why
        assert "failed: " in self.lake.read(f"weeks/{self.label}/report.html").decode()
        return why

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for that while the flow goes on."""
        for _ in range(3000):
            if condition():
                return
            assert self.flows[-1].poll() is None, f"the flow ended too early:\n{self.said}"
            time.sleep(0.1)
        raise AssertionError(self.said)

    def stops_after_a_checkpoint(self, step: int = 0) -> int:
        """Stop the ranks, in the middle of whatever they do, once one after ``step`` is committed; its step."""
        self.until(lambda: self.reached > step)
        for rank in self.ranks:
            with suppress(psutil.Error):
                rank.suspend()
        reached = self.reached
        assert reached < STEPS, "the training was too fast to be disturbed"
        return reached

    def goes_on(self, *but: psutil.Process) -> None:
        for rank in self.ranks:
            with suppress(psutil.Error):
                if rank not in but:
                    rank.resume()

    @property
    def reached(self) -> int:
        newest = latest(self.lake, self.run)
        return newest.step if newest else 0

    @property
    def ranks(self) -> list[psutil.Process]:
        return [rank for node in NODES for rank in self.ranks_on(node)]

    def ranks_on(self, node: str) -> list[psutil.Process]:
        return [each for each in self.slurm.processes(node) if _is_rank(each)]

    @property
    def versions(self) -> int:
        return int(aliases(connect(self.tracking)).get("challenger", "0"))

    @property
    def numbers(self) -> list[str]:
        """Job numbers that Slurm was given for this week."""
        return [each for path in self.jobs.glob("*/submitted") for each in path.read_text().split()]

    @property
    def log(self) -> str:
        """Of all jobs of this week."""
        return "".join(path.read_text(errors="replace") for path in self.jobs.glob("*/log"))

    @property
    def told(self) -> dict[str, str]:
        """The week's summary on the lake."""
        return {
            line["name"]: line["value"] for line in self.lake.read_json(f"weeks/{self.label}/summary.json")["lines"]
        }

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def _output(self) -> Path:
        return self.folder / f"{self.label}.out"


@contextmanager
def week_on(lake: Lake, folder: Path, slurm: Cluster, label: str, jobs: Path | None = None) -> Iterator[Week]:
    """A week whose flows are gone once the block ends."""
    week = Week(lake, folder, slurm, label, jobs or folder / f"jobs-{label}")
    try:
        yield week
    finally:
        for flow in week.flows:
            with suppress(ProcessLookupError):
                os.killpg(flow.pid, signal.SIGKILL)


def node_python(folder: Path) -> Path:
    """A python for the nodes, which lets jobs have the lake's credentials from a file that nobody else can read."""
    secrets, python = folder / "secrets", folder / "python"
    secrets.touch(mode=0o600)
    secrets.write_text("".join(f"{name}={os.environ[name]}\n" for name in _SECRETS))
    python.write_text(f'#!/bin/sh\nset -a\n. {secrets}\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    return python


def _is_rank(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "RANK" in process.environ() and "seismic_model.train" in process.cmdline()
    return False
