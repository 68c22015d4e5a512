"""Errors of a survey from the sums of its regions, and how far they would move with other regions.

Percentile bootstrap (Efron 1979, Bootstrap methods: another look at the jackknife): regions are drawn with
replacement; all methods and models see the same draws, so that their differences are paired.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from seismic_model.evaluation.scores import Interval, Method, RegionScore, Score

_DRAWS = 1000

Float64Array = npt.NDArray[np.float64]


def draws(regions: int, seed: int = 0) -> Float64Array:
    """How often each region counts: (1 + draws, regions), the first row each region once."""
    random = np.random.default_rng(seed)
    drawn = random.multinomial(regions, np.full(regions, 1 / regions), size=_DRAWS)
    return np.concatenate([np.ones((1, regions)), drawn]).astype(np.float64)


def errors(regions: Sequence[RegionScore], method: Method, draws_DR: Float64Array) -> Float64Array:
    """Normalised error (D,) of each draw; the first is the error itself."""
    squared_error_R = np.array([region.squared_error[method] for region in regions])
    energy_R = np.array([region.energy for region in regions])
    errors_D: Float64Array = np.sqrt((draws_DR @ squared_error_R) / (draws_DR @ energy_R))
    return errors_D


def correlations(regions: Sequence[RegionScore], method: Method, draws_DR: Float64Array) -> Float64Array:
    """Mean trace correlation (D,) of each draw; the first is the correlation itself, 0 where no trace varies."""
    traces_R = np.array([region.traces for region in regions])
    correlation_R = np.array([region.correlation[method] for region in regions])
    correlations_D: Float64Array = (draws_DR @ (traces_R * correlation_R)) / np.maximum(draws_DR @ traces_R, 1)
    return correlations_D


def score(regions: Sequence[RegionScore], method: Method) -> Score:
    """Error and correlation of one method over the regions of a survey."""
    draws_DR = draws(len(regions))
    errors_D, correlations_D = (measure(regions, method, draws_DR) for measure in (errors, correlations))
    return Score(
        error=errors_D[0],
        error_interval=interval(errors_D[1:]),
        correlation=np.clip(correlations_D[0], -1, 1),
        correlation_interval=interval(correlations_D[1:]),
    )


def interval(values_D: Float64Array) -> Interval:
    """The central 95 % of the draws."""
    low, high = np.percentile(values_D, (2.5, 97.5))
    return Interval(low=low, high=high)
