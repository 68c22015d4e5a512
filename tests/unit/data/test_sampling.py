"""The sequence of crops depends on seed and index only, keeps to the allowed places and covers them evenly."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seismic_model.data.sampling import BatchError, BatchPlan, CropSampler

RNG = np.random.default_rng(3)
ORIGINS = [RNG.random((9, 7)) < 0.4, np.zeros((0, 0), dtype=bool), RNG.random((3, 4)) < 0.8]
WEIGHTS, DEPTHS = [0.7, 0.0, 0.3], [5, 0, 2]
GOLDEN = [(0, 0, 3), (2, 5, 3), (4, 3, 4)]


def sampler(seed: int = 0) -> CropSampler:
    return CropSampler(seed, WEIGHTS, ORIGINS, DEPTHS)


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_a_crop_depends_on_seed_and_index_only_and_starts_where_it_may(seed: int, index: int) -> None:
    spec = sampler(seed).crop(index)
    again = sampler(seed)
    again.crop(index // 2)
    assert again.crop(index) == spec
    inline, crossline, sample = spec.origin
    assert ORIGINS[spec.survey][inline, crossline]
    assert 0 <= sample < DEPTHS[spec.survey]
    assert spec.sample_id == index


def test_surveys_come_by_weight_and_places_evenly() -> None:
    drawn = [sampler().crop(index) for index in range(12_000)]
    shares = Counter(spec.survey for spec in drawn)
    assert shares[0] / len(drawn) == pytest.approx(0.7, abs=0.02)
    assert shares[1] == 0
    places = Counter(spec.origin for spec in drawn if spec.survey == 0)
    expected = shares[0] / (ORIGINS[0].sum() * DEPTHS[0])
    assert len(places) == ORIGINS[0].sum() * DEPTHS[0]
    assert 0.5 * expected < min(places.values()) <= max(places.values()) < 1.6 * expected


def test_another_seed_is_another_sequence() -> None:
    first, second = ([sampler(seed).crop(index).origin for index in range(50)] for seed in (0, 1))
    assert first != second


def test_the_sequence_is_the_one_of_earlier_versions() -> None:
    """A resumed run relies on it; a change here needs a new data set schema."""
    assert [sampler(7).crop(index).origin for index in (0, 1, 1000)] == GOLDEN


def test_a_survey_with_weight_and_no_window_is_refused() -> None:
    with pytest.raises(ValueError, match=r"survey 1 has weight 0\.5 and no training window"):
        CropSampler(0, [0.5, 0.5, 0.0], ORIGINS, DEPTHS)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 50))
def test_every_crop_of_a_step_is_dealt_out_once(accumulation: int, dp: int, size: int, step: int) -> None:
    batch = accumulation * dp * size
    dealt = [
        index
        for micro_batch in range(accumulation)
        for dp_rank in range(dp)
        for index in BatchPlan(batch, accumulation, dp, dp_rank).indices(step, micro_batch)
    ]
    assert dealt == list(range(step * batch, (step + 1) * batch))


def test_a_batch_that_cannot_be_dealt_out_is_refused() -> None:
    with pytest.raises(BatchError, match=r"batch 10 cannot be dealt out.*expected a multiple of 4"):
        BatchPlan(batch=10, accumulation=2, dp=2, dp_rank=0)
