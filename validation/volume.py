"""A published volume as validation reads it: through its manifest, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from ingestion.lake import Lake
from ingestion.manifest import Manifest

_READ_BYTES = 160 << 20  # of samples read at once
_BLOCK_SAMPLES = 1 << 19  # handed on at once
_CHUNKS_AT_ONCE = 4  # read and decoded; each takes its own megabytes


@dataclass(frozen=True)
class Block:
    """All samples of some neighbouring traces."""

    inlines: slice
    crosslines: slice
    amplitude_IXZ: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Patch:
    """A part of some two-dimensional arrays."""

    inlines: slice
    crosslines: slice
    arrays: dict[str, npt.NDArray[Any]]


class PublishedVolume:
    """The arrays of one published survey. Axes: I inline, X crossline, Z sample."""

    def __init__(self, lake: Lake, manifest: Manifest) -> None:
        self.lake = lake
        self.manifest = manifest
        self.prefix = f"{manifest.folder}/{manifest.volume.path}"

    def array(self, name: str) -> npt.NDArray[Any]:
        """A whole two-dimensional array of small values, e.g. ``trace_mask``."""
        return self._read(name, ...)

    def thinned(self, name: str, most: int) -> npt.NDArray[Any]:
        """Every n-th value of a two-dimensional array along both axes, at most ``most`` along each."""
        steps = tuple(slice(None, None, -(-size // most)) for size in self.manifest.shape[:2])
        return self._read(name, steps)

    @cached_property
    def live(self) -> npt.NDArray[np.bool_]:
        """Which traces count."""
        return self.array("trace_mask").astype(bool)

    def amplitude(self, inlines: slice | int, crosslines: slice | int, samples: slice | int) -> npt.NDArray[np.float32]:
        """Amplitudes as stored: NaN where no trace is live."""
        return self._read(self.manifest.volume.variable, (inlines, crosslines, samples)).astype(np.float32, copy=False)

    def blocks(self) -> Iterator[Block]:
        """The whole volume in small blocks. A column of chunks is read at once, or a part of it where traces are long,
        so that memory is bounded."""
        step_i, step_x, _ = self.manifest.volume.chunk_shape
        samples = self.manifest.sample.count
        while 4 * step_i * step_x * samples > _READ_BYTES and step_i > 1:
            step_i //= 2  # so that no read crosses a border of chunks
        lines = max(1, _BLOCK_SAMPLES // (step_x * samples))
        for inlines, crosslines in self._columns(step_i, step_x):
            amplitude_IXZ = self.amplitude(inlines, crosslines, slice(None))
            for i in range(0, len(amplitude_IXZ), lines):
                part = amplitude_IXZ[i : i + lines]
                first = inlines.start + i
                yield Block(slice(first, first + len(part)), crosslines, part)

    def patches(self, *names: str) -> Iterator[Patch]:
        """The two-dimensional arrays ``names``, one chunk of the first of them at a time."""
        step_i, step_x = self._array(names[0]).chunks
        for box in self._columns(step_i, step_x):
            yield Patch(*box, {name: self._read(name, box) for name in names})

    def _columns(self, step_i: int, step_x: int) -> Iterator[tuple[slice, slice]]:
        count_i, count_x, _ = self.manifest.shape
        for i in range(0, count_i, step_i):
            for x in range(0, count_x, step_x):
                yield slice(i, min(i + step_i, count_i)), slice(x, min(x + step_x, count_x))

    def _read(self, name: str, selection: Any) -> npt.NDArray[Any]:
        with zarr.config.set({"async.concurrency": _CHUNKS_AT_ONCE}):
            return np.asarray(self._array(name)[selection])

    def _array(self, name: str) -> zarr.Array[Any]:
        return zarr.open_array(self.lake.zarr_store(self.prefix, read_only=True), path=name, mode="r", zarr_format=3)
