"""One real Slurm for all tests of this folder; each finds it whole and idle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster, missing_programs, serve_slurm
from slurm_jobs import launcher_for, with_worker

from flows.launchers.slurm import SlurmLauncher
from flows.launchers.slurm_settings import SlurmSettings

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Here the longest first, so that two workers end together."""
    items.sort(key=lambda item: item.path.parent == HERE and "week" not in item.path.name)


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if (missing := missing_programs()) or os.geteuid():
        found = f"no {', '.join(missing)}" if missing else "not root"
        reason = f"Slurm cannot be started here ({found}): as root, apt-get install slurm-wlm munge"
        if "NEEDS_SLURM" in os.environ:  # make test-cluster
            pytest.fail(reason)
        pytest.skip(reason)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with serve_slurm(tmp_path_factory.mktemp("slurm"), first_job=1 + 200 * worker) as cluster:
        os.environ.update(cluster.environment)
        yield cluster
        del os.environ["SLURM_CONF"]


@pytest.fixture
def slurm(started: Cluster) -> Iterator[Cluster]:
    yield started
    started.heal()


@pytest.fixture(scope="session")
def nodes() -> dict[str, Any]:
    """What settings say of them: one process on each."""
    return {
        "python": sys.executable,
        "working_directory": str(HERE.parents[1]),
        "processes_per_node": 1,
        "environment": {"OMP_NUM_THREADS": "1"},
    }


@pytest.fixture
def settings(slurm: Cluster, nodes: dict[str, Any], tmp_path: Path) -> SlurmSettings:
    return SlurmSettings(folder=str(tmp_path / "jobs"), **nodes)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return with_worker(tmp_path)


@pytest.fixture
def launcher(settings: SlurmSettings, place: Path) -> SlurmLauncher:
    return launcher_for(settings, place)
