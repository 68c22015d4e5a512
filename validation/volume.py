"""A published volume as validation reads it: through its manifest, chunk column by chunk column."""

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


@dataclass(frozen=True)
class Block:
    """All samples of one column of chunks."""

    inlines: slice
    crosslines: slice
    amplitude_IXZ: npt.NDArray[np.float32]


class PublishedVolume:
    """The arrays of one published survey. Axes: I inline, X crossline, Z sample."""

    def __init__(self, lake: Lake, manifest: Manifest) -> None:
        self.lake = lake
        self.manifest = manifest
        self.prefix = f"{manifest.folder}/{manifest.volume.path}"

    def array(self, name: str) -> npt.NDArray[Any]:
        """A whole two-dimensional array: ``trace_mask``, ``headers``, ``cdp_x`` or ``cdp_y``."""
        return np.asarray(self._array(name)[...])

    @cached_property
    def live(self) -> npt.NDArray[np.bool_]:
        """Which traces count."""
        return self.array("trace_mask").astype(bool)

    def amplitude(self, inlines: slice | int, crosslines: slice | int, samples: slice | int) -> npt.NDArray[np.float32]:
        """Amplitudes as stored: NaN where no trace is live."""
        return np.asarray(self._array(self.manifest.volume.variable)[inlines, crosslines, samples], dtype=np.float32)

    def blocks(self) -> Iterator[Block]:
        """The whole volume, one column of chunks at a time, so that memory is bounded."""
        step_i, step_x, _ = self.manifest.volume.chunk_shape
        count_i, count_x, _ = self.manifest.shape
        for i in range(0, count_i, step_i):
            for x in range(0, count_x, step_x):
                inlines, crosslines = slice(i, min(i + step_i, count_i)), slice(x, min(x + step_x, count_x))
                yield Block(inlines, crosslines, self.amplitude(inlines, crosslines, slice(None)))

    def _array(self, name: str) -> zarr.Array[Any]:
        return zarr.open_array(self.lake.zarr_store(self.prefix, read_only=True), path=name, mode="r", zarr_format=3)
