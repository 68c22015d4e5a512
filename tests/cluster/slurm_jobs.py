"""Jobs of real torchrun processes that stand in for a training."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from flows.launchers import Job, State, Status
from flows.launchers.slurm import SlurmLauncher
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
while "wait" in how and not (folder / "go").exists():
    time.sleep(0.05)
sys.exit(int(code))
"""


def with_worker(place: Path) -> Path:
    (place / "sfm_test_worker.py").write_text(WORKER)
    return place


def launcher_for(settings: SlurmSettings, place: Path) -> SlurmLauncher:
    path = f"{place}:{settings.working_directory}"
    return SlurmLauncher(settings.model_copy(update={"environment": settings.environment | {"PYTHONPATH": path}}))


def job(place: Path, *arguments: str, key: str = "lake/run'; $(touch x)", processes: int = 2) -> Job:
    return Job(key, "run'; $(touch y)", "sfm_test_worker", (str(place), *arguments), processes)


def started_in(place: Path) -> list[tuple[int, int, str, int]]:
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
        return len(started_in(place)) >= count

    until(ready, f"only {started_in(place)} ranks of {count} started; {launcher.find(job(place).key)}")
