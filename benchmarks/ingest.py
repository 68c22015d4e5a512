"""What does taking in a survey with all checks cost, against the same without?

    python -m benchmarks.ingest [--json] [--megabytes 500] [--rounds 3]

One survey as IBM and as IEEE floats, on this machine's disk and on an embedded S3, by three ways: ``survey ingest``
with preflight, verification of every sample, statistics and publication; a bare loop of segyio into Zarr (with MDIO's
own compression, and as ``bare-bits`` with ours); and ``mdio.segy_to_mdio``. The ways take turns; each turn is a new
process that has converted a small survey before its clock starts. multidimio has one turn, since it takes that long.
The ceiling is our compression alone, of chunks in memory, on all processors. Peak memory is what all processes of a
way hold together.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.common import CannotMeasureError, Goal, Measured, positive, run, say
from ingestion.embedded_s3 import BUCKET, serve
from ingestion.lake import Lake
from ingestion.synthetic import BASINS, make_survey, write_segy
from ingestion.synthetic.survey import SyntheticSurvey

Row = dict[str, Any]
Format = Literal["ibm", "ieee"]

FORMATS: tuple[Format, ...] = ("ibm", "ieee")
_BLOCK = (64, 64, 900)
_TURN_SECONDS = 1800
_MEMORY_GOAL = 600.0  # MB


@dataclass(frozen=True)
class Turn:
    """One conversion."""

    seconds: float
    peak_mb: float


def main() -> int:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], epilog=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--megabytes", type=positive, default=500, help="size of the survey")
    parser.add_argument("--rounds", type=positive, default=3, help="turns of ours and of the bare loop")
    options = parser.parse_args()
    return run("ingest", lambda: measure(options.megabytes, options.rounds), _table, as_json=options.json)


def measure(megabytes: int, rounds: int) -> Measured:
    """All formats and stores."""
    rows: list[Row] = []
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        say("making the survey")
        survey = large_survey(megabytes)
        small = enlarged(survey, (128, 64))
        for sample_format in FORMATS:
            write_segy(survey, root / f"large-{sample_format}.sgy", sample_format)
            write_segy(small, root / f"small-{sample_format}.sgy", sample_format)
        del survey, small
        with serve(root / "s3"):
            for store in ("disk", "s3"):
                for sample_format in FORMATS:
                    files = _placed(root, store, sample_format)
                    found = _compare(store, sample_format, files, rounds, root)
                    rows += found
                    goals += _goals(store, sample_format, found)
    return Measured(rows, goals)


def large_survey(megabytes: int) -> SyntheticSurvey:
    """A made block, mirrored to the size with noise of its own at every place, so that nothing repeats."""
    block = make_survey(BASINS["salt_flank"], 0, _BLOCK)
    traces = megabytes * 1_000_000 // (240 + 4 * _BLOCK[2])
    edge = int(traces**0.5)
    return enlarged(block, (traces // edge, edge))


def enlarged(block: SyntheticSurvey, lines: tuple[int, int]) -> SyntheticSurvey:
    """``block`` with so many inlines and crosslines, all live."""
    shape = (*lines, block.amplitude_IXZ.shape[2])
    pads = [(0, max(0, want - have)) for want, have in zip(lines, block.amplitude_IXZ.shape, strict=False)]
    amplitude_IXZ = np.pad(block.amplitude_IXZ, [*pads, (0, 0)], mode="symmetric")[: lines[0], : lines[1]].copy()
    generator = np.random.default_rng(0)
    for i in range(shape[0]):
        noise_XZ = generator.standard_normal(shape[1:], np.float32) * np.float32(0.05 * block.basin.amplitude)
        amplitude_IXZ[i] = _to_21_bits(amplitude_IXZ[i] + noise_XZ)
    i_IX, x_IX = np.mgrid[: lines[0], : lines[1]]
    whole = np.ones(lines, bool)
    return replace(
        block,
        amplitude_IXZ=amplitude_IXZ,
        fault_IXZ=np.zeros((1, 1, 1), bool),
        recorded_IX=whole,
        live_IX=whole,
        inlines=1000 + np.arange(lines[0], dtype=np.int32),
        crosslines=2000 + np.arange(lines[1], dtype=np.int32),
        x_IX=500_000 + 25.0 * i_IX,
        y_IX=6_000_000 + 12.5 * x_IX,
    )


def _to_21_bits(samples: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What IBM and IEEE floats hold alike: the last three bits of the fraction are zero."""
    return (samples.view(np.uint32) & np.uint32(0xFFFFFFF8)).view(np.float32)


