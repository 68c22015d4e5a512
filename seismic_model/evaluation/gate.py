"""Whether a candidate goes up for review: a pure function of two evaluations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seismic_model.evaluation import bootstrap
from seismic_model.evaluation.bootstrap import Float64Array
from seismic_model.evaluation.scores import (
    Comparison,
    Decision,
    Evaluation,
    EvaluationError,
    Interval,
    Reference,
    SurveyScore,
)

_TINY = 1e-12  # a reference error below this cannot be improved upon


def gate(candidate: Evaluation, champion: Evaluation | None, margin: float, survey_tolerance: float) -> Decision:
    """Judge a candidate.

    Without a champion its mean error must be lower by ``margin`` than that of the best baseline of each survey. With
    one it must be lower by ``margin`` than the champion's, and higher by more than ``survey_tolerance`` on no
    survey, unseen ones included. Both are shares of the error that is to be beaten.

    Raises ``EvaluationError`` when the two were not given the same task.
    """
    _check_same_task(candidate, champion)
    pairs = [_Pair.of(number, survey, champion) for number, survey in enumerate(candidate.surveys)]
    surveys = [pair.comparison() for pair in pairs]
    means_D2 = np.mean([pair.errors_D2 for pair in pairs if pair.survey in candidate.judged], axis=0)
    gain, gain_interval = _gain(means_D2)
    worse = [each for each in surveys if champion and each.gain < -survey_tolerance]
    reasons = [_about_the_mean(means_D2[0], gain, gain_interval, champion, margin)]
    reasons += [_about_a_survey(each, survey_tolerance) for each in worse]
    return Decision(
        promote=gain >= margin and not worse,
        reasons=reasons,
        candidate_run=candidate.run,
        candidate_step=candidate.step,
        champion_run=champion.run if champion else None,
        champion_step=champion.step if champion else None,
        evaluation_key=candidate.evaluation_key,
        candidate=means_D2[0, 0],
        reference=means_D2[0, 1],
        gain=gain,
        gain_interval=gain_interval,
        surveys=surveys,
    )


@dataclass(frozen=True)
class _Pair:
    """One survey's errors of the candidate and of what it has to beat, for the same draws of places."""

    survey: SurveyScore
    reference_name: Reference
    errors_D2: Float64Array

    @classmethod
    def of(cls, number: int, survey: SurveyScore, champion: Evaluation | None) -> _Pair:
        draws_DR = bootstrap.draws(survey.regions, seed=number)  # each survey draws by itself
        candidate_D = bootstrap.errors(survey.regions, "model", draws_DR)
        if champion:
            reference_D = bootstrap.errors(champion.surveys[number].regions, "model", draws_DR)
        else:
            reference_D = bootstrap.errors(survey.regions, survey.best_baseline, draws_DR)
        name: Reference = "champion" if champion else survey.best_baseline
        return cls(survey, name, np.stack([candidate_D, reference_D], axis=1))

    def comparison(self) -> Comparison:
        gain, gain_interval = _gain(self.errors_D2)
        return Comparison(
            survey=self.survey.survey,
            unseen=self.survey.unseen,
            candidate=self.errors_D2[0, 0],
            reference=self.errors_D2[0, 1],
            reference_name=self.reference_name,
            gain=gain,
            gain_interval=gain_interval,
        )


def _check_same_task(candidate: Evaluation, champion: Evaluation | None) -> None:
    if champion is None:
        return
    remedy = "score the champion again with the candidate's config and data set"
    if champion.evaluation_key != candidate.evaluation_key:
        raise EvaluationError(
            f"champion {champion.run} was scored under evaluation key {champion.evaluation_key[:12]}, candidate "
            f"{candidate.run} under {candidate.evaluation_key[:12]}: other regions, masks or rules; {remedy}"
        )
    theirs, ours = (
        [(survey.survey, [region.origin for region in survey.regions]) for survey in each.surveys]
        for each in (champion, candidate)
    )
    if theirs != ours:
        raise EvaluationError(
            f"champion {champion.run} and candidate {candidate.run} have figures of other regions; {remedy}"
        )


def _gain(errors_D2: Float64Array) -> tuple[float, Interval]:
    gains_D = 1 - errors_D2[:, 0] / np.maximum(errors_D2[:, 1], _TINY)
    return float(gains_D[0]), bootstrap.interval(gains_D)


def _about_the_mean(
    errors_2: Float64Array, gain: float, interval: Interval, champion: Evaluation | None, margin: float
) -> str:
    rival = f"champion {champion.run}, step {champion.step}" if champion else "the best baseline of each survey"
    return (
        f"mean error {errors_2[0]:.4f} against {errors_2[1]:.4f} of {rival}: {_change(gain)} "
        f"(95 % interval {interval.low:+.1%} to {interval.high:+.1%}), needed at least {margin:.1%} lower"
    )


def _about_a_survey(survey: Comparison, tolerance: float) -> str:
    return (
        f"{survey.survey}{' (unseen)' if survey.unseen else ''}: error {survey.candidate:.4f} against "
        f"{survey.reference:.4f} of the champion: {_change(survey.gain)}, allowed at most {tolerance:.1%} higher"
    )


def _change(gain: float) -> str:
    return f"{abs(gain):.1%} {'lower' if gain >= 0 else 'higher'}"
