"""Grids and map geometry for any lines, orders and holes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segy_bytes import Draft, draft

from ingestion.preflight.geometry import handedness, outline
from ingestion.preflight.inspection import inspect
from ingestion.preflight.placement import fit_affine, line_axis
from ingestion.source import open_source
from ingestion.spec import SurveySpec


@given(st.integers(-(10**6), 10**6), st.integers(1, 50), st.sets(st.integers(0, 40), min_size=1))
def test_the_axis_passes_through_all_lines_and_no_coarser_one_does(first: int, step: int, places: set[int]) -> None:
    lines = np.array([first + step * k for k in places])
    axis = line_axis(lines)
    assert set(lines.tolist()) <= set(axis.values().astype(int).tolist())
    assert (axis.first, axis.values()[-1]) == (lines.min(), lines.max())
    multiples = [math.gcd(*(int(line - lines.min()) for line in lines))] if len(places) > 1 else [1]
    assert axis.step == multiples[0]


@given(st.floats(0, 2 * math.pi), st.floats(1, 100), st.floats(1, 100), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_fit_finds_any_grid_and_leaves_strays_out(
    angle: float, bin_i: float, bin_x: float, mirrored: bool, seed: int
) -> None:
    index = np.argwhere(np.ones((8, 9), bool))
    turn = angle - math.pi / 2 if mirrored else angle + math.pi / 2
    vectors = np.array(
        [[bin_i * math.cos(angle), bin_i * math.sin(angle)], [bin_x * math.cos(turn), bin_x * math.sin(turn)]]
    )
    xy = np.array([448_000.0, 6_812_000.0]) + index @ vectors
    xy[np.random.default_rng(seed).integers(len(xy))] += 5_000
    fit = fit_affine(index, xy)
    assert fit[1:] == pytest.approx(vectors, abs=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12))
def test_the_outline_holds_every_live_trace_and_turns_left(seed: int, inlines: int, crosslines: int) -> None:
    live = np.random.default_rng(seed).random((inlines, crosslines)) < 0.6
    live[0, 0] = True
    fit = np.array([[1000.0, 2000.0], [20.0, 15.0], [-7.5, 10.0]])
    corners = np.array(outline(live, fit))
    x, y = corners.T
    area = (np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
    assert area >= -1e-6
    inside = (corners - fit[0]) @ np.linalg.inv(fit[1:])
    for i in np.flatnonzero(live.any(axis=1)):
        on_line = [
            p[1] + (q[1] - p[1]) * (i - p[0]) / (q[0] - p[0])
            for p, q in zip(inside, np.roll(inside, -1, axis=0), strict=True)
            if p[0] != q[0] and min(p[0], q[0]) - 1e-6 <= i <= max(p[0], q[0]) + 1e-6
        ] + [p[1] for p in inside if abs(p[0] - i) < 1e-6]
        places = np.flatnonzero(live[i])
        assert min(on_line) <= places[0] + 1e-6
        assert max(on_line) >= places[-1] - 1e-6


def look(folder: Path, made: Any, **spec: Any) -> Any:
    (folder / "a.sgy").write_bytes(made.to_bytes())
    return inspect([open_source(str(folder / "a.sgy"))], SurveySpec(**spec)).survey().geometry


def test_vectors_follow_the_indices_whatever_the_step_and_order(tmp_path: Path) -> None:
    made = draft((6, 7, 5), inlines=(100, 3), crosslines=(300, 2)).take(slice(None, None, -1))
    geometry = look(tmp_path, made, crs="EPSG:23031")
    assert geometry.inline_vector == pytest.approx((20.0, -15.0))
    assert geometry.crossline_vector == pytest.approx((7.5, 10.0))
    assert geometry.origin == pytest.approx((450_000, 6_200_000))
    assert geometry.crs == "EPSG:23031"
    assert handedness(geometry) == "right"


def test_a_mirrored_grid_is_left_handed(tmp_path: Path) -> None:
    made = draft((6, 7, 5))
    made.headers["inline"], made.headers["crossline"] = made.headers["crossline"], made.headers["inline"]
    assert handedness(look(tmp_path, made)) == "left"


def beyond_a_gap(where: str) -> tuple[Draft, Any]:
    """A survey with a single trace on its first or last line, the neighbouring line missing; and which trace it is."""
    made = draft((9, 9, 20), inlines=(100, 2), crosslines=(300, 4))
    place = {"inline": (made.headers["inline"] - 100) // 2, "crossline": (made.headers["crossline"] - 300) // 4}
    name, side = where.split()
    along, across = place[name], place["crossline" if name == "inline" else "inline"]
    if side == "first":
        along = 8 - along
    made.take((along < 7) | (along == 8) & (across == 3))
    lines = made.headers[name]
    return made, lines == (lines.min() if side == "first" else lines.max())


def codes(folder: Path, made: Draft) -> list[str]:
    (folder / "a.sgy").write_bytes(made.to_bytes())
    return [finding.code for finding in inspect([open_source(str(folder / "a.sgy"))], SurveySpec()).findings]


PLACES = [f"{name} {side}" for name in ("inline", "crossline") for side in ("first", "last")]


@pytest.mark.parametrize("where", PLACES)
def test_a_single_trace_beyond_a_gap_is_taken_where_its_coordinates_put_it(where: str, tmp_path: Path) -> None:
    made, _ = beyond_a_gap(where)
    assert codes(tmp_path, made) == []


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("kind", ["zero", "of another line", "none anywhere", "all the same", "on a line"])
def test_a_single_trace_beyond_a_gap_is_held_without_coordinates_that_say_so(
    where: str, kind: str, tmp_path: Path
) -> None:
    made, single = beyond_a_gap(where)
    x, y = made.headers["x"], made.headers["y"]
    if kind == "zero":
        x[single] = y[single] = 0
    elif kind == "of another line":
        x[single], y[single] = x[~single][5], y[~single][5]
    elif kind == "none anywhere":
        x[:] = y[:] = 0
    elif kind == "all the same":
        x[:], y[:] = 45_000_000, 620_000_000
    else:
        y[:] = 620_000_000
    assert codes(tmp_path, made) == [f"wild-{where.split()[0]}"]
