"""Fields of the trace headers at any byte, of all traces or of a sample of whole runs of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingestion.segy.layout import Layout
from ingestion.segy.samples import TRACE_HEADER_BYTES, Order
from ingestion.source import BLOCK_BYTES, Source
from ingestion.spec import LineType

_RUNS = 8  # of neighbouring traces in the sample, each of at most
_RUN_TRACES = 2500

Headers = npt.NDArray[np.uint8]  # (traces, 240)
Numbers = npt.NDArray[np.int64]  # (traces,)


@dataclass(frozen=True)
class Place:
    """A field of the trace header."""

    byte: int
    kind: LineType = "int32"

    @property
    def stop(self) -> int:
        """Its last byte."""
        return self.byte + (3 if self.kind == "int32" else 1)

    def numbers(self, headers: Headers, order: Order) -> Numbers:
        """(traces,) what stands there."""
        stored = np.dtype(self.kind).newbyteorder(order)
        return np.ascontiguousarray(headers[:, self.byte - 1 : self.stop]).view(stored)[:, 0].astype(np.int64)

    def within(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether it touches one of ``ranges`` of bytes."""
        return any(self.byte <= last and self.stop >= first for first, last in ranges)


def _runs(layout: Layout, runs: int) -> list[tuple[int, int]]:
    """(first, past the last) of the runs in one file."""
    length = max(1, min(_RUN_TRACES, BLOCK_BYTES // layout.trace_bytes))
    if layout.traces <= runs * length:
        return [(first, min(first + length, layout.traces)) for first in range(0, layout.traces, length)]
    starts = np.linspace(0, layout.traces - length, runs).astype(int).tolist()
    return [(first, first + length) for first in starts]


def sampled(sources: Sequence[Source], layouts: Sequence[Layout]) -> Iterator[tuple[Numbers, Headers]]:
    """Numbers (from 0, through all files) and headers of the traces of each run."""
    before = 0
    every = -(-len(sources) // _RUNS)  # of many files, some
    for number, (source, layout) in enumerate(zip(sources, layouts, strict=True)):
        for first, stop in _runs(layout, max(1, _RUNS // len(sources))) if number % every == 0 else []:
            start, size = layout.data_start + first * layout.trace_bytes, layout.trace_bytes
            raw = np.frombuffer(source.read(start, (stop - first) * size), np.uint8).reshape(-1, size)
            yield np.arange(before + first, before + stop), raw[:, :TRACE_HEADER_BYTES].copy()
        source.check_unchanged()
        before += layout.traces


def read_columns(
    sources: Sequence[Source], layouts: Sequence[Layout], places: set[Place]
) -> dict[Place, npt.NDArray[np.int32]]:
    """(traces,) of all files for each place, read block by block. Raises ``SourceChangedError``."""
    parts: dict[Place, list[npt.NDArray[np.int32]]] = {place: [] for place in places}
    for source, layout in zip(sources, layouts, strict=True):
        size = layout.trace_bytes
        stop = layout.data_start + layout.traces * size
        for block in source.blocks(layout.data_start, stop, max(1, BLOCK_BYTES // size) * size):
            headers = np.frombuffer(block, np.uint8).reshape(-1, size)[:, :TRACE_HEADER_BYTES]
            for place in places:
                parts[place].append(place.numbers(headers, layout.order).astype(np.int32))
        source.check_unchanged()
    return {place: np.concatenate(columns) for place, columns in parts.items()}
