"""Baselines are as strong as they claim, and see nothing that is hidden."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seismic_model.evaluation.baselines import interpolation, neighbours

PATCH = (3, 2, 2)
SHAPE = (2, 9, 8, 4)  # B I X Z
Fill = Callable[[np.ndarray, np.ndarray, tuple[int, int, int]], np.ndarray]


@st.composite
def known_patches(draw: st.DrawFn) -> np.ndarray:
    """Known voxels: visible patches, less traces that are dead."""
    grid = (2, 3, 4, 2)
    visible = draw(hnp.arrays(bool, grid))
    for axis, edge in enumerate(PATCH, start=1):
        visible = visible.repeat(edge, axis)
    return visible & draw(hnp.arrays(bool, SHAPE[:3]))[..., None]


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize("fill", [neighbours, interpolation])
@settings(deadline=None, max_examples=40)
@given(known=known_patches())
def test_what_is_hidden_changes_nothing(fill: Fill, known: np.ndarray) -> None:
    values = drawn(0)
    other = np.where(known, values, drawn(1))
    assert np.array_equal(fill(values, known, PATCH), fill(other, known, PATCH))


@settings(deadline=None, max_examples=40)
@given(known=known_patches())
def test_neighbours_is_the_mean_of_known_voxels_at_most_a_patch_away_in_the_same_slice(known: np.ndarray) -> None:
    values = drawn(0)
    filled = neighbours(values, known, PATCH)
    for b, i, x, z in np.ndindex(*SHAPE):
        near = (b, slice(max(0, i - 3), i + 4), slice(max(0, x - 2), x + 3), z)
        expected = values[near][known[near]].mean() if known[near].any() else 0.0
        assert filled[b, i, x, z] == pytest.approx(expected, abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(known=known_patches())
def test_interpolation_keeps_known_voxels_and_the_range_of_each_slice(known: np.ndarray) -> None:
    values = drawn(0)
    filled = interpolation(values, known, PATCH)
    assert np.array_equal(filled[known], values[known])
    for b, z in np.ndindex(SHAPE[0], SHAPE[3]):
        seen = values[b, :, :, z][known[b, :, :, z]]
        low, high = (seen.min(), seen.max()) if seen.size else (0.0, 0.0)
        assert filled[b, :, :, z].min() >= low - 1e-5
        assert filled[b, :, :, z].max() <= high + 1e-5


def test_interpolation_continues_a_dipping_plane_exactly_between_what_it_knows() -> None:
    i, x, z = np.indices(SHAPE[1:])
    plane = np.broadcast_to(2 * i - 3 * x + 5 * z, SHAPE).astype(np.float32)
    known = np.zeros(SHAPE, dtype=bool)
    for corner in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
        known[(slice(None), *corner)] = True
    assert np.allclose(interpolation(plane, known, PATCH), plane, atol=1e-4)


def test_traces_on_one_line_are_taken_to_the_nearest() -> None:
    values, known = np.zeros(SHAPE, dtype=np.float32), np.zeros(SHAPE, dtype=bool)
    known[:, :, 2] = True
    values[:, :, 2] = np.arange(9)[None, :, None]
    assert np.array_equal(
        interpolation(values, known, PATCH), np.broadcast_to(np.arange(9)[None, :, None, None], SHAPE)
    )
