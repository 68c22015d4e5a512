"""Writes a survey's volume chunk by chunk, then reads all of it back and compares every sample with the SEG-Y.

The first reading of the files left a checksum of every trace; the volume must give the same ones from the lake.
Reading, decoding, compressing and storing run side by side in threads; at most two tiles are in memory.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ingestion.lake import Lake, LakeError
from ingestion.manifest import CHUNK, StoredKey, Volume
from ingestion.preflight.inspection import Survey
from ingestion.segy.samples import trace_checksums
from ingestion.volume.cell_arrays import CellArrays, headers_digest, stored_headers
from ingestion.volume.mdio_layout import AMPLITUDE, COMPRESSION, create_store, stored_array
from ingestion.volume.statistics import AmplitudeStatistics
from ingestion.volume.tiles import REQUESTS, Gathered, Numbers, Tile, TraceReader, chunks, tiles

Progress = Callable[[str, int, int], None]  # what is done, how far, of how much


_WORKERS = min(4, os.cpu_count() or 1) + 1  # each holds two copies of a chunk, 16 MiB


class VerificationError(LakeError):
    """What lies on the lake is not what the SEG-Y holds. Nothing was published."""


@dataclass
class Written:
    """What conversion knows of the volume, to be compared with what lies on the lake."""

    statistics: AmplitudeStatistics = field(default_factory=AmplitudeStatistics)  # after their first pass
    headers: dict[tuple[int, int], str] = field(default_factory=dict)  # digest of all in a tile, by its first cell


def write_volume(survey: Survey, lake: Lake, folder: str, name: str, progress: Progress) -> Written:
    """Convert into an MDIO store below ``folder``."""
    create_store(survey, lake, folder, name)
    cells = CellArrays(survey, lake, folder)
    cells.write()
    writer = _Writer(survey, lake, folder, cells)
    pending: list[Future[None]] = []
    parts = list(tiles(survey.shape))
    with ThreadPoolExecutor(REQUESTS) as readers, ThreadPoolExecutor(_WORKERS) as workers:
        for done, tile in enumerate(parts):
            progress("converting", done, len(parts))
            gathered = writer.reader.gather(tile, readers)
            for future in pending:  # of the tile before, stored while this one was read
                future.result()
            pending = writer.store(tile, gathered, workers)
        for future in pending:
            future.result()
    progress("converting", len(parts), len(parts))
    writer.written.statistics.prepare()
    return writer.written


class _Buffers(threading.local):
    """One chunk a thread, so that memory is not asked for again and again."""

    def __init__(self) -> None:
        self.chunk = np.empty((CHUNK, CHUNK, CHUNK), np.float32)


class _Writer:
    """Puts tiles on the lake."""

    def __init__(self, survey: Survey, lake: Lake, folder: str, cells: CellArrays) -> None:
        self.survey, self.lake, self.folder, self.cells = survey, lake, folder, cells
        self.reader = TraceReader(survey.traces, survey.grid)
        self.buffers = _Buffers()
        self.written = Written()

    def store(self, tile: Tile, gathered: Gathered, pool: ThreadPoolExecutor) -> list[Future[None]]:
        """Store the tile's chunks and headers, and count its samples."""
        samples_IXZ = gathered.samples_CZ.reshape(tile.shape)
        futures = [pool.submit(self._count, tile, gathered), pool.submit(self._headers, tile, gathered)]
        for chunk in _within(tile):
            if self.survey.grid.live_IX[chunk.cells].any():
                part = samples_IXZ[tuple(_shifted(c, t) for c, t in zip(chunk.box, tile.box, strict=True))]
                futures.append(pool.submit(self._chunk, chunk, part))
        return futures

    def _chunk(self, chunk: Tile, part_IXZ: npt.NDArray[np.float32]) -> None:
        whole = self.buffers.chunk
        if part_IXZ.shape != whole.shape:
            whole[...] = np.nan
        whole[tuple(slice(size) for size in part_IXZ.shape)] = part_IXZ
        self.lake.write(f"{self.folder}/{chunk_key(chunk)}", COMPRESSION.encode(whole))

    def _count(self, tile: Tile, gathered: Gathered) -> None:
        self.written.statistics.add(gathered.samples_CZ, self.survey.grid.live_IX[tile.cells].ravel())

    def _headers(self, tile: Tile, gathered: Gathered) -> None:
        if tile.samples.start == 0:
            self.cells.write_headers(tile, gathered.headers_CB)
            self.written.headers[_corner(tile)] = headers_digest(gathered.headers_CB)