def _placed(root: Path, store: str, sample_format: Format) -> tuple[str, str]:
    """URIs of the small and the large file where the ways read them."""
    files = [root / f"{size}-{sample_format}.sgy" for size in ("small", "large")]
    if store == "disk":
        return str(files[0]), str(files[1])
    lake = Lake(f"s3://{BUCKET}/incoming")
    for file in files:
        lake.write(file.name, file)
    return lake.uri_of(files[0].name), lake.uri_of(files[1].name)


def _compare(store: str, sample_format: Format, files: tuple[str, str], rounds: int, root: Path) -> list[Row]:
    turns: dict[str, list[Turn]] = {}
    for number in range(rounds):
        ways = ["ours", "bare", "bare-bits"] if number % 2 == 0 else ["bare-bits", "bare", "ours"]
        for way in [*ways, "multidimio"] if number == 0 else ways:
            say(f"{sample_format} on {store}, round {number + 1}: {way}")
            turns.setdefault(way, []).append(_turn(way, files, _target(store, root, f"{way}-{sample_format}-{number}")))
    if store == "disk" and sample_format == "ieee":
        turns["compression"] = [_turn("compression", files, str(root / "compression"))]
    size = (root / f"large-{sample_format}.sgy").stat().st_size / 1e6
    ours = [turn.seconds for turn in turns["ours"]]
    return [
        {
            "format": sample_format,
            "store": store,
            "way": way,
            "seconds": statistics.median(turn.seconds for turn in taken),
            "mb_per_second": size / statistics.median(turn.seconds for turn in taken),
            "ours_is_faster": statistics.median(t.seconds / o for t, o in zip(taken, ours, strict=False)),
            "peak_mb": max(turn.peak_mb for turn in taken),
            "turns": len(taken),
        }
        for way, taken in turns.items()
    ]


def _target(store: str, root: Path, name: str) -> str:
    return str(root / name) if store == "disk" else f"s3://{BUCKET}/{name}"


def _turn(way: str, files: tuple[str, str], target: str) -> Turn:
    """Run one way in a new process, and watch how much memory it and its children hold."""
    command = [sys.executable, "-m", "benchmarks.references.converters", way, *files, target]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=output, stderr=log, env=os.environ, text=True)
        peak, deadline = 0, time.monotonic() + _TURN_SECONDS
        while process.poll() is None:
            peak = max(peak, _held(process.pid))
            if time.monotonic() > deadline:
                process.kill()
                raise CannotMeasureError(f"{way} did not end within {_TURN_SECONDS} seconds")
            time.sleep(0.05)
        output.seek(0)
        log.seek(0)
        if process.returncode:
            raise CannotMeasureError(f"{way} ended with {process.returncode}: {log.read()[-2000:]}")
        return Turn(json.loads(output.read().splitlines()[-1])["seconds"], peak / 1e6)


def _held(pid: int) -> int:
    """Resident bytes of a process and all that it started."""
    held = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                held += each.memory_info().rss
    return held


def _goals(store: str, sample_format: Format, rows: list[Row]) -> list[Goal]:
    by_way = {row["way"]: row for row in rows}
    where = f"{sample_format} on {store}"
    return [
        Goal(f"{where}: speed against the bare loop", by_way["bare"]["ours_is_faster"], "×", 1.0, "higher"),
        Goal(f"{where}: speed against multidimio", by_way["multidimio"]["ours_is_faster"], "×", 2.0, "higher"),
        Goal(f"{where}: peak memory of ours", by_way["ours"]["peak_mb"], "MB", _MEMORY_GOAL, "lower"),
    ]


def _table(rows: list[Row]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for name in ("format", "store", "way"):
        table.add_column(name)
    for name in ("seconds", "MB/s", "ours is faster by", "peak MB", "turns"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["format"],
            row["store"],
            row["way"],
            f"{row['seconds']:.1f}",
            f"{row['mb_per_second']:.0f}",
            f"{row['ours_is_faster']:.2f} ×",
            f"{row['peak_mb']:.0f}",
            str(row["turns"]),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
