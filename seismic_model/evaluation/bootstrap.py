"""Errors of a survey from the sums of its regions, and how far they would move with other places.

Percentile bootstrap over lateral places, each with all its regions, since regions above each other are alike
(cluster bootstrap: Davison and Hinkley 1997, Bootstrap Methods and their Application, section 3.8); over regions where
there is one place only. All methods and models see the same draws, so that their differences are paired.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from seismic_model.evaluation.scores import Interval, Method, RegionScore, Score

_DRAWS = 1000

Float64Array = npt.NDArray[np.float64]


def draws(regions: Sequence[RegionScore], seed: int = 0) -> Float64Array:
    """How often each region counts: (1 + draws, regions), the first row each once."""
    places_N2, place_of_R = np.unique([region.origin[:2] for region in regions], axis=0, return_inverse=True)
    if len(places_N2) == 1:
        place_of_R = np.arange(len(regions))
    places = int(place_of_R.max()) + 1
    drawn_DN = np.random.default_rng(seed).multinomial(places, np.full(places, 1 / places), size=_DRAWS)
    return np.concatenate([np.ones((1, places)), drawn_DN])[:, place_of_R.reshape(-1)].astype(np.float64)


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
    draws_DR = draws(regions)
    errors_D, correlations_D = (measure(regions, method, draws_DR) for measure in (errors, correlations))
    return Score(
        error=errors_D[0],
        error_interval=interval(errors_D),
        correlation=np.clip(correlations_D[0], -1, 1),
        correlation_interval=interval(correlations_D),
    )


def interval(values_D: Float64Array) -> Interval:
    """The central 95 % of the draws, without the first."""
    low, high = np.percentile(values_D[1:], (2.5, 97.5))
    return Interval(low=low, high=high)
