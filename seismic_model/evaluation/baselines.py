"""What anyone could do without a model: the methods that a trained one has to beat.

They get what the model gets, the normalised amplitudes of visible live voxels, and fill each sample slice by itself:
along a trace the wavelet changes sign within a patch, so that linear rules only do harm there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.ndimage import uniform_filter1d
from scipy.spatial import QhullError

from seismic_model.config import Triple
from seismic_model.data.store import BoolArray, FloatArray

_LATERAL = (1, 2)  # axes of (B, I, X, Z)


def neighbours(values_BIXZ: FloatArray, known_BIXZ: BoolArray, patch: Triple) -> FloatArray:
    """Mean of the known voxels at the same sample, at most one patch away along each lateral axis; 0 without any."""
    sums_BIXZ, share_BIXZ = np.where(known_BIXZ, values_BIXZ, 0).astype(np.float64), known_BIXZ.astype(np.float64)
    for axis, edge in zip(_LATERAL, patch[:2], strict=True):
        sums_BIXZ, share_BIXZ = (
            uniform_filter1d(each, 2 * edge + 1, axis, mode="constant") for each in (sums_BIXZ, share_BIXZ)
        )
    some_BIXZ = share_BIXZ > 0.5 / ((2 * patch[0] + 1) * (2 * patch[1] + 1))  # half a voxel: less is rounding
    return np.divide(sums_BIXZ, share_BIXZ, out=np.zeros_like(sums_BIXZ), where=some_BIXZ).astype(np.float32)


def interpolation(values_BIXZ: FloatArray, known_BIXZ: BoolArray, patch: Triple) -> FloatArray:
    """Linear lateral interpolation on a Delaunay triangulation of the known traces of each sample slice.

    Outside their convex hull the nearest known trace is taken; 0 where a slice has none.
    """
    filled_BIXZ = np.zeros_like(values_BIXZ)
    for values_IXZ, known_IXZ, filled_IXZ in zip(values_BIXZ, known_BIXZ, filled_BIXZ, strict=True):
        for first in range(0, values_IXZ.shape[2], patch[2]):  # all slices of a patch know the same traces
            layer = slice(first, first + patch[2])
            _fill(values_IXZ[..., layer], known_IXZ[..., layer].all(axis=2), filled_IXZ[..., layer])
    return filled_BIXZ


def _fill(values_IXZ: FloatArray, known_IX: BoolArray, filled_IXZ: FloatArray) -> None:
    """Write known and interpolated traces into ``filled_IXZ``."""
    points_N2, wanted_M2, known_NZ = np.argwhere(known_IX), np.argwhere(~known_IX), values_IXZ[known_IX]
    filled_IXZ[known_IX] = known_NZ
    if len(points_N2) and len(wanted_M2):
        made_MZ = _triangulated(points_N2, known_NZ, wanted_M2)
        outside_M = np.isnan(made_MZ).any(axis=1)
        if outside_M.any():
            made_MZ[outside_M] = NearestNDInterpolator(points_N2, known_NZ)(wanted_M2[outside_M])
        filled_IXZ[~known_IX] = made_MZ


def _triangulated(
    points_N2: npt.NDArray[np.intp], known_NZ: FloatArray, wanted_M2: npt.NDArray[np.intp]
) -> npt.NDArray[np.float64]:
    """NaN outside the convex hull; everywhere when the points span no triangle."""
    made_MZ = np.full((len(wanted_M2), known_NZ.shape[1]), np.nan)
    try:
        made_MZ[...] = LinearNDInterpolator(points_N2, known_NZ)(wanted_M2)
    except QhullError:  # fewer than three points, or all on one line
        return made_MZ
    return made_MZ
