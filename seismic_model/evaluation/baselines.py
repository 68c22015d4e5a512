"""What can be done without a model: fill hidden voxels from the visible ones of the same region.

Baselines work on the normalised amplitudes that models get, and see nothing that models do not: ``known_IXZ``
are voxels that are both visible and live. All fill by sample slice, since along the trace a seismic wavelet
changes sign within a patch, and interpolating there makes them worse.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.ndimage import uniform_filter1d

from seismic_model.config import Triple
from seismic_model.data.store import BoolArray, FloatArray

DoubleArray = npt.NDArray[np.float64]
Baseline = Callable[[FloatArray, BoolArray, Triple], FloatArray]

_LATERAL = (0, 1)


def zero(values_IXZ: FloatArray, known_IXZ: BoolArray, block: Triple) -> FloatArray:
    """Nothing: the centre that the survey's amplitudes swing around."""
    return np.zeros_like(values_IXZ)


def neighbour_mean(values_IXZ: FloatArray, known_IXZ: BoolArray, block: Triple) -> FloatArray:
    """Mean of the known voxels at the same sample, at most one block away laterally; 0 where there are none."""
    sums, counts = np.where(known_IXZ, values_IXZ, 0).astype(np.float64), known_IXZ.astype(np.float64)
    for axis in _LATERAL:
        reach = 2 * block[axis] + 1
        sums = uniform_filter1d(sums, reach, axis, mode="constant")
        counts = uniform_filter1d(counts, reach, axis, mode="constant")
    some = counts * (2 * block[0] + 1) * (2 * block[1] + 1) > 0.5  # at least one voxel, rounding aside
    return np.divide(sums, counts, out=np.zeros_like(sums), where=some).astype(np.float32)


def linear(values_IXZ: FloatArray, known_IXZ: BoolArray, block: Triple) -> FloatArray:
    """Linear interpolation along inlines and crosslines.

    The nearest known voxel in each of the four directions counts with its inverse distance (Shepard 1968); between
    two along one line that is linear interpolation. What no line reaches is filled from what the first pass filled;
    a slice without any known voxel stays 0.
    """
    filled_IXZ, known_IXZ = np.where(known_IXZ, values_IXZ, 0).astype(np.float64), known_IXZ
    for _ in _LATERAL:
        weighted, weights = np.zeros_like(filled_IXZ), np.zeros_like(filled_IXZ)
        for axis in _LATERAL:
            for value, distance in _nearest(filled_IXZ, known_IXZ, axis):
                reached = np.isfinite(distance)
                weight = np.divide(1, distance, out=np.zeros_like(distance), where=reached & (distance > 0))
                weighted += weight * value
                weights += weight
        new = ~known_IXZ & (weights > 0)
        filled_IXZ[new] = weighted[new] / weights[new]
        known_IXZ = known_IXZ | new
    return filled_IXZ.astype(np.float32)


BASELINES: dict[str, Baseline] = {"zero": zero, "neighbour mean": neighbour_mean, "linear interpolation": linear}
UNTRAINED = "untrained model"  # scored like a checkpoint; see ``reconstruction``


def _nearest(values: DoubleArray, known: BoolArray, axis: int) -> list[tuple[DoubleArray, DoubleArray]]:
    """Value of and distance to the last known voxel before, and the first after, along ``axis``; infinite if none."""
    length = values.shape[axis]
    place = np.arange(length).reshape([-1 if a == axis else 1 for a in range(3)])
    before = np.maximum.accumulate(np.where(known, place, -1), axis)
    after = np.flip(np.minimum.accumulate(np.flip(np.where(known, place, length), axis), axis), axis)
    found = []
    for index, exists in ((before, before >= 0), (after, after < length)):
        value = np.take_along_axis(values, index.clip(0, length - 1), axis)
        found.append((value, np.where(exists, np.abs(place - index), np.inf)))
    return found
