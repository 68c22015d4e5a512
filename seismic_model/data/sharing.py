"""Ranks that share a crop read each of its chunks once: one rank does, and hands over what others need of it.

Of the ranks whose slabs touch a chunk, one reads it, taken in turn along crossline and sample; so chunks that a slab's
border cuts are dealt out evenly, and all others are read where they are needed. Every rank knows the whole deal, so
nothing is announced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from seismic_model.config import Triple
from seismic_model.data.store import BoolArray, Box, FloatArray, SurveyVolume, inside

HandOver = Callable[[Mapping[int, FloatArray], Mapping[int, int]], Mapping[int, FloatArray]]
"""(values for each rank of the group, how many come from each) → values from each; ranks that differ must agree."""


@dataclass(frozen=True)
class SlabGroup:
    """The ranks that share a crop: inlines of the crop that each needs, which of them this is, how they exchange."""

    slabs: tuple[slice, ...]  # may overlap or be empty; together they are the whole crop
    rank: int
    hand_over: HandOver


@dataclass(frozen=True)
class _Slab:
    """One rank's part of one crop, with places for what it holds."""

    volume: SurveyVolume
    box: Box
    values_IXZ: FloatArray
    live_IXZ: BoolArray

    def put(self, box: Box, values: FloatArray) -> None:
        """Normalise raw amplitudes of a box inside this slab and put them in their place."""
        where = inside(box, self._origin)
        self.live_IXZ[where] = self.volume.normalise(values, box[0][0], box[1][0])
        self.values_IXZ[where] = values

    @property
    def _origin(self) -> list[int]:
        return [first for first, _ in self.box]


class SharedRead:
    """One micro-batch of one rank: ``add`` its crops, ``read`` (in any thread), then ``complete`` with the group."""

    def __init__(self, group: SlabGroup) -> None:
        self._group = group
        self._slabs: list[_Slab] = []
        self._chunks: list[tuple[SurveyVolume, Triple, list[tuple[Box, FloatArray]]]] = []  # to read, and for whom
        self._owed: defaultdict[int, list[FloatArray]] = defaultdict(list)  # by rank
        self._awaited: defaultdict[int, list[tuple[_Slab, Box]]] = defaultdict(list)

    def add(
        self, volume: SurveyVolume, origin: Triple, window: Triple, values_IXZ: FloatArray, live_IXZ: BoolArray
    ) -> None:
        """A crop of which own inlines are to be put into ``values`` and ``live``."""
        (i, x, z), (wi, wx, wz) = origin, window
        crosslines, samples = (x, x + wx), (z, z + wz)
        boxes: list[Box] = [((i + s.start, i + s.stop), crosslines, samples) for s in self._group.slabs]
        own = self._group.rank
        slab = _Slab(volume, boxes[own], values_IXZ, live_IXZ)
        values_IXZ.fill(np.nan)
        self._slabs.append(slab)
        for chunk in volume.chunks(((i, i + wi), crosslines, samples)):
            parts = {rank: volume.part(chunk, box) for rank, box in enumerate(boxes)}
            needing = [rank for rank, ((first, end), _, _) in parts.items() if first < end]
            reading = needing[sum(chunk) % len(needing)]
            if reading == own:
                lent = {rank: np.empty(_shape(parts[rank]), np.float32) for rank in needing if rank != own}
                targets = [(boxes[own], values_IXZ), *((parts[rank], values) for rank, values in lent.items())]
                self._chunks.append((volume, chunk, targets))
                for rank, values in lent.items():
                    self._owed[rank].append(values)
            elif own in needing:
                self._awaited[reading].append((slab, parts[own]))

    def read(self, pool: Executor) -> None:
        """Fetch own chunks in the threads of ``pool``. Raises ``VolumeError``."""
        for _ in pool.map(lambda chunk: chunk[0].scatter(*chunk[1:]), self._chunks):
            pass
        for slab in self._slabs:
            slab.live_IXZ[...] = slab.volume.normalise(slab.values_IXZ, slab.box[0][0], slab.box[1][0])

    def complete(self) -> None:
        """Give and get the parts of chunks that others read. All ranks of the group, in the same order."""
        if not (self._owed or self._awaited):
            return
        owed = {rank: np.concatenate([values.reshape(-1) for values in parts]) for rank, parts in self._owed.items()}
        sizes = {rank: sum(int(np.prod(_shape(box))) for _, box in parts) for rank, parts in self._awaited.items()}
        received = self._group.hand_over(owed, sizes)
        for rank, parts in self._awaited.items():
            first = 0
            for slab, box in parts:
                end = first + int(np.prod(_shape(box)))
                slab.put(box, received[rank][first:end].reshape(_shape(box)))
                first = end


def _shape(box: Box) -> Triple:
    (i0, i1), (x0, x1), (z0, z1) = box
    return i1 - i0, x1 - x0, z1 - z0
