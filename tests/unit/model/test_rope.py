"""Rotary positions: attention depends on differences of patch coordinates, on each axis."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seismic_model.model.rope import pairs, rotary_angles, rotation

coordinates = st.tuples(*[st.integers(0, 127)] * 3)


def turned(x: Tensor, at: tuple[int, ...]) -> Tensor:
    return torch.view_as_real(pairs(x) * rotation(torch.tensor([[at]]), x.shape[-1], x.dtype)[:, :, None])


def score(query: Tensor, key: Tensor, at: tuple[int, ...], of: tuple[int, ...]) -> float:
    return float((turned(query, at) * turned(key, of)).sum())


def vectors(width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(width)
    query, key = (torch.randn(1, 1, 1, width, dtype=torch.float64, generator=generator) for _ in range(2))
    return query, key


@given(st.sampled_from([6, 8, 10, 24, 64, 104]), coordinates, coordinates, coordinates)
def test_scores_depend_on_differences_only(
    width: int, at: tuple[int, ...], of: tuple[int, ...], shift: tuple[int, ...]
) -> None:
    query, key = vectors(width)
    moved = [tuple(a + s for a, s in zip(p, shift, strict=True)) for p in (at, of)]
    assert score(query, key, at, of) == pytest.approx(score(query, key, *moved), abs=1e-10)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("width", [6, 24, 104])
def test_every_axis_tells_neighbours_from_far_tokens(axis: int, width: int) -> None:
    query, key = vectors(width)
    places = [tuple(distance if a == axis else 0 for a in range(3)) for distance in range(32)]
    scores = [score(query, key, (0, 0, 0), place) for place in places]
    assert len({round(s, 6) for s in scores}) == 32


@given(st.integers(3, 60), coordinates)
def test_rotation_keeps_length_and_uses_every_pair(half: int, at: tuple[int, ...]) -> None:
    query, _ = vectors(2 * half)
    angles = rotary_angles(torch.tensor([[at]]), 2 * half)
    assert angles.shape == (1, 1, half)
    assert float(turned(query, at).norm()) == pytest.approx(float(query.norm()))


@pytest.mark.parametrize("width", [4, 7])
def test_a_head_too_narrow_for_three_axes_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match=f"head width {width}"):
        rotary_angles(torch.zeros(1, 1, 3, dtype=torch.int64), width)
