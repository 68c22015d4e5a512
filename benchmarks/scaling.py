"""What is lost when two processes train one model, and what is forecast for many nodes?

    python -m benchmarks.scaling [--json] [--rounds 5]

The surveys of the demo's first week lie on an embedded S3 as the weekly flow publishes them, and every process streams
its crops from there. Weak scaling: two processes with one compute thread each train one model, twice the crops a step,
beside two processes that train a model each at the same time, so that both share the machine and the server with
another. They take turns; a turn starts new processes, and its first steps do not count. ``dp`` processes read and
compute different crops; ``cp`` processes share each crop. Steps of 8 crops a process are the demo's, a tenth of a
second; those of 128 take more than one second, as steps of large models on GPUs do.

The forecast for 1 to 16 nodes of 8 GPUs is ``sfm plan``'s with its assumptions: nothing of it was measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.common import CannotMeasureError, Goal, Measured, positive, run, say
from benchmarks.reconstruction import freeze_surveys, request_of, take_in_surveys
from flows import steps
from ingestion.embedded_s3 import BUCKET, serve
from ingestion.lake import Lake, LakeError
from seismic_model.config import MODEL_SIZES, RunConfig, Triple
from seismic_model.planner.assumptions import read_machine
from seismic_model.planner.forecast import Task
from seismic_model.planner.layout import Choice
from seismic_model.planner.search import PlanError, best
from seismic_model.train import read_config
from seismic_model.training.metrics import read_metrics

Row = dict[str, Any]

ALONE = "2 × one process"


@dataclass(frozen=True)
class Work:
    """Trainings that are compared with each other."""

    crops: int  # a process and step
    steps: int
    warm_up: int  # steps that do not count
    together: dict[str, int]  # layouts of two processes, and their cp


SMALL, LARGE = Work(8, 80, 10, {"dp 2": 1}), Work(128, 10, 2, {"dp 2": 1, "cp 2": 2})
GPU, NODES = "h200", (1, 2, 4, 8, 16)
FORECASTS: list[tuple[str, Triple]] = [("huge", (640, 640, 1024)), ("1.8b", (1536, 1536, 2048))]


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="turns of each layout")
    options = parser.parse_args()
    return run("scaling", lambda: measure(options.rounds), tabulate, as_json=options.json)


def measure(rounds: int) -> Measured:
    """Train in turns, then ask the planner. Raises ``CannotMeasureError``."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    try:
        with tempfile.TemporaryDirectory(prefix="scaling-") as scratch, serve(Path(scratch) / "s3"):
            asked = request_of(Lake(f"s3://{BUCKET}/scaling"), None)
            take_in_surveys(asked, Path(scratch))
            config = read_config(steps.plan(asked, freeze_surveys(asked), "plan"))
            measured = [row for work in (SMALL, LARGE) for row in measure_work(config, work, rounds)]
    except LakeError as error:
        raise CannotMeasureError(str(error)) from error
    rows = measured + [row for size, window in FORECASTS for row in forecast_rows(size, window)]
    return Measured(rows, goals(rows))


def measure_work(config: RunConfig, work: Work, rounds: int) -> list[Row]:
    """One row a layout."""
    return rows_of(work, [measure_turn(config, work, number) for number in range(rounds)])


def measure_turn(config: RunConfig, work: Work, number: int) -> dict[str, Row]:
    """One training of each layout."""
    name = f"{work.crops}-{number}"
    alone = [variant(config, work, f"alone-{name}-{seed}", 1, 1, seed) for seed in (0, 1)]
    turn = {ALONE: train_at_once(work, alone, [1, 1])}
    for layout, cp in work.together.items():
        joined = variant(config, work, f"{layout.replace(' ', '')}-{name}", 2, cp, 0)
        turn[layout] = train_at_once(work, [joined], [2])
    said = ", ".join(f"{name} {row['crops_per_second']:.1f} crops/s" for name, row in turn.items())
    say(f"{work.crops} crops, turn {number}: {said}")
    return turn


def variant(config: RunConfig, work: Work, name: str, processes: int, cp: int, seed: int) -> RunConfig:
    """The demo's recipe for some processes, on the lake."""
    changed = {"run": name, "cp": cp, "seed": seed, "batch": work.crops * processes, "strategy": "ddp"}
    lasting = {
        "steps": work.steps,
        "checkpoint_every": work.steps,
        "warmup_steps": min(config.warmup_steps, work.steps),
    }
    config = RunConfig.model_validate(config.model_dump() | changed | lasting)
    Lake(config.lake).write(config.key, config.to_bytes())
    return config


