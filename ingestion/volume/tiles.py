"""Samples and headers of a part of the grid, gathered from wherever their traces lie in the SEG-Y files.

Traces that follow each other are read in one request; a file in shuffled order costs one request a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise, starmap

import numpy as np
import numpy.typing as npt

from ingestion.manifest import CHUNK
from ingestion.preflight.grid import Grid
from ingestion.preflight.scan import Raw
from ingestion.preflight.traces import Traces
from ingestion.segy.kernels import decode_to_cells
from ingestion.segy.samples import TRACE_HEADER_BYTES, decode, words_of

Numbers = npt.NDArray[np.int64]

REQUESTS = 8  # in flight
_TILE_BYTES = 96 * 1024 * 1024  # of samples: 1536 of each trace in a column of chunks
_WIDE_BYTES = 64 * 1024 * 1024  # of a tile of several columns
_REQUEST_BYTES = 2 * 1024 * 1024
_GAP = 4  # unwanted traces read along rather than asked around


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

    @property
    def shape(self) -> tuple[int, int, int]:
        """(inlines, crosslines, samples)."""
        i, x, z = (part.stop - part.start for part in self.box)
        return (i, x, z)


def tiles(shape: tuple[int, int, int]) -> Iterator[Tile]:
    """All of a volume in storage order, one chunk high, as many crosslines and samples as fit into memory."""
    samples = min(shape[2], _TILE_BYTES // (CHUNK * CHUNK * 4) // CHUNK * CHUNK)
    trace_bytes = max(samples * 4, TRACE_HEADER_BYTES)  # of short traces the headers take more
    crosslines = max(1, _WIDE_BYTES // (CHUNK * trace_bytes) // CHUNK) * CHUNK
    return boxes(shape, (CHUNK, crosslines, samples))


def chunks(shape: tuple[int, int, int]) -> Iterator[Tile]:
    """The stored chunks of a volume, in storage order."""
    return boxes(shape, (CHUNK, CHUNK, CHUNK))


def boxes(shape: tuple[int, int, int], steps: tuple[int, int, int]) -> Iterator[Tile]:
    """A volume cut every so many inlines, crosslines and samples."""
    for i in range(0, shape[0], steps[0]):
        for x in range(0, shape[1], steps[1]):
            for z in range(0, shape[2], steps[2]):
                starts = zip((i, x, z), steps, shape, strict=True)
                yield Tile(*(slice(start, min(start + step, end)) for start, step, end in starts))


@dataclass(frozen=True)
class Gathered:
    """What the traces of a tile hold, one row a cell."""

    samples_CZ: npt.NDArray[np.float32]  # NaN outside live traces
    headers_CB: Raw  # all 240 bytes as in the file, of dead traces too; zero where there is no trace


class TraceReader:
    """Reads traces by their number in the survey."""

    def __init__(self, traces: Traces, grid: Grid) -> None:
        self.traces = traces
        self.grid = grid
        self.starts = np.cumsum([0] + [s.layout.traces for s in traces.scans])

    def gather(self, tile: Tile, pool: Executor) -> Gathered:
        """The traces of ``tile``, read and decoded by the threads of ``pool``."""
        number_C = self.grid.trace_IX[tile.cells].ravel()
        live_C = self.grid.live_IX[tile.cells].ravel()
        gathered = Gathered(
            np.empty((len(number_C), tile.shape[2]), np.float32),
            np.zeros((len(number_C), TRACE_HEADER_BYTES), np.uint8),
        )
        gathered.samples_CZ[~live_C] = np.nan
        cell_N = np.flatnonzero(number_C >= 0)
        cell_N = cell_N[np.argsort(number_C[cell_N], kind="stable")]

        def take(file: int, number_R: npt.NDArray[np.int64], first: int) -> None:
            raw = self._read(file, number_R)
            layout = self.traces.scans[file].layout
            cells = cell_N[first : first + len(raw)]
            gathered.headers_CB[cells] = raw[:, :TRACE_HEADER_BYTES]
            words = words_of(raw, layout.sample_format, layout.order)
            wanted = np.where(live_C[cells], cells, -1)
            decode_to_cells(*words, wanted, tile.samples.start, gathered.samples_CZ)

        for done in list(starmap(lambda *run: pool.submit(take, *run), self._runs(number_C[cell_N]))):
            done.result()

        def average(cell_D: Numbers, mean_DZ: npt.NDArray[np.float32]) -> None:
            gathered.samples_CZ[cell_D] = mean_DZ[:, tile.samples]

        self.average(tile, pool, average)
        return gathered

    def average(self, tile: Tile, pool: Executor, use: Callable[[Numbers, npt.NDArray[np.float32]], None]) -> None:
        """Tell ``use`` the cells of ``tile`` that are the mean of several traces, some at a time, and these means."""
        cell_S, number_S = self.grid.averaged(*tile.cells)
        new_S = np.flatnonzero(np.diff(cell_S, prepend=-1))  # where another cell begins
        most = max(1, _REQUEST_BYTES // max(scan.layout.trace_bytes for scan in self.traces.scans))
        bounds = [*new_S[::most].tolist(), len(cell_S)]
        parts = [slice(*both) for both in pairwise(bounds)]
        for done in [pool.submit(lambda part: use(*self._mean(cell_S[part], number_S[part])), part) for part in parts]:
            done.result()

    def _mean(self, cell_S: Numbers, number_S: Numbers) -> tuple[Numbers, npt.NDArray[np.float32]]:
        """Each cell once, and the mean of its traces: added up in double precision, in the order of the files."""
        cell_D, place_S, times_D = np.unique(cell_S, return_inverse=True, return_counts=True)
        order = np.argsort(number_S)
        place_S, number_S = place_S[order], number_S[order]
        sum_DZ = np.zeros((len(cell_D), self.traces.scans[0].layout.samples))
        for file, run, first in self._runs(number_S):
            decoded_RZ = self._decode(file, self._read(file, run))
            rest = np.arange(len(run))
            while len(rest):  # one trace of each cell at a time
                _, one = np.unique(place_S[first + rest], return_index=True)
                sum_DZ[place_S[first + rest[one]]] += decoded_RZ[rest[one]]
                rest = np.delete(rest, one)
        return cell_D, (sum_DZ / times_D[:, None]).astype(np.float32)

    def _runs(self, number_N: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64], int]]:
        """Sorted trace numbers cut at files, gaps and the size of a request: file, numbers within it, first index."""
        files = np.searchsorted(self.starts, number_N, side="right") - 1
        first = 0
        for file in np.unique(files).tolist():
            within = number_N[files == file] - self.starts[file]
            most = max(1, _REQUEST_BYTES // self.traces.scans[file].layout.trace_bytes)
            for run in np.split(within, np.flatnonzero(np.diff(within) > _GAP + 1) + 1):
                block = (run - run[0]) // most
                for part in np.split(run, np.flatnonzero(np.diff(block)) + 1):
                    yield file, part, first
                    first += len(part)

    def _read(self, file: int, number_N: npt.NDArray[np.int64]) -> Raw:
        """(traces, bytes) of whole traces by their sorted numbers within one file."""
        scan = self.traces.scans[file]
        size = scan.layout.trace_bytes
        first, count = int(number_N[0]), int(number_N[-1] - number_N[0]) + 1
        data = scan.source.buffer(scan.layout.data_start + first * size, count * size)
        raw = np.frombuffer(data, np.uint8).reshape(count, size)
        return raw if count == len(number_N) else raw[number_N - first]

    def _decode(self, file: int, raw: Raw) -> npt.NDArray[np.float32]:
        layout = self.traces.scans[file].layout
        return decode(raw, layout.sample_format, layout.order, TRACE_HEADER_BYTES)[0]
