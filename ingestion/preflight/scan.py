"""One pass over a SEG-Y file, start to end: its digest, its trace headers, and what its samples look like.

What is kept of each trace goes to a table on disk; memory is bounded by a few blocks.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingestion.preflight.table import Table
from ingestion.segy.kernels import scan_rows
from ingestion.segy.layout import Layout
from ingestion.segy.samples import TRACE_HEADER_BYTES, Order, checksum_factors, words_of
from ingestion.source import BLOCK_BYTES, Source
from ingestion.spec import SurveySpec

Progress = Callable[[int], None]  # told the number of bytes just handled
Raw = npt.NDArray[np.uint8]  # (traces, bytes)
Counts = tuple[int, int, int, int]  # of samples that overflow, are rounded, are extreme, are not zero

_FIXED_FIELDS = {  # name: (first byte, type), SEG-Y rev 1 and 2
    "trace_id": (29, "i2"),
    "offset": (37, "i4"),
    "coordinate_scalar": (71, "i2"),
    "source_x": (73, "i4"),
    "source_y": (77, "i4"),
    "coordinate_unit": (89, "i2"),
    "delay": (109, "i2"),
    "sample_count": (115, "u2"),
    "sample_interval": (117, "u2"),
    "times_scalar": (215, "i2"),
}
_RESULTS = {  # of the samples of a trace
    "zero": "?",  # all of them
    "non_finite": "i4",  # NaN or infinite ones
    "checksum": "u8",  # of the decoded samples
    "lowest": "f4",  # finite one; infinite where there is none
    "highest": "f4",
}
_WORKERS = min(4, os.cpu_count() or 1)


@dataclass
class SampleFacts:
    """What the samples of all traces look like together."""

    overflow: int = 0  # IBM values beyond float32
    inexact: int = 0  # values that float32 rounds
    extreme: int = 0  # not zero, beyond 1e20 or below 1e-20 in magnitude
    nonzero: int = 0

    def add(self, counts: Counts) -> None:
        """Take in what ``scan_rows`` counted."""
        overflow, inexact, extreme, nonzero = counts
        self.overflow += overflow
        self.inexact += inexact
        self.extreme += extreme
        self.nonzero += nonzero


@dataclass(frozen=True)
class Scan:
    """What one pass found in one file."""

    source: Source
    layout: Layout
    sha256: str
    facts: SampleFacts
    table: Table  # of all files
    first: int  # row of the file's first trace

    @property
    def zero(self) -> npt.NDArray[np.bool_]:
        """(traces,) where all samples are zero."""
        rows: npt.NDArray[np.bool_] = self.table["zero"][self.first : self.first + self.layout.traces]
        return rows


def trace_table(layouts: list[Layout], spec: SurveySpec) -> Table:
    """An empty table for the traces of all files: header fields where the spec says they are, and sample results."""
    fields = header_fields_read(spec)
    return Table(
        sum(layout.traces for layout in layouts), {name: kind for name, (_, kind) in fields.items()} | _RESULTS
    )


def scan(
    source: Source, layout: Layout, spec: SurveySpec, table: Table, first: int, progress: Progress = lambda _: None
) -> Scan:
    """Read all of ``source``; its traces become the rows of ``table`` from ``first`` on.

    Raises ``SourceChangedError`` when the file changes meanwhile.
    """
    digest, facts, start = hashlib.sha256(), SampleFacts(), first
    for block in source.blocks(0, layout.data_start):
        digest.update(block)
        progress(len(block))
    stop = layout.data_stop
    with ThreadPoolExecutor(1) as hashing, ThreadPoolExecutor(_WORKERS) as workers:
        pending: deque[tuple[Raw, Future[None], Future[Counts]]] = deque()

        def settle() -> None:
            raw, hashed, counted = pending.popleft()
            hashed.result()
            facts.add(counted.result())
            table.forget()
            progress(raw.nbytes)

        for block in source.blocks(layout.data_start, stop, traces_per_block(layout) * layout.trace_bytes):
            raw = np.frombuffer(block, np.uint8).reshape(-1, layout.trace_bytes)
            rows = slice(first, first + len(raw))
            pending.append(
                (raw, hashing.submit(digest.update, block), workers.submit(_scan_block, raw, layout, spec, table, rows))
            )
            first = rows.stop
            if len(pending) > _WORKERS:
                settle()
        while pending:
            settle()
    for block in source.blocks(stop, source.size):
        digest.update(block)
        progress(len(block))
    source.check_unchanged()
    return Scan(source, layout, digest.hexdigest(), facts, table, start)


def traces_per_block(layout: Layout) -> int:
    """Whole traces in one request of about ``BLOCK_BYTES``."""
    return max(1, BLOCK_BYTES // layout.trace_bytes)


def header_fields_read(spec: SurveySpec) -> dict[str, tuple[int, str]]:
    """First byte and type of the trace header fields that ingestion reads, by the spec."""
    kinds = {"int32": "i4", "int16": "i2"}
    return dict(_FIXED_FIELDS) | {
        "inline": (spec.inline_byte, kinds[spec.inline_type]),
        "crossline": (spec.crossline_byte, kinds[spec.crossline_type]),
        "cdp_x": (spec.cdp_x_byte, "i4"),
        "cdp_y": (spec.cdp_y_byte, "i4"),
    }


def _scan_block(raw: Raw, layout: Layout, spec: SurveySpec, table: Table, rows: slice) -> Counts:
    words = words_of(raw, layout.sample_format, layout.order)
    results = [np.empty(len(raw), kind) for kind in _RESULTS.values()]
    counts: Counts = scan_rows(*words, checksum_factors(layout.samples), *results)
    for name, values in zip(_RESULTS, results, strict=True):
        table[name][rows] = values
    _keep_headers(raw, layout.order, spec, table, rows)
    return counts


def _keep_headers(raw: Raw, order: Order, spec: SurveySpec, table: Table, rows: slice) -> None:
    fields = header_fields_read(spec)
    declared = np.dtype(
        {
            "names": list(fields),
            "formats": [order + kind for _, kind in fields.values()],
            "offsets": [byte - 1 for byte, _ in fields.values()],
            "itemsize": TRACE_HEADER_BYTES,
        }
    )
    headers = np.ascontiguousarray(raw[:, :TRACE_HEADER_BYTES]).view(declared)[:, 0]
    for name in fields:
        table[name][rows] = headers[name]
