"""What a prediction misses, over the hidden live voxels of regions (B, I, X, Z), in double precision."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seismic_model.data.store import BoolArray

Float64Array = npt.NDArray[np.float64]

_CONSTANT = 1e-20  # of a trace's energy: less variance than this is rounding


def squared_sums(values_BIXZ: Float64Array, scored_BIXZ: BoolArray) -> Float64Array:
    """Sum of squares (B,) over scored voxels."""
    sums_B: Float64Array = np.where(scored_BIXZ, values_BIXZ**2, 0).sum(axis=(1, 2, 3))
    return sums_B


def trace_correlations(
    predicted_BIXZ: Float64Array, true_BIXZ: Float64Array, scored_BIXZ: BoolArray
) -> tuple[Float64Array, npt.NDArray[np.int64]]:
    """Mean over traces (B,) of Pearson's r over a trace's scored samples, and the number of traces (B,) in it.

    A trace counts when its true samples vary; a prediction that does not vary has correlation 0.
    """
    predicted, predicted_varies_BIX = _centred(predicted_BIXZ, scored_BIXZ)
    true, counts_BIX = _centred(true_BIXZ, scored_BIXZ)
    covariance_BIX = (predicted * true).sum(axis=3)
    deviation_BIX = np.sqrt((predicted**2).sum(axis=3)) * np.sqrt((true**2).sum(axis=3))
    defined_BIX = counts_BIX & predicted_varies_BIX
    r_BIX = np.divide(covariance_BIX, deviation_BIX, out=np.zeros_like(covariance_BIX), where=defined_BIX).clip(-1, 1)
    traces_B = counts_BIX.sum(axis=(1, 2))
    return r_BIX.sum(axis=(1, 2)) / np.maximum(traces_B, 1), traces_B


def _centred(values_BIXZ: Float64Array, scored_BIXZ: BoolArray) -> tuple[Float64Array, BoolArray]:
    """Scored samples less their trace's mean, others 0; and whether the trace varies (B, I, X)."""
    values_BIXZ = np.where(scored_BIXZ, values_BIXZ, 0)
    samples_BIX1 = np.maximum(scored_BIXZ.sum(axis=3, keepdims=True), 1)
    centred_BIXZ = np.where(scored_BIXZ, values_BIXZ - values_BIXZ.sum(axis=3, keepdims=True) / samples_BIX1, 0)
    varies_BIX = (centred_BIXZ**2).sum(axis=3) > _CONSTANT * (values_BIXZ**2).sum(axis=3)
    return centred_BIXZ, varies_BIX
