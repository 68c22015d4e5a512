"""Samples and headers of a part of the grid, gathered from wherever their traces lie in the SEG-Y files.

Traces that follow each other are read in one request; a file in shuffled order costs one request a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingestion.grid import Grid
from ingestion.samples import decode
from ingestion.scan import traces_per_block
from ingestion.segy import TRACE_HEADER_BYTES
from ingestion.traces import Traces

CHUNK = 128  # edge of a stored chunk, in cells and samples
_SLAB = 32 * CHUNK  # samples of a tile: 256 MiB at most
_GAP = 4  # unwanted traces read along rather than asked around
_REQUESTS = 8  # in flight

Raw = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Tile:
    """A chunk-aligned box of the volume."""

    inlines: slice
    crosslines: slice
    samples: slice

    @property
    def box(self) -> tuple[slice, slice, slice]:
        """Index into (inline, crossline, sample)."""
        return (self.inlines, self.crosslines, self.samples)

    @property
    def cells(self) -> tuple[slice, slice]:
        """Index into (inline, crossline)."""
        return (self.inlines, self.crosslines)


def tiles(shape: tuple[int, int, int]) -> Iterator[Tile]:
    """All of a volume, in storage order."""
    for i in range(0, shape[0], CHUNK):
        for x in range(0, shape[1], CHUNK):
            for z in range(0, shape[2], _SLAB):
                yield Tile(
                    slice(i, min(i + CHUNK, shape[0])),
                    slice(x, min(x + CHUNK, shape[1])),
                    slice(z, min(z + _SLAB, shape[2])),
                )


class TraceReader:
    """Reads traces by their number in the survey."""

    def __init__(self, traces: Traces, grid: Grid) -> None:
        self.traces = traces
        self.grid = grid
        self.starts = np.cumsum([0] + [s.layout.traces for s in traces.scans])

    def amplitudes(self, tile: Tile) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], list[tuple[int, Raw]]]:
        """Samples of ``tile``, NaN outside live traces; trace number of each cell; raw headers by file.

        The headers are those of all traces in the tile, dead ones too: (index of the file, (traces, 240)) in the
        order of the sorted trace numbers.
        """
        numbers_IX = self.grid.trace_IX[tile.cells]
        live_IX = self.grid.live_IX[tile.cells]
        samples = range(self.traces.scans[0].layout.samples)[tile.samples]
        out = np.full((*numbers_IX.shape, len(samples)), np.nan, np.float32)
        cells = np.flatnonzero(numbers_IX >= 0)
        cells = cells[np.argsort(numbers_IX.ravel()[cells])]
        flat, alive = out.reshape(-1, len(samples)), live_IX.ravel()
        headers: list[tuple[int, Raw]] = []
        first = 0
        for file, raw in self.read(numbers_IX.ravel()[cells]):
            here = cells[first : first + len(raw)]
            headers.append((file, raw[:, :TRACE_HEADER_BYTES].copy()))
            keep = alive[here]
            flat[here[keep]] = self._decode(file, raw[keep])[:, tile.samples]
            first += len(raw)
        for (i, x), numbers in self.grid.averaged.items():
            if tile.inlines.start <= i < tile.inlines.stop and tile.crosslines.start <= x < tile.crosslines.stop:
                out[i - tile.inlines.start, x - tile.crosslines.start] = self.mean(numbers)[tile.samples]
        return out, numbers_IX, headers

    def mean(self, numbers: list[int]) -> npt.NDArray[np.float32]:
        """(samples,) mean of several traces, in double precision before it is stored."""
        decoded = [self._decode(file, raw) for file, raw in self.read(np.array(sorted(numbers)))]
        mean: npt.NDArray[np.float32] = np.concatenate(decoded).mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    def read(self, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, Raw]]:
        """Whole traces (traces, bytes) of the sorted ``numbers``, in order, with the index of their file."""
        runs = list(self._runs(numbers))
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for start in range(0, len(runs), _REQUESTS):
                yield from pool.map(self._fetch, runs[start : start + _REQUESTS])

    def _runs(self, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """``numbers`` within one file each, cut at gaps and at the size of a block."""
        files = np.searchsorted(self.starts, numbers, side="right") - 1
        for file in np.unique(files).tolist():
            within = numbers[files == file] - self.starts[file]
            most = traces_per_block(self.traces.scans[file].layout)
            for run in np.split(within, np.flatnonzero(np.diff(within) > _GAP + 1) + 1):
                block = (run - run[0]) // most
                for part in np.split(run, np.flatnonzero(np.diff(block)) + 1):
                    yield file, part

    def _fetch(self, run: tuple[int, npt.NDArray[np.int64]]) -> tuple[int, Raw]:
        file, numbers = run
        scan = self.traces.scans[file]
        size = scan.layout.trace_bytes
        first, count = int(numbers[0]), int(numbers[-1] - numbers[0]) + 1
        data = scan.source.read(scan.layout.data_start + first * size, count * size)
        raw = np.frombuffer(data, np.uint8).reshape(count, size)
        return file, raw if count == len(numbers) else raw[numbers - first]

    def _decode(self, file: int, raw: Raw) -> npt.NDArray[np.float32]:
        layout = self.traces.scans[file].layout
        return decode(raw[:, TRACE_HEADER_BYTES:], layout.sample_format, layout.order)[0]
