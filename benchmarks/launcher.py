"""What does a launcher cost beside starting the same job by hand?

    python -m benchmarks.launcher [--json] [--rounds 5]

A job of two processes that only say when they began and when they ended, started in turns: as one plain process (the
floor: nothing can be seen sooner than a Python that starts), by a bare ``torchrun``, and by the local launcher as the
flow does it. Where ``SLURM_CONF`` names a cluster whose nodes share this machine's files, such as one of ``python
tests/cluster/slurm_cluster.py FOLDER``, also on two nodes: by a batch script of a few lines, by the launcher's own
script handed to ``sbatch --wait``, and by the launcher.

Counted are the seconds from starting or submitting to the first line of the last process, and from the end of the last
process until whoever follows knows. The flow asks every two seconds in a job's first minute, every twenty later; jobs
last differently long, so that its questions fall at all moments.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.common import CannotMeasureError, Goal, Measured, positive, run, say
from flows.launchers import Job, Launcher, LauncherError, State
from flows.launchers.local import LocalLauncher
from flows.launchers.slurm import SlurmLauncher, render, state_folder
from flows.launchers.slurm_settings import SlurmSettings
from flows.training import Patience

Row = dict[str, Any]
Way = Callable[[Job], None]  # starts a job and comes back when it is known to have ended well

REPOSITORY = Path(__file__).parents[1]
PROCESSES, LIMIT = 2, 180.0  # seconds for one job
FLOOR, TORCHRUN, LOCAL = "one plain process", "torchrun", "local launcher"
BY_HAND, SCRIPT, SLURM = "sbatch, a few lines", "sbatch, the launcher's script", "Slurm launcher"
FIGURES = {"first_seconds": "to the first line", "notice_seconds": "end to notice"}
COMPARED = [  # way, peer, figure, at most so many seconds more
    (LOCAL, TORCHRUN, "first_seconds", 1.0),
    (LOCAL, TORCHRUN, "notice_seconds", 2.0),
    (SLURM, SCRIPT, "first_seconds", 1.0),
    (SLURM, SCRIPT, "notice_seconds", 2.0),
    (SLURM, BY_HAND, "first_seconds", 5.0),  # the nodes' health is checked before
]
WORKER = """
import os, pathlib, sys, time
began = time.time()
folder, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
time.sleep(seconds)
(folder / os.environ.get("RANK", "0")).write_text(f"{began} {time.time()}")
"""
FEW_LINES = """#!/bin/bash
#SBATCH --nodes={nodes} --ntasks-per-node=1 --exclusive --mem=0 --output=/dev/null
export PYTHONPATH={path} OMP_NUM_THREADS=1
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(scontrol show node --oneliner "$first" | sed 's/.* NodeAddr=\\([^ ]*\\).*/\\1/')
srun {python} -m torch.distributed.run --nnodes={nodes} --nproc-per-node=1 --rdzv-backend=c10d \\
  --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$address:$((20000 + SLURM_JOB_ID % 10000))" -m {module} {arguments}
"""


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launcher", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="turns of each way")
    options = parser.parse_args()
    return run("launcher", lambda: measure(options.rounds), tabulate, as_json=options.json)


def measure(rounds: int) -> Measured:
    """Start jobs in turns, here and on the cluster of ``SLURM_CONF``. Raises ``CannotMeasureError``."""
    with tempfile.TemporaryDirectory(prefix="launcher-") as name:
        scratch = Path(name)
        (scratch / "sfm_overhead_worker.py").write_text(WORKER)
        ways = ways_here(scratch) | (ways_on_slurm(scratch) if "SLURM_CONF" in os.environ else {})
        turns: list[dict[str, Row]] = []
        for number in range(rounds):
            seconds = 1 + Patience().poll * number / rounds
            shifted = [*ways][number % len(ways) :] + [*ways][: number % len(ways)]
            turns.append({way: timed(ways[way], scratch, seconds, f"{number} {way}") for way in shifted})
            say(f"turn {number}: " + ", ".join(f"{way} {turns[-1][way]['first_seconds']:.2f} s" for way in ways))
    rows = rows_of(list(ways), turns)
    return Measured(rows, goals(rows))


def timed(way: Way, scratch: Path, seconds: float, name: str) -> Row:
    """One job that lasts ``seconds``."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    variables = {"PYTHONPATH": f"{scratch}:{REPOSITORY}", "OMP_NUM_THREADS": "1"}
    job = Job(f"{folder} {name}", "overhead", "sfm_overhead_worker", (str(folder), str(seconds)), PROCESSES, variables)
    submitted = time.time()
    try:
        way(job)
    except (LauncherError, subprocess.SubprocessError) as error:
        raise CannotMeasureError(f"{name} did not run: {error}") from error
    known = time.time()
    said = [[float(each) for each in file.read_text().split()] for file in folder.iterdir()]
    if not said:
        raise CannotMeasureError(f"{name} ended and no process of it had begun")
    began, ended = (max(moments) for moments in zip(*said, strict=True))
    return {"first_seconds": began - submitted, "notice_seconds": known - ended}


