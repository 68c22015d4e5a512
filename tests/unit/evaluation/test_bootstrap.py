"""Errors are those of all voxels together, and intervals tell how much places differ."""

from __future__ import annotations

import math

import pytest
from evaluations import region

from seismic_model.evaluation import bootstrap


def test_the_error_weighs_regions_by_their_energy() -> None:
    regions = [region(0, 0.1, energy=300.0), region(1, 0.7, energy=100.0)]
    score = bootstrap.score(regions, "model")
    assert score.error == pytest.approx(math.sqrt((300 * 0.01 + 100 * 0.49) / 400))
    assert score.error_interval.low == pytest.approx(0.1)
    assert score.error_interval.high == pytest.approx(0.7)


def test_places_that_agree_leave_a_narrow_interval_and_more_places_a_narrower_one() -> None:
    def width(places: int) -> float:
        interval = bootstrap.score([region(n, 0.4 + 0.2 * (n % 2)) for n in range(places)], "model").error_interval
        return interval.high - interval.low

    assert width(40) < width(8) < 0.2
    alike = bootstrap.score([region(n, 0.5) for n in range(8)], "model").error_interval
    assert alike.high - alike.low < 1e-9


def test_regions_above_each_other_are_drawn_together() -> None:
    column = [region(0, 0.2).model_copy(update={"origin": (0, 0, z)}) for z in range(5)]
    counts = bootstrap.draws([*column, region(1, 0.8)])
    assert (counts[:, :5] == counts[:, :1]).all()
    assert (counts[:, 0] + counts[:, 5] == 2).all()
    assert counts[1:, 0].std() > 0


def test_the_regions_of_a_single_place_are_drawn_one_by_one() -> None:
    column = [region(0, 0.2 + 0.1 * z).model_copy(update={"origin": (0, 0, z)}) for z in range(5)]
    interval = bootstrap.score(column, "model").error_interval
    assert 0.2 <= interval.low < interval.high <= 0.6


def test_correlation_is_the_mean_over_traces_and_0_without_any() -> None:
    many = region(0, 0.5).model_copy(update={"traces": 30, "correlation": {"model": 0.9}})
    few = region(1, 0.5).model_copy(update={"traces": 10, "correlation": {"model": 0.1}})
    assert bootstrap.score([many, few], "model").correlation == pytest.approx(0.7)
    none = region(0, 0.5).model_copy(update={"traces": 0})
    assert bootstrap.score([none], "model").correlation == 0
