"""One real Slurm for all tests of this folder; each finds it whole and idle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster, missing_programs, serve_slurm

from flows.launchers.slurm_settings import SlurmSettings

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if (missing := missing_programs()) or os.geteuid():
        found = f"no {', '.join(missing)}" if missing else "not root"
        reason = f"Slurm cannot be started here ({found}): as root, apt-get install slurm-wlm munge"
        if "NEEDS_SLURM" in os.environ:  # make test-cluster
            pytest.fail(reason)
        pytest.skip(reason)
    with serve_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        os.environ.update(cluster.environment)
        yield cluster
        del os.environ["SLURM_CONF"]


@pytest.fixture
def slurm(started: Cluster) -> Iterator[Cluster]:
    yield started
    started.heal()


@pytest.fixture
def settings(slurm: Cluster, tmp_path: Path) -> SlurmSettings:
    """One process on each node."""
    return SlurmSettings(
        folder=str(tmp_path / "jobs"),
        python=sys.executable,
        working_directory=str(REPOSITORY),
        processes_per_node=1,
        environment={"OMP_NUM_THREADS": "1"},
    )
