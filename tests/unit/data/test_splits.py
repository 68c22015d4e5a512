"""Nothing that is held out trains, nothing that trained is scored, and places stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from published import manifest_of

from seismic_model.data.dataset import SplitPolicy
from seismic_model.data.splits import (
    MIN_LIVE_SHARE,
    held_out_mask,
    held_out_regions,
    touched_cells,
    train_origins,
    untrained_mask,
)

SHAPES = st.tuples(st.integers(1, 14), st.integers(1, 14))
SPLIT = SplitPolicy(cell_size=400, held_out_share=0.3, salt="pepper")


@st.composite
def masks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, tuple[int, int, int]]:
    shape = draw(SHAPES)
    held, live = (draw(hnp.arrays(bool, shape, elements=st.booleans(), fill=st.booleans())) for _ in range(2))
    window = draw(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)))
    return held, live, window


@given(masks())
def test_a_window_trains_exactly_when_no_trace_is_held_out_and_enough_live(
    case: tuple[np.ndarray, np.ndarray, tuple[int, int, int]],
) -> None:
    held, live, (wi, wx, wz) = case
    origins = train_origins(held, live, (wi, wx, wz))
    assert origins.shape == (max(0, held.shape[0] - wi + 1), max(0, held.shape[1] - wx + 1))
    for i, x in np.ndindex(origins.shape):
        box = (slice(i, i + wi), slice(x, x + wx))
        assert origins[i, x] == (not held[box].any() and live[box].mean() >= MIN_LIVE_SHARE)


@given(masks(), st.integers(1, 12))
def test_regions_lie_on_held_out_traces_and_never_overlap(
    case: tuple[np.ndarray, np.ndarray, tuple[int, int, int]], samples: int
) -> None:
    held, live, (wi, wx, wz) = case
    seen = np.zeros((*held.shape, samples), dtype=int)
    for i, x, z in held_out_regions(held, live, samples, (wi, wx, wz)):
        assert seen[i : i + wi, x : x + wx, z : z + wz].size == wi * wx * wz
        assert held[i : i + wi, x : x + wx].all()
        assert live[i : i + wi, x : x + wx].mean() >= MIN_LIVE_SHARE
        seen[i : i + wi, x : x + wx, z : z + wz] += 1
    assert seen.max() <= 1


@given(masks())
def test_no_room_for_another_region_is_left(case: tuple[np.ndarray, np.ndarray, tuple[int, int, int]]) -> None:
    held, live, (wi, wx, wz) = case
    taken = np.zeros(held.shape, dtype=bool)
    for i, x, _ in held_out_regions(held, live, wz, (wi, wx, wz)):
        taken[i : i + wi, x : x + wx] = True
    for i in range(held.shape[0] - wi + 1):
        for x in range(held.shape[1] - wx + 1):
            box = (slice(i, i + wi), slice(x, x + wx))
            assert taken[box].any() or not held[box].all() or live[box].mean() < MIN_LIVE_SHARE


@settings(max_examples=50)
@given(st.integers(-30, 30), st.integers(-30, 30), st.booleans(), st.booleans())
def test_a_place_is_held_out_whatever_the_grid_over_it(di: int, dx: int, flip: bool, swap: bool) -> None:
    """The same bins, surveyed again with another first line, direction or line order."""
    first = manifest_of("first", (32, 24, 8), origin=(1000.0, 2000.0))
    inline_vector, crossline_vector = (-25.0 if flip else 25.0, 0.0), (0.0, 25.0)
    if swap:
        inline_vector, crossline_vector = crossline_vector, inline_vector
    again = manifest_of(
        "again",
        (25, 30, 8),
        origin=(1000.0 + 25 * di, 2000.0 + 25 * dx),
        inline_vector=inline_vector,
        crossline_vector=crossline_vector,
    )
    known = {}
    for manifest in (first, again):
        mask = held_out_mask(manifest, SPLIT, [])
        geometry = manifest.geometry
        for i, x in np.ndindex(mask.shape):
            place = tuple(
                round(geometry.origin[a] + i * geometry.inline_vector[a] + x * geometry.crossline_vector[a])
                for a in (0, 1)
            )
            assert known.setdefault(place, mask[i, x]) == mask[i, x]


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 7),
    st.tuples(st.floats(-500, 500), st.floats(-500, 500)),
    st.tuples(st.floats(-0.03, 0.03), st.floats(-0.03, 0.03)),
)
def test_no_trace_trains_where_another_fit_of_its_grid_is_scored(
    eighth: int, origin: tuple[float, float], noise: tuple[float, float]
) -> None:
    """Also at the very border of a cell, 0.04 of a coordinate unit below which counting begins."""
    turn = np.pi / 4 * eighth
    inline_vector = (float(12.5 * np.cos(turn)), float(12.5 * np.sin(turn)))
    first, again = (
        manifest_of(
            "s",
            (70, 60, 8),
            origin=(x, y),
            inline_vector=inline_vector,
            crossline_vector=(-inline_vector[1], inline_vector[0]),
        )
        for x, y in (origin, (origin[0] + noise[0], origin[1] + noise[1]))
    )
    for trained, scored in ((first, again), (again, first)):
        untrained_IX = untrained_mask(trained, SPLIT, [])
        assert not (~untrained_IX & held_out_mask(scored, SPLIT, [])).any()
        assert (untrained_IX >= held_out_mask(trained, SPLIT, [])).all()


def test_a_grid_across_a_border_within_fitting_noise_trains_on_neither_side() -> None:
    """Origin and bins put a whole line 0.04 below a border: the cells above begin there."""
    grids = [manifest_of("s", (400, 64, 8), origin=(-0.04 + noise, 1.0)) for noise in (0.001, -0.001)]
    on_border = [np.s_[16 * n] for n in range(25)]
    scored = [held_out_mask(grid, SPLIT, []) for grid in grids]
    assert (scored[0] != scored[1]).any()
    for grid, other in zip(grids, reversed(scored), strict=True):
        untrained_IX = untrained_mask(grid, SPLIT, [])
        assert not (other & ~untrained_IX).any()
        inner = np.delete(untrained_IX, on_border, axis=0)
        assert np.array_equal(inner, np.delete(held_out_mask(grid, SPLIT, []), on_border, axis=0))


def test_fitting_noise_does_not_move_a_grid_that_starts_on_a_cell_border() -> None:
    exact = held_out_mask(manifest_of("a", (64, 64, 8), origin=(4000.0, 800.0)), SPLIT, [])
    fitted = held_out_mask(manifest_of("a", (64, 64, 8), origin=(3999.999, 799.9999)), SPLIT, [])
    assert np.array_equal(exact, fitted)
    assert 0 < exact.mean() < 1


def test_the_share_of_held_out_cells_is_the_policy_s_and_the_salt_chooses_them() -> None:
    manifest = manifest_of("wide", (400, 400, 8), inline_vector=(400.0, 0.0), crossline_vector=(0.0, 400.0))
    mask = held_out_mask(manifest, SPLIT, [])
    other = held_out_mask(manifest, SPLIT.model_copy(update={"salt": "salt"}), [])
    assert mask.mean() == pytest.approx(SPLIT.held_out_share, abs=0.01)
    assert (mask & other).mean() == pytest.approx(SPLIT.held_out_share**2, abs=0.01)


def test_the_same_numbers_in_another_crs_are_another_place() -> None:
    masks = [
        held_out_mask(manifest_of("s", (400, 400, 8), crs=crs, inline_vector=(400.0, 0.0)), SPLIT, [])
        for crs in (None, "EPSG:23031")
    ]
    assert not np.array_equal(*masks)


def test_a_held_out_survey_holds_out_its_live_cells_everywhere() -> None:
    split = SplitPolicy(cell_size=400, held_out_share=1e-9, salt="", held_out_surveys=["basin"])
    basin = manifest_of("basin", (32, 32, 8))
    live = np.zeros((32, 32), dtype=bool)
    live[:16, :16] = True
    cells = touched_cells(basin, live, split)
    assert cells == [("local", 0, 0)]
    assert held_out_mask(basin, split, cells).all()
    neighbour = held_out_mask(manifest_of("neighbour", (64, 64, 8)), split, cells)
    assert neighbour[:16, :16].all()
    assert not neighbour[16:].any()
    assert not neighbour[:, 16:].any()
