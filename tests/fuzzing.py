"""Mutated SEG-Y by seed, and workers that look at it under limits of memory and time."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from segy_bytes import draft

from ingestion.console import echo_inspection
from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.preflight.inspection import inspect
from ingestion.source import open_source
from ingestion.spec import SurveySpec

ADDRESSES = 3 * 2**30  # bytes that a worker may add to its address space: stacks and heaps of threads are most of it
SECONDS = 30.0  # for one case of some kilobytes; a hang takes longer
EDGES = {
    1: [0, 1, 0x20, 0x40, 0x7F, 0x80, 0xFF],
    2: [0, 1, 2, 5, 16, 240, 0x7FFF, 0x8000, 0xFFFF, 0xFFFE],
    4: [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7F800000, 0x7FC00000, 0x01020304, 0x04030201],
    8: [0, 1, 3600, 2**31, 2**63 - 1, 2**63, 2**64 - 1],
}
FILE_FIELDS = [(3217, 2), (3221, 2), (3225, 2), (3255, 2), (3269, 4), (3273, 8), (3297, 4), (3501, 2), (3503, 2)]
FILE_FIELDS += [(3505, 2), (3507, 4), (3513, 8), (3521, 8), (3529, 4)]
TRACE_FIELDS = [(1, 4), (9, 4), (21, 4), (29, 2), (37, 4), (71, 2), (73, 4), (77, 4), (89, 2), (109, 2), (115, 2)]
TRACE_FIELDS += [(117, 2), (181, 4), (185, 4), (189, 4), (193, 4), (215, 2)]
SPECS: list[dict[str, Any]] = [
    {"endianness": "big"},
    {"endianness": "little"},
    {"sample_format": "ieee"},
    {"sample_format": "int8"},
    {"inline_byte": 237, "crossline_byte": 1},
    {"inline_byte": 9, "crossline_byte": 21},
    {"duplicates": "mean"},
    {"duplicates": "last", "non_finite": "dead"},
    {"drop_traces": [1, 2, 40]},
    {"sample_interval": 0.001, "first_sample": -1e9},
    {"samples_per_trace": 7},
    {"first_trace_byte": 3605},
    {"coordinate_scalar": -32768},
    {"domain": "depth", "depth_unit": "ft"},
]


@lru_cache
def bases() -> list[bytes]:
    """Small whole files of several formats, orders and revisions."""
    made = []
    for order in "><":
        for code in (1, 2, 3, 5, 8):
            for revision in (b"\0\0", b"\1\0", b"\2\0"):
                one = draft((4, 5, 12), order=order, code=code, revision=revision)
                if code in (2, 3, 8):
                    one.samples = (one.samples / 16).round()
                if revision == b"\2\0":
                    one.extended, one.extended_texts = 1, ["C 41"]
                made.append(one.to_bytes())
    return made


def mutated(seed: int) -> tuple[bytes, SurveySpec]:
    """The file of ``seed`` and the spec to read it with; always the same."""
    draw = random.Random(seed)
    data = bytearray(draw.choice(bases()))
    for _ in range(draw.choice([1, 1, 2, 3, 6])):
        draw.choice([_field, _field, _trace_field, _byte, _cut, _insert, _swap, _fill])(data, draw)
    spec = draw.choice(SPECS) if draw.random() < 0.3 else {}
    return bytes(data), SurveySpec(**spec)


def _number(draw: random.Random, width: int) -> bytes:
    value = draw.choice(EDGES[width]) if draw.random() < 0.7 else draw.getrandbits(8 * width)
    return value.to_bytes(width, draw.choice(["big", "little"]))


def _put(data: bytearray, place: int, value: bytes) -> None:
    if place + len(value) <= len(data):
        data[place : place + len(value)] = value


def _field(data: bytearray, draw: random.Random) -> None:
    byte, width = draw.choice(FILE_FIELDS)
    _put(data, byte - 1, _number(draw, width))


def _trace_field(data: bytearray, draw: random.Random) -> None:
    """A field of one trace, or of all; where they lie by a guess that is right for most bases."""
    byte, width = draw.choice(TRACE_FIELDS)
    start, step = draw.choice([3600, 6800]), 240 + 12 * draw.choice([1, 2, 4])
    value = _number(draw, width)
    for trace in range(20) if draw.random() < 0.4 else [draw.randrange(20)]:
        _put(data, start + trace * step + byte - 1, value)


def _byte(data: bytearray, draw: random.Random) -> None:
    if data:
        data[draw.randrange(len(data))] = draw.choice(EDGES[1])


def _cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.choice([0, 1, 3199, 3200, 3599, 3600, 3601, 3840, draw.randrange(len(data) + 1)]) :]


def _insert(data: bytearray, draw: random.Random) -> None:
    place = draw.randrange(len(data) + 1)
    data[place:place] = draw.randbytes(draw.choice([1, 2, 4, 80, 240, 3200]))


def _swap(data: bytearray, draw: random.Random) -> None:
    """Two blocks in each other's place."""
    length = draw.choice([4, 240, 400])
    one, other = (draw.randrange(max(1, len(data) - length)) for _ in range(2))
    first, second = bytes(data[one : one + length]), bytes(data[other : other + length])
    _put(data, one, second)
    _put(data, other, first)


