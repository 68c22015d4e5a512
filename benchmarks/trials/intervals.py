"""How far the figures of several trials would move with other seeds and other places.

Percentile bootstrap over seeds and, within each survey, over places. All variants see the same draws, so that
their differences are paired. The first draw is the sample itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.trials.trial import Survey, SurveyTrial
from seismic_model.data.store import BoolArray

Float64Array = npt.NDArray[np.float64]
Logits = Mapping[Survey, Float64Array]
"""Of the patches (R, L) of every survey's regions."""
Measure = Callable[[Float64Array, BoolArray, Float64Array], Float64Array]
"""(logits (N,), labels (N,), draws (D, N)) → (D,)."""

DRAWS = 300


class Draws:
    """The same draws for everything that is compared.

    Args:
        regions: how many each survey has, each at another place.
        seeds: how many trainings each variant has.
    """

    def __init__(self, regions: Mapping[Survey, int], seeds: int) -> None:
        random = np.random.default_rng(0)
        self._of_survey = {survey: _counts(random, places) for survey, places in regions.items()}
        self._of_seed_DS = _counts(random, seeds)

    def error(self, trials: Sequence[Mapping[Survey, SurveyTrial]], surveys: Sequence[Survey]) -> Float64Array:
        """Mean over seeds and surveys (1 + DRAWS,) of sqrt(Σ squared error / Σ energy)."""
        return self._over_seeds([[self._survey_error(trial[each], each) for each in surveys] for trial in trials])

    def probe(
        self,
        logits: Sequence[Logits],
        labels: Mapping[Survey, tuple[BoolArray, BoolArray]],
        measure: Measure,
    ) -> Float64Array:
        """Mean over seeds and surveys (1 + DRAWS,) of what ``measure`` says of live patches.

        A survey does not count in a draw that leaves it without a labelled patch.
        """
        return self._over_seeds(
            [[self._survey_probe(trial[each], *labels[each], each, measure) for each in labels] for trial in logits]
        )

    def _survey_error(self, trial: SurveyTrial, survey: Survey) -> Float64Array:
        draws_DR = self._of_survey[survey]
        error_D: Float64Array = np.sqrt((draws_DR @ trial.squared_error_R) / (draws_DR @ trial.energy_R))
        return error_D

    def _survey_probe(
        self, logits_RL: Float64Array, labels_RL: BoolArray, live_RL: BoolArray, survey: Survey, measure: Measure
    ) -> Float64Array:
        draws_DN = np.repeat(self._of_survey[survey], live_RL.sum(axis=1), axis=1)
        return measure(logits_RL[live_RL], labels_RL[live_RL], draws_DN)

    def _over_seeds(self, values_SVD: Sequence[Sequence[Float64Array]]) -> Float64Array:
        of_seed_SD = np.nanmean(values_SVD, axis=1)
        mean_D: Float64Array = (self._of_seed_DS.T * of_seed_SD).sum(axis=0) / len(of_seed_SD)
        return mean_D


def interval(values_D: Float64Array) -> list[float]:
    """The central 95 % of the draws, without the first."""
    return [float(bound) for bound in np.percentile(values_D[1:], (2.5, 97.5))]


def _counts(random: np.random.Generator, units: int) -> Float64Array:
    """How often each unit counts: (1 + DRAWS, units), in the first row once."""
    drawn = random.multinomial(units, np.full(units, 1 / units), size=DRAWS)
    return np.concatenate([np.ones((1, units)), drawn]).astype(np.float64)