def train_at_once(work: Work, configs: Sequence[RunConfig], processes: Sequence[int]) -> Row:
    """Train side by side, and count what is done while all of them train."""
    lake = Lake(configs[0].lake)
    with ExitStack() as stack:
        jobs = [stack.enter_context(_started(*each)) for each in zip(configs, processes, strict=True)]
        codes = [job.wait() for job in jobs]
    if any(codes):
        raise CannotMeasureError(f"training of {', '.join(each.run for each in configs)} ended with {codes}")
    runs = [read_metrics(lake, each.run) for each in configs]
    return counted(runs, [each.batch for each in configs], work.warm_up)


@contextmanager
def _started(config: RunConfig, processes: int) -> Iterator[subprocess.Popen[bytes]]:
    """A training that ends with the block; its output is that of this program, on standard error."""
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "seismic_model.train", "--config", Lake(config.lake).uri_of(config.key)]
    job = subprocess.Popen([sys.executable, *command], env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=sys.stderr)
    try:
        yield job
    finally:
        job.terminate()
        job.wait()


def counted(runs: Sequence[Sequence[Row]], batches: Sequence[int], warm_up: int) -> Row:
    """Crops a second, between the last end of a warm-up and the first end of a training."""
    began = max(entries[warm_up - 1]["time"] for entries in runs)
    ended = min(entries[-1]["time"] for entries in runs)
    inside = [[e for e in entries if began < e["time"] <= ended] for entries in runs]
    if not all(inside):
        raise CannotMeasureError("two trainings did not overlap; the machine is too busy to tell")
    crops = sum(len(entries) * batch for entries, batch in zip(inside, batches, strict=True))
    return {
        "crops_per_second": crops / (ended - began),
        "data_wait_share": statistics.mean(e["data_wait_share"] for entries in inside for e in entries),
        "communication_share": statistics.mean(e["communication_share"] for entries in inside for e in entries),
    }


def rows_of(work: Work, turns: Sequence[dict[str, Row]]) -> list[Row]:
    """Medians over turns; efficiency is the median of its ratios within a turn."""
    rows = []
    for layout in (ALONE, *work.together):
        medians = {key: statistics.median(turn[layout][key] for turn in turns) for key in turns[0][layout]}
        ratios = [turn[layout]["crops_per_second"] / turn[ALONE]["crops_per_second"] for turn in turns]
        told = {"layout": layout, "crops_a_process": work.crops}
        rows.append(told | medians | {"efficiency": statistics.median(ratios), "turns": ratios})
    return rows


def forecast_rows(size: str, window: Triple) -> list[Row]:
    """What the planner says of more and more nodes, each in its fastest layout; nothing where it does not fit."""
    machine = read_machine(GPU)
    rows: list[Row] = []
    for nodes in NODES:
        try:
            found = best(Task(MODEL_SIZES[size], window), nodes * machine.node, machine, Choice())
        except PlanError as error:
            say(str(error).splitlines()[0])
            continue
        row: Row = (
            {"forecast": f"{size}, {'×'.join(map(str, window))}", "nodes": nodes, "gpu": GPU}
            | {"cp": found.layout.cp, "strategy": found.layout.strategy, "crops_per_second": found.samples_per_second}
            | {"mfu": found.mfu, "assumptions": {name: value for name, value, _ in machine.lines()}}
        )
        first = rows[0] if rows else row
        alike = first["crops_per_second"] / first["nodes"] * nodes
        rows.append(row | {"efficiency": found.samples_per_second / alike})
    return rows


def goals(rows: Sequence[Row]) -> list[Goal]:
    """Of data parallelism; rows show the rest."""
    found = {row["crops_a_process"]: row["efficiency"] for row in rows if row.get("layout") == "dp 2"}
    return [
        Goal(f"two processes beside two alone, {crops} crops a process", value, "of their crops/s", 0.93, "higher")
        for crops, value in found.items()
    ]


def tabulate(rows: Sequence[Row]) -> Table:
    """Rows as people read them."""
    table = Table("what", "nodes", "layout", "crops/s", "efficiency", "data wait", "communication", box=SIMPLE_HEAD)
    for row in rows:
        if "layout" in row:
            shares = (f"{row[key]:.1%}" for key in ("data_wait_share", "communication_share"))
            what = f"measured: {row['crops_a_process']} crops a process"
            speed = (f"{row['crops_per_second']:.1f}", f"{row['efficiency']:.3f}")
            table.add_row(what, "1", row["layout"], *speed, *shares)
        else:
            layout = f"cp {row['cp']}, {row['strategy']}, MFU {row['mfu']:.0%}"
            speed = (f"{row['crops_per_second']:.3g}", f"{row['efficiency']:.3f}")
            table.add_row(f"forecast: {row['forecast']}", str(row["nodes"]), layout, *speed, "", "")
    if assumed := next((row["assumptions"] for row in rows if "assumptions" in row), None):
        listed = ", ".join(f"{name} {value:g}" for name, value in assumed.items())
        table.caption = f"forecast for {GPU}, bfloat16, {listed} (sources: seismic_model/planner/assumptions.yaml)"
    return table


if __name__ == "__main__":
    raise SystemExit(main())