def ways_here(scratch: Path) -> dict[str, Way]:
    """On this machine."""

    def plain(job: Job) -> None:
        _wait_for([sys.executable, "-m", job.module, *job.arguments], job)

    def torchrun(job: Job) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.processes}"]
        _wait_for([*command, "-m", job.module, *job.arguments], job)

    return {FLOOR: plain, TORCHRUN: torchrun, LOCAL: lambda job: follow(LocalLauncher(scratch / "local"), job)}


def ways_on_slurm(scratch: Path) -> dict[str, Way]:
    """On two nodes of the cluster that ``SLURM_CONF`` names. Raises ``CannotMeasureError``."""
    if shutil.which("sbatch") is None:
        raise CannotMeasureError("SLURM_CONF is set and there is no sbatch; install Slurm, or unset it")
    told = {"python": sys.executable, "working_directory": str(REPOSITORY), "processes_per_node": 1}
    settings = SlurmSettings.model_validate(told | {"folder": str(scratch / "slurm")})

    def by_hand(job: Job) -> None:
        words = {"nodes": job.processes, "python": shlex.quote(sys.executable), "module": job.module}
        arguments, path = shlex.join(job.arguments), shlex.quote(job.environment["PYTHONPATH"])
        _sbatch(scratch / "few-lines.sh", FEW_LINES.format(arguments=arguments, path=path, **words), job)

    def script(job: Job) -> None:
        state = Path(state_folder(job.key, settings))
        state.mkdir(parents=True)
        _sbatch(state / "script.sh", render(job, settings), job)

    return {BY_HAND: by_hand, SCRIPT: script, SLURM: lambda job: follow(SlurmLauncher(settings), job)}


def follow(launcher: Launcher, job: Job) -> None:
    """Submit ``job`` and ask for it as the flow does until it has ended. Raises ``CannotMeasureError``."""
    launcher.submit(job)
    deadline = time.monotonic() + LIMIT
    while (status := launcher.find(job.key)) is None or status.state.lives:
        if time.monotonic() > deadline:
            launcher.cancel(job.key)
            raise CannotMeasureError(f"a job had not ended after {LIMIT:.0f} s: {status}")
        launcher.wait(job.key, Patience().poll)
    if status.state is not State.SUCCEEDED:
        raise CannotMeasureError(f"a job failed: {status}")


def _sbatch(file: Path, script: str, job: Job) -> None:
    file.write_text(script)
    _wait_for(["sbatch", "--wait", "--parsable", str(file)], job)


def _wait_for(command: Sequence[str], job: Job) -> None:
    subprocess.run(command, env=os.environ | job.environment, stdout=subprocess.DEVNULL, check=True, timeout=LIMIT)


def rows_of(ways: Sequence[str], turns: Sequence[dict[str, Row]]) -> list[Row]:
    """One a way: all turns, and their median."""
    return [
        {"way": way}
        | {figure: statistics.median(turn[way][figure] for turn in turns) for figure in FIGURES}
        | {f"{figure}_turns": [turn[way][figure] for turn in turns] for figure in FIGURES}
        for way in ways
    ]


def goals(rows: Sequence[Row]) -> list[Goal]:
    """What a launcher takes more than its peers in the same turn; the flow may know of the end one question later."""
    found = {row["way"]: row for row in rows}
    return [
        Goal(f"{way}: {FIGURES[figure]}, more than {peer}", _more(found[way], found[peer], figure), "s", most, "lower")
        for way, peer, figure, most in COMPARED
        if way in found
    ]


def _more(row: Row, peer: Row, figure: str) -> float:
    both = zip(row[f"{figure}_turns"], peer[f"{figure}_turns"], strict=True)
    return float(statistics.median(ours - theirs for ours, theirs in both))


def tabulate(rows: Sequence[Row]) -> Table:
    """Rows as people read them."""
    table = Table("way", "to the first line, s", "turns", "end to notice, s", "turns", box=SIMPLE_HEAD)
    for row in rows:
        cells = []
        for figure in FIGURES:
            cells += [f"{row[figure]:.2f}", " ".join(f"{each:.2f}" for each in row[f"{figure}_turns"])]
        table.add_row(row["way"], *cells)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
