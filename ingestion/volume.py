"""Writes a survey's volume tile by tile, then reads all of it back and compares every sample with the SEG-Y.

The first reading of the files left a checksum of every trace; the volume must give the same ones from the lake.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import StorePath

from ingestion.inspect import Survey
from ingestion.lake import Lake, LakeError
from ingestion.manifest import StoredKey, Volume
from ingestion.mdio_layout import create_store, gridded_coordinates, header_fields
from ingestion.samples import trace_checksums
from ingestion.statistics import AmplitudeStatistics
from ingestion.tiles import CHUNK, Raw, TraceReader, tiles

VARIABLE = "amplitude"
Progress = Callable[[str, int, int], None]  # what is done, how far, of how much


class VerificationError(LakeError):
    """What lies on the lake is not what the SEG-Y holds. Nothing was published."""


def write_volume(survey: Survey, lake: Lake, folder: str, name: str, progress: Progress) -> AmplitudeStatistics:
    """Convert into an MDIO store below ``folder``; returns the statistics after their first pass."""
    grid = survey.grid
    create_store(survey, lake, folder, name)
    with zarr.config.set({"array.write_empty_chunks": False}):
        store = lake.zarr_store(folder)
        amplitude, headers = (_array(store, name, "r+") for name in (VARIABLE, "headers"))
    reader = TraceReader(survey.traces, grid)
    statistics = AmplitudeStatistics()
    boxes = list(tiles(survey.shape))
    for done, tile in enumerate(boxes):
        progress("converting", done, len(boxes))
        samples, numbers_IX, raw = reader.amplitudes(tile)
        amplitude[tile.box] = samples
        if tile.samples.start == 0:
            headers[tile.cells] = _headers(survey, numbers_IX, raw)
        statistics.add(samples[grid.live_IX[tile.cells]].ravel())
    statistics.prepare()
    return statistics


def verify_volume(
    survey: Survey, lake: Lake, folder: str, statistics: AmplitudeStatistics, progress: Progress
) -> Volume:
    """Read the store back: samples, mask and axes as in the SEG-Y, digests of all objects; finishes ``statistics``.

    Raises ``VerificationError`` with the first trace that differs.
    """
    grid = survey.grid
    _check_axes(survey, lake, folder)
    amplitude = _array(lake.zarr_store(folder, read_only=True), VARIABLE, "r")
    sums_IX = np.zeros(grid.shape, np.uint64)
    boxes = list(tiles(survey.shape))
    for done, tile in enumerate(boxes):
        progress("verifying", done, len(boxes))
        samples = np.asarray(amplitude[tile.box], np.float32)
        live = grid.live_IX[tile.cells]
        if not np.isnan(samples[~live]).all():
            raise VerificationError(f"{folder}: samples outside live traces in {tile.box}; run the ingest again")
        if not np.isfinite(samples[live]).all():
            raise VerificationError(f"{folder}: samples of live traces are lost in {tile.box}; run the ingest again")
        lines = samples.reshape(-1, samples.shape[2])
        sums_IX[tile.cells] += trace_checksums(lines, tile.samples.start).reshape(live.shape)
        statistics.refine(samples[live].ravel())
    _check_traces(survey, sums_IX)
    return Volume(variable=VARIABLE, chunk_shape=(CHUNK, CHUNK, CHUNK), keys=_stored_keys(lake, folder))


def _array(store: Any, name: str, mode: Any) -> Any:
    return zarr.open_array(StorePath(store, name), mode=mode)


def _headers(survey: Survey, numbers_IX: npt.NDArray[np.int64], raw: list[tuple[int, Raw]]) -> Any:
    """(inlines, crosslines) trace headers in MDIO's form, zero where there is no trace."""
    stored = header_fields("=")[1]
    out = np.zeros(numbers_IX.size, stored)
    cells = np.flatnonzero(numbers_IX >= 0)
    cells = cells[np.argsort(numbers_IX.ravel()[cells])]
    first = 0
    for file, block in raw:
        filed, _ = header_fields(survey.layouts[file].order)
        out[cells[first : first + len(block)]] = block.view(filed)[:, 0].astype(stored)
        first += len(block)
    return out.reshape(numbers_IX.shape)


def _check_traces(survey: Survey, sums_IX: npt.NDArray[np.uint64]) -> None:
    grid, traces = survey.grid, survey.traces
    expected = traces.checksums[grid.trace_IX]
    reader = TraceReader(survey.traces, grid)
    for (i, x), numbers in grid.averaged.items():
        expected[i, x] = trace_checksums(reader.mean(numbers)[None])[0]
    wrong = grid.live_IX & (sums_IX != expected)
    if wrong.any():
        i, x = np.argwhere(wrong)[0].tolist()
        raise VerificationError(
            f"{np.count_nonzero(wrong)} traces on the lake differ from the SEG-Y; the first is "
            f"{traces.label(int(grid.trace_IX[i, x]))}; nothing was published, run the ingest again"
        )


def _check_axes(survey: Survey, lake: Lake, folder: str) -> None:
    grid, axis = survey.grid, survey.axis
    store = lake.zarr_store(folder, read_only=True)
    expected = {
        "inline": grid.inline.values(),
        "crossline": grid.crossline.values(),
        survey.domain: axis.values(),
        "trace_mask": grid.live_IX,
        **gridded_coordinates(survey),
    }
    for name, values in expected.items():
        if not np.array_equal(_array(store, name, "r")[...], values, equal_nan=values.dtype.kind == "f"):
            raise VerificationError(f"{folder}/{name} on the lake is not as written; run the ingest again")


def _stored_keys(lake: Lake, folder: str) -> dict[str, StoredKey]:
    def stored(key: str) -> tuple[str, StoredKey]:
        data = lake.read(key)
        return key.removeprefix(folder + "/"), StoredKey(size=len(data), sha256=hashlib.sha256(data).hexdigest())

    with ThreadPoolExecutor(8) as pool:
        return dict(pool.map(stored, sorted(entry.key for entry in lake.objects(folder))))
