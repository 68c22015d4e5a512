"""Streamed statistics against numpy on the whole array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingestion.volume.statistics import PERCENTILES, AmplitudeStatistics


def streamed(samples: np.ndarray, parts: int) -> AmplitudeStatistics:
    found = AmplitudeStatistics()
    blocks = np.array_split(samples, parts)
    for block in blocks:
        found.add(block)
    found.prepare()
    for block in reversed(blocks):
        found.refine(block)
    return found


finite = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**99), max_value=2.0**99)
values = st.lists(finite | st.sampled_from([0.0, -0.0, 1.0, -1.0, 32767.0]), min_size=1, max_size=200)


@settings(max_examples=60, deadline=None)
@given(values, st.integers(1, 7))
def test_equal_to_numpy(numbers: list[float], parts: int) -> None:
    samples = np.array(numbers, np.float32)
    facts = streamed(samples, parts).statistics()
    exact = samples.astype(np.float64)
    assert facts.count == len(samples)
    assert facts.minimum == exact.min()
    assert facts.maximum == exact.max()
    assert facts.mean == pytest.approx(exact.mean(), rel=1e-12, abs=1e-12 * np.abs(exact).max())
    assert facts.std == pytest.approx(exact.std(), rel=1e-9, abs=1e-9 * np.abs(exact).max())
    assert facts.zero_share == np.mean(exact == 0)
    wanted = np.percentile(exact, PERCENTILES)
    assert list(facts.percentiles.values()) == pytest.approx(wanted, rel=1e-12, abs=1e-12 * np.abs(exact).max())
    assert sum(facts.histogram_counts) == len(samples)
    assert facts.histogram_edges == sorted(facts.histogram_edges)
    assert (facts.histogram_edges[0], facts.histogram_edges[-1]) == (facts.minimum, facts.maximum)


@settings(max_examples=30, deadline=None)
@given(values, st.integers(1, 5))
def test_normalisation_is_of_the_samples_that_are_not_zero(numbers: list[float], parts: int) -> None:
    samples = np.array([*numbers, 3.0, 5.0], np.float32)
    found = streamed(samples, parts).normalisation()
    nonzero = samples[samples != 0].astype(np.float64)
    low, centre, high = np.percentile(nonzero, [1, 50, 99])
    assert found.centre == pytest.approx(centre, rel=1e-12, abs=1e-12 * np.abs(nonzero).max())
    if high > low:
        assert found.scale == pytest.approx((high - low) / 4.652695748081682, rel=1e-9)


def test_the_scale_of_normal_noise_is_its_deviation_whatever_zeros_surround_it() -> None:
    noise = np.random.default_rng(0).normal(0, 1e-9, 200_000).astype(np.float32)
    padded = np.concatenate([noise, np.zeros(800_000, np.float32)])
    assert streamed(padded, 9).normalisation().scale == pytest.approx(1e-9, rel=0.02)


def test_a_large_mean_takes_no_digits_from_the_deviation() -> None:
    samples = (1e6 + np.random.default_rng(0).normal(0, 1, 100_000)).astype(np.float32)
    assert streamed(samples, 50).statistics().std == pytest.approx(samples.astype(np.float64).std(), rel=1e-9)


def test_clipping_is_counted_at_repeated_extremes_only() -> None:
    samples = np.array([-5, -5, -5, 0, 0, 1, 2, 9], np.float32)
    assert streamed(samples, 2).statistics().clipped_share == 3 / 8
    silent = np.array([0, 0, 0, 1, 2], np.float32)  # zeros at the edge are no clipping
    assert streamed(silent, 1).statistics().clipped_share == 0