def _fill(data: bytearray, draw: random.Random) -> None:
    place, length = draw.randrange(len(data) + 1), draw.choice([8, 240, 400, 2000])
    _put(data, place, draw.choice([b"\0", b"\xff", b"\x40", b" "]) * length)


def look(seed: int, folder: Path) -> str:
    """What ``survey inspect`` says of the file of ``seed``, printed and as JSON; anything it raises is a defect."""
    data, spec = mutated(seed)
    path = folder / "fuzzed.sgy"
    path.write_bytes(data)
    found = inspect([open_source(str(path))], spec)
    json.dumps(found.summary(), allow_nan=False)
    with contextlib.redirect_stdout(io.StringIO()):
        echo_inspection(found)
    assert all(finding.found and finding.code for finding in found.findings)
    return "held" if found.held else "published"


def take_in(seed: int, folder: Path) -> str:
    """What ``ingest`` makes of it: held, or whole, as its own verification says and a second ingest confirms."""
    data, spec = mutated(seed)
    path = folder / "fuzzed.sgy"
    path.write_bytes(data)
    with tempfile.TemporaryDirectory(dir=folder) as lake:
        result = ingest(str(path), Lake(lake), spec)
        assert result.status in ("held", "published"), result
        assert (result.manifest is not None) == (result.status == "published")
        if result.status == "published":
            assert ingest(str(path), Lake(lake), spec).status == "unchanged"
    return str(result.status)


@dataclass
class Fuzzed:
    """What came of many cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    defects: dict[int, str] = field(default_factory=dict)  # by seed
    slowest: float = 0.0  # seconds of one case
    memory: int = 0  # bytes, most of any worker


def fuzz(how: Any, seeds: range, workers: int = 2) -> Fuzzed:
    """``how(seed, folder)`` for all ``seeds`` in worker processes; a worker that hangs or dies costs one case."""
    context, total = multiprocessing.get_context("spawn"), Fuzzed()
    parts = [seeds[number::workers] for number in range(workers)]
    crew = [_Worker(context, how, part) for part in parts if len(part)]
    while crew:
        time.sleep(0.2)
        for worker in list(crew):
            worker.collect(total)
            if worker.process.is_alive() and time.monotonic() - worker.began.value <= SECONDS:
                continue
            crew.remove(worker)
            left = worker.stop(total)
            if left:
                crew.append(_Worker(context, how, left))
    return total


class _Worker:
    def __init__(self, context: Any, how: Any, seeds: range) -> None:
        self.seeds, self.how, self.context = seeds, how, context
        self.place, self.began = context.Value("q", 0), context.Value("d", time.monotonic() + 60)  # imports take time
        self.results, sender = context.Pipe(False)
        self.process = context.Process(target=_work, args=(how, seeds, self.place, self.began, sender), daemon=True)
        self.process.start()
        sender.close()

    def collect(self, total: Fuzzed) -> None:
        with contextlib.suppress(EOFError):
            while self.results.poll():
                seed, outcome, seconds, memory = self.results.recv()
                if outcome.startswith("!"):
                    total.defects[seed] = outcome
                total.outcomes[outcome if seed not in total.defects else "defect"] += 1
                total.slowest, total.memory = max(total.slowest, seconds), max(total.memory, memory)

    def stop(self, total: Fuzzed) -> range:
        """Ends the worker; the seeds that it has not tried."""
        hung = self.process.is_alive()
        self.process.kill()
        self.process.join()
        self.collect(total)
        tried = self.place.value
        if tried < len(self.seeds):
            seed = self.seeds[tried]
            total.defects[seed] = f"! hangs for {SECONDS:g} s" if hung else f"! dies with {self.process.exitcode}"
            total.outcomes["defect"] += 1
        return self.seeds[tried + 1 :]


def _work(how: Any, seeds: range, place: Any, began: Any, sender: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        how(0, Path(folder))  # imports whatever it needs, before memory is counted
        limit = _virtual() + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number, seed in enumerate(seeds):
            place.value, began.value = number, time.monotonic()
            try:
                outcome = how(seed, Path(folder))
            except BaseException as error:  # whatever it is, it is a defect
                outcome = f"! {type(error).__name__}: {error}"[:500]
            sender.send((seed, outcome, time.monotonic() - began.value, _peak()))
        place.value = len(seeds)
        sender.close()


def _virtual() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":  # python tests/fuzzing.py SEED: one case, with its traceback
    with tempfile.TemporaryDirectory() as place:
        print(look(int(sys.argv[1]), Path(place)))