def verify_volume(survey: Survey, lake: Lake, folder: str, written: Written, progress: Progress) -> Volume:
    """Read the store back: samples, headers, mask and axes as in the SEG-Y, digests of all objects.

    Finishes the statistics. Raises ``VerificationError`` with the first trace that differs.
    """
    keys = {entry.key.removeprefix(folder + "/") for entry in lake.objects(folder)}
    _check_axes(survey, lake, folder)
    cells = CellArrays(survey, lake, folder)
    if wrong := cells.differing():
        raise VerificationError(f"{folder}/{wrong} on the lake is not as written; run the ingest again")
    reader = _Verifier(survey, lake, folder, written)
    stored: dict[str, StoredKey] = {}
    columns = list(_columns(survey.shape))
    done, total = 0, sum(len(column) for column in columns)
    with ThreadPoolExecutor(_WORKERS) as pool:
        for column in columns:
            sums_C = np.zeros(math.prod(column[0].shape[:2]), np.uint64)
            expected = [chunk for chunk in column if survey.grid.live_IX[chunk.cells].any()]
            for key, facts, sums in pool.map(reader.chunk, expected):
                stored[key] = facts
                sums_C += sums
            reader.check_traces(column[0], sums_C, pool)
            done += len(column)
            progress("verifying", done, total)
        for tile in tiles(survey.shape):
            if tile.samples.start == 0 and _stored_digest(survey, lake, folder, tile) != written.headers[_corner(tile)]:
                raise VerificationError(f"{folder}: trace headers on the lake are not as written; run the ingest again")
        others = sorted(keys - stored.keys())
        if surplus := [key for key in others if key.startswith(f"{AMPLITUDE}/c/")]:
            raise VerificationError(f"{folder}: {surplus[0]} holds no live trace; delete it and run the ingest again")
        stored |= zip(others, pool.map(lambda key: _stored(lake.read(f"{folder}/{key}")), others), strict=True)
    return Volume(variable=AMPLITUDE, chunk_shape=(CHUNK, CHUNK, CHUNK), keys=dict(sorted(stored.items())))


class _Verifier:
    """Reads chunks back and compares them with what the SEG-Y files held."""

    def __init__(self, survey: Survey, lake: Lake, folder: str, written: Written) -> None:
        self.survey, self.lake, self.folder, self.statistics = survey, lake, folder, written.statistics
        self.reader = TraceReader(survey.traces, survey.grid)
        self.buffers = _Buffers()

    def chunk(self, chunk: Tile) -> tuple[str, StoredKey, npt.NDArray[np.uint64]]:
        """Key and digest of one stored chunk, and the checksums of its part of each trace."""
        key = chunk_key(chunk)
        try:
            data = self.lake.read(f"{self.folder}/{key}")
        except FileNotFoundError as error:
            raise VerificationError(f"{self.folder}: {key} is lost; run the ingest again") from error
        whole = self.buffers.chunk
        try:
            COMPRESSION.decode(data, out=whole)
        except RuntimeError as error:
            raise VerificationError(f"{self.folder}: {key} cannot be decoded; run the ingest again") from error
        inside = tuple(slice(size) for size in chunk.shape)
        samples_CZ = whole[inside].reshape(-1, chunk.shape[2])
        live_C = self.survey.grid.live_IX[chunk.cells].ravel()
        if not np.isnan(samples_CZ[~live_C]).all():
            raise VerificationError(f"{self.folder}: samples outside live traces in {key}; run the ingest again")
        sums = trace_checksums(samples_CZ, chunk.samples.start)
        sums[~live_C] = 0
        self.statistics.refine(samples_CZ, live_C)
        return key, _stored(data), sums

    def check_traces(self, column: Tile, sums_C: npt.NDArray[np.uint64], pool: ThreadPoolExecutor) -> None:
        """Raises ``VerificationError`` when the checksums of whole traces are not those of the SEG-Y."""
        grid, traces = self.survey.grid, self.survey.traces
        number_C, live_C = grid.trace_IX[column.cells].ravel(), grid.live_IX[column.cells].ravel()
        expected = np.where(live_C, traces.table["checksum"][number_C], np.uint64(0))

        def average(cell_D: Numbers, mean_DZ: npt.NDArray[np.float32]) -> None:
            expected[cell_D] = trace_checksums(mean_DZ)

        self.reader.average(column, pool, average)
        wrong = np.flatnonzero(sums_C != expected)
        traces.table.forget()
        if len(wrong):
            raise VerificationError(
                f"{len(wrong)} traces on the lake differ from the SEG-Y; the first is "
                f"{traces.label(int(number_C[wrong[0]]))}; nothing was published, run the ingest again"
            )


def chunk_key(chunk: Tile) -> str:
    """Where a chunk of amplitudes lies in the store."""
    return f"{AMPLITUDE}/c/" + "/".join(str(part.start // CHUNK) for part in chunk.box)


def _columns(shape: tuple[int, int, int]) -> Iterator[list[Tile]]:
    """The chunks of a volume, those of the same cells together."""
    column: list[Tile] = []
    for chunk in chunks(shape):
        if column and chunk.cells != column[0].cells:
            yield column
            column = []
        column.append(chunk)
    yield column


def _within(tile: Tile) -> Iterator[Tile]:
    """The chunks of a tile."""
    for chunk in chunks(tile.shape):
        yield Tile(*(slice(c.start + t.start, c.stop + t.start) for c, t in zip(chunk.box, tile.box, strict=True)))


def _shifted(part: slice, within: slice) -> slice:
    return slice(part.start - within.start, part.stop - within.start)


def _corner(tile: Tile) -> tuple[int, int]:
    return tile.inlines.start, tile.crosslines.start


def _stored_digest(survey: Survey, lake: Lake, folder: str, tile: Tile) -> str:
    return headers_digest(stored_headers(lake, folder, tile, survey.layouts[0].order))


def _stored(data: bytes) -> StoredKey:
    return StoredKey(size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _check_axes(survey: Survey, lake: Lake, folder: str) -> None:
    grid = survey.grid
    axes = {"inline": grid.inline.values(), "crossline": grid.crossline.values(), survey.domain: survey.axis.values()}
    for name, values in axes.items():
        if not np.array_equal(stored_array(lake, folder, name)[...], values):
            raise VerificationError(f"{folder}/{name} on the lake is not as written; run the ingest again")
