"""Sums and correlations are taken over hidden live voxels, and over nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seismic_model.evaluation.measures import squared_sums, trace_correlations

SHAPE = (2, 3, 2, 6)


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE)


@settings(deadline=None)
@given(scored=hnp.arrays(bool, SHAPE, elements=st.booleans(), fill=st.nothing()))
def test_correlations_are_pearsons_over_the_scored_samples_of_each_trace(scored: np.ndarray) -> None:
    predicted, true = drawn(0), drawn(1) + 1000  # an offset changes no correlation
    means, traces = trace_correlations(predicted, true, scored)
    for b in range(SHAPE[0]):
        each = [
            np.corrcoef(predicted[b, i, x][kept], true[b, i, x][kept])[0, 1]
            for i, x in np.ndindex(*SHAPE[1:3])
            if (kept := scored[b, i, x]).sum() > 1
        ]
        assert traces[b] == len(each)
        assert means[b] == pytest.approx(np.mean(each) if each else 0, abs=1e-9)


@given(scored=hnp.arrays(bool, SHAPE, elements=st.booleans(), fill=st.nothing()))
def test_sums_of_squares_leave_out_what_is_not_scored(scored: np.ndarray) -> None:
    values = np.where(scored, drawn(0), np.nan)
    assert squared_sums(values, scored) == pytest.approx([(values[b][scored[b]] ** 2).sum() for b in range(SHAPE[0])])


def test_a_constant_prediction_has_correlation_0_and_a_constant_trace_does_not_count() -> None:
    everything = np.ones(SHAPE, dtype=bool)
    true = drawn(0)
    true[:, 0] = 0.1
    means, traces = trace_correlations(np.full(SHAPE, 0.1), true, everything)
    assert means.tolist() == [0, 0]
    assert traces.tolist() == [4, 4]
