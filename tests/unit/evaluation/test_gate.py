"""Only a candidate that is better where it counts, and worse nowhere, goes up for review."""

from __future__ import annotations

import pytest
from evaluations import evaluation, region, survey, uniform

from seismic_model.evaluation.gate import gate
from seismic_model.evaluation.scores import EvaluationError


def test_the_first_candidate_has_to_beat_the_best_baseline_by_the_margin() -> None:
    wins = gate(uniform("new", north=0.8, south=0.7), None, margin=0.2, survey_tolerance=0)
    assert wins.promote
    assert (wins.champion_run, wins.reference) == (None, pytest.approx(1.0))
    assert wins.gain == pytest.approx(0.25)
    loses = gate(uniform("new", north=0.8, south=0.9), None, margin=0.2, survey_tolerance=0)
    assert not loses.promote
    assert "15.0% lower" in loses.reasons[0]
    assert "needed at least 20.0% lower" in loses.reasons[0]


def test_each_survey_is_compared_with_its_own_best_baseline() -> None:
    regions = [region(place, 0.5) for place in range(3)]
    regions = [
        each.model_copy(update={"squared_error": each.squared_error | {"interpolation": 9.0}}) for each in regions
    ]
    decision = gate(evaluation("new", survey("north", regions)), None, margin=0, survey_tolerance=0)
    assert decision.surveys[0].reference_name == "interpolation"
    assert decision.surveys[0].reference == pytest.approx(0.3)
    assert not decision.promote


def test_a_better_mean_by_less_than_the_margin_is_no_reason_to_change_the_champion() -> None:
    champion = uniform("old", north=0.5, south=0.5)
    assert not gate(uniform("new", north=0.498, south=0.498), champion, margin=0.01, survey_tolerance=1).promote
    assert gate(uniform("new", north=0.49, south=0.49), champion, margin=0.01, survey_tolerance=1).promote


def test_the_same_weights_never_win() -> None:
    assert not gate(uniform("new", north=0.5), uniform("old", north=0.5), margin=0.01, survey_tolerance=1).promote


@pytest.mark.parametrize("name", ["south", "south_unseen"])
def test_one_survey_that_gets_worse_is_enough_to_fail(name: str) -> None:
    champion = uniform("old", north=0.8, **{name: 0.5})
    decision = gate(uniform("new", north=0.4, **{name: 0.52}), champion, margin=0.01, survey_tolerance=0.02)
    assert not decision.promote
    assert decision.gain > 0.01
    assert name in decision.reasons[-1]
    assert "4.0% higher, allowed at most 2.0% higher" in decision.reasons[-1]
    assert gate(uniform("new", north=0.4, **{name: 0.52}), champion, margin=0.01, survey_tolerance=0.05).promote


def test_an_unseen_survey_does_not_count_in_the_mean_unless_there_are_only_those() -> None:
    champion = uniform("old", north=0.5, far_unseen=0.9)
    decision = gate(uniform("new", north=0.5, far_unseen=0.1), champion, margin=0.01, survey_tolerance=1)
    assert (decision.promote, decision.gain) == (False, pytest.approx(0))
    only = gate(uniform("new", far_unseen=0.1), uniform("old", far_unseen=0.9), margin=0.01, survey_tolerance=1)
    assert only.promote


def test_the_interval_is_paired_so_that_places_that_differ_alike_leave_no_doubt() -> None:
    hard_and_easy = (0.2, 0.9, 0.5, 0.7)
    champion = evaluation("old", survey("north", [region(n, error) for n, error in enumerate(hard_and_easy)]))
    candidate = evaluation("new", survey("north", [region(n, 0.9 * error) for n, error in enumerate(hard_and_easy)]))
    decision = gate(candidate, champion, margin=0.05, survey_tolerance=0)
    assert decision.gain_interval.low == pytest.approx(0.1)
    assert decision.gain_interval.high == pytest.approx(0.1)
    doubtful = evaluation("new", survey("north", [region(n, e) for n, e in enumerate((0.1, 1.0, 0.3, 0.8))]))
    interval = gate(doubtful, champion, margin=0.05, survey_tolerance=1).surveys[0].gain_interval
    assert interval.low < 0 < interval.high


def test_figures_of_another_task_are_not_compared() -> None:
    with pytest.raises(EvaluationError, match="score the champion again"):
        gate(uniform("new", north=0.1), uniform("old", north=0.5, key="1"), margin=0, survey_tolerance=0)
    with pytest.raises(EvaluationError, match="other regions"):
        gate(uniform("new", north=0.1), uniform("old", south=0.5), margin=0, survey_tolerance=0)
