"""What every benchmark says and how: a table for people, one JSON object for programs.

    {"benchmark", "machine", "versions", "rows": [...],
     "goals": [{"name", "value", "unit", "goal", "better": "higher|lower", "met"}]}

A benchmark exits 0 whatever its figures are, and 1 when it could not measure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

_WIDTH = 160  # columns of a table that goes to a file
_PACKAGES = ("seismic-retraining", "torch", "deepspeed", "numpy", "zarr", "obstore", "transformers")


class CannotMeasureError(Exception):
    """The benchmark has no figure to give; the message says what was found and what to do."""


@dataclass(frozen=True)
class Goal:
    """One figure and what it should reach."""

    name: str
    value: float
    unit: str
    goal: float
    better: Literal["higher", "lower"]

    @property
    def met(self) -> bool:
        """Whether ``value`` is at least as good as ``goal``."""
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal


@dataclass(frozen=True)
class Measured:
    """What one run of a benchmark found."""

    rows: list[dict[str, Any]]
    goals: list[Goal]


def run(
    benchmark: str,
    measure: Callable[[], Measured],
    table: Callable[[list[dict[str, Any]]], Table],
    *,
    as_json: bool,
) -> int:
    """Measure, print to standard output, and return the exit code; what ``measure`` prints goes to standard error."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    try:
        with redirect_stdout(sys.stderr):
            measured = measure()
    except CannotMeasureError as error:
        say(f"{benchmark} could not be measured: {error}")
        return 1
    if as_json:
        print(json.dumps(report(benchmark, measured), allow_nan=False))
    else:
        _show(benchmark, measured, table(measured.rows))
    return 0


def report(benchmark: str, measured: Measured) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    return {
        "benchmark": benchmark,
        "machine": machine(),
        "versions": versions(),
        "rows": measured.rows,
        "goals": [asdict(goal) | {"met": goal.met} for goal in measured.goals],
    }


def say(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def seeds_in(text: str) -> list[int]:
    """Of an option such as 0,1,2."""
    found = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(found) != len(text.split(",")) or len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different seeds; expected e.g. 0,1,2")
    return found


def positive(text: str) -> int:
    """Of an option that is at least 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def machine() -> str:
    """Processor, cores, memory and system in words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {_processor()}, {memory:.0f} GiB, {platform.system()} {platform.release()}"


def versions() -> Mapping[str, str]:
    """Versions of Python and of the packages that decide the figures, where they are installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):  # transformers, which one benchmark alone needs
            found[name] = version(name)
    return found


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _show(benchmark: str, measured: Measured, table: Table) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    table.title = benchmark
    console.print(table)
    for goal in measured.goals:
        reached = "met" if goal.met else "MISSED"
        side = "at least" if goal.better == "higher" else "at most"
        console.print(
            f"{reached}: {goal.name}: {goal.value:.3f} {goal.unit}, goal {side} {goal.goal:g}", highlight=False
        )
    console.print(f"{machine()}\n{', '.join(' '.join(each) for each in versions().items())}", highlight=False)
