"""Other places of inline and crossline: what is offered, in which order, and what must not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from segy_bytes import FIELDS, Draft, draft

from ingestion.preflight.candidates import Candidate, find_candidates
from ingestion.segy.layout import read_layout
from ingestion.source import open_source
from ingestion.spec import SurveySpec

SHAPE = (8, 12, 4)


def candidates(folder: Path, made: Draft, live: Any = None, **extra: Any) -> list[Candidate]:
    """Of ``made`` with nothing at 189 and 193; ``extra`` are header values by (byte, type)."""
    for name in ("inline", "crossline"):
        made.headers[name] = np.zeros(len(made), int)
    path = folder / "a.sgy"
    path.write_bytes(made.to_bytes())
    source, spec = open_source(str(path)), SurveySpec(**extra)
    layout = read_layout(source, spec)
    return find_candidates([source], [layout], np.ones(len(made), bool) if live is None else live, spec)


def places(found: list[Candidate]) -> list[dict[str, Any]]:
    return [candidate.fields for candidate in found]


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a field of its own into the headers that ``draft`` writes."""

    def put(made: Draft, byte: int, kind: str, values: Any) -> None:
        monkeypatch.setitem(FIELDS, f"own_{byte}_{kind}", (byte, kind))
        made.headers[f"own_{byte}_{kind}"] = values

    return put


@pytest.mark.parametrize("order", [">", "<"])
@pytest.mark.parametrize(("inline", "crossline"), [(9, 21), (17, 13), (221, 225), (9, 225), (201, 209), (230, 5)])
def test_found_at_any_four_bytes(inline: int, crossline: int, order: str, tmp_path: Path, anywhere: Any) -> None:
    made = draft(SHAPE, order=order)
    anywhere(made, inline, "i4", made.headers["inline"])
    anywhere(made, crossline, "i4", made.headers["crossline"])
    best = candidates(tmp_path, made)[0]
    assert best.fields == {"inline_byte": inline, "crossline_byte": crossline}
    assert "8 × 12 lines (100 to 107 step 1, 300 to 311 step 1), each of 96 live traces its own cell" in str(best)
    assert "bins of the coordinates" in str(best)


@pytest.mark.parametrize("order", [">", "<"])
def test_found_at_two_bytes_beside_other_two(order: str, tmp_path: Path, anywhere: Any) -> None:
    made = draft(SHAPE, order=order)
    noise = np.random.default_rng(1).integers(0, 3, len(made))
    anywhere(made, 197, "i2", made.headers["inline"])
    for byte in (195, 201):
        anywhere(made, byte, "i2", noise)
    anywhere(made, 199, "i2", made.headers["crossline"])
    best = candidates(tmp_path, made)[0]
    assert best.fields == {
        "inline_byte": 197,
        "crossline_byte": 199,
        "inline_type": "int16",
        "crossline_type": "int16",
    }


def test_lines_with_steps_gaps_and_shuffled_traces(tmp_path: Path) -> None:
    made = draft((9, 13, 4), inlines=(2000, -4), crosslines=(-50, 2))
    made.headers["at_9"], made.headers["at_21"] = made.headers["inline"], made.headers["crossline"]
    made.take(np.random.default_rng(2).permutation(len(made))[:80])
    best = candidates(tmp_path, made)[0]
    assert best.fields == {"inline_byte": 9, "crossline_byte": 21}
    assert "9 × 13 lines (1968 to 2000 step 4, -50 to -26 step 2)" in str(best)


def test_the_pair_that_agrees_with_the_coordinates_comes_first(tmp_path: Path) -> None:
    made = draft(SHAPE)
    made.headers["at_221"], made.headers["at_225"] = made.headers["inline"], made.headers["crossline"]
    turned = np.random.default_rng(0).permutation(len(made))  # a full grid, but of other traces
    made.headers["at_9"], made.headers["at_21"] = (made.headers[name][turned] for name in ("inline", "crossline"))
    assert places(candidates(tmp_path, made)) == [{"inline_byte": 221, "crossline_byte": 225}]


def test_copies_of_the_same_numbers_are_offered_once(tmp_path: Path, anywhere: Any) -> None:
    made = draft(SHAPE)
    for byte, name in ((9, "inline"), (21, "crossline"), (201, "inline"), (205, "crossline"), (41, "inline")):
        anywhere(made, byte, "i4", made.headers[name])
    assert places(candidates(tmp_path, made)) == [{"inline_byte": 9, "crossline_byte": 21}]


def test_dead_traces_do_not_count(tmp_path: Path) -> None:
    made = draft(SHAPE)
    made.headers["at_9"], made.headers["at_21"] = made.headers["inline"].copy(), made.headers["crossline"].copy()
    made.headers["at_9"][:5] = 0
    live = np.arange(len(made)) >= 5
    assert places(candidates(tmp_path, made, live)) == [{"inline_byte": 9, "crossline_byte": 21}]


def line(made: Draft) -> None:
    """A 2D line: shots and channels make a grid of numbers, yet no area."""
    made.headers["at_9"], made.headers["at_13"] = made.headers["inline"], made.headers["crossline"]
    made.headers["at_17"], made.headers["at_21"] = made.headers["inline"], made.headers["crossline"]
    along = (made.headers["inline"] * 50 + made.headers["crossline"] * 25) * 10
    made.headers["x"], made.headers["y"] = 4_000_000 + along, 60_000_000 - 2 * along


def prestack(made: Draft) -> None:
    made.headers["at_9"], made.headers["at_13"] = made.headers["inline"], made.headers["crossline"]
    made.headers["offset"] = made.headers["crossline"] * 25


def shots(made: Draft) -> None:
    """Shot and channel without offsets or CDP coordinates; the source stands still for a whole shot."""
    made.headers["at_17"], made.headers["at_13"] = made.headers["inline"], made.headers["crossline"]
    made.headers["source_x"], made.headers["source_y"] = made.headers["inline"] * 5000, made.headers["inline"] * 777
    made.headers["x"], made.headers["y"] = (np.zeros(len(made), int) for _ in "xy")


def sequences(made: Draft) -> None:
    made.headers["at_9"] = np.repeat(np.arange(8) + 1, 12)
    made.headers["at_13"] = np.tile(np.arange(12) + 1, 8)
    made.headers["x"], made.headers["y"] = (np.zeros(len(made), int) for _ in "xy")


def cdp_and_constant(made: Draft) -> None:
    made.headers["at_21"], made.headers["at_9"] = np.arange(len(made)) + 1000, np.full(len(made), 7)


def nothing(made: Draft) -> None:
    return


def unturned(made: Draft) -> None:
    """Coordinates that are a grid of numbers themselves, in three places."""
    for x, y in (("x", "y"), ("source_x", "source_y"), ("at_221", "at_225")):
        made.headers[x] = (450_000 + 25 * made.headers["inline"]) * (1 if x == "at_221" else 100)
        made.headers[y] = (6_200_000 + 25 * made.headers["crossline"]) * (1 if x == "at_221" else 100)


@pytest.mark.parametrize("spoil", [line, prestack, shots, sequences, cdp_and_constant, nothing, unturned])
def test_what_looks_like_a_grid_and_is_none(spoil: Any, tmp_path: Path) -> None:
    made = draft(SHAPE)
    spoil(made)
    assert candidates(tmp_path, made) == []


@pytest.mark.parametrize("coordinates", [True, False])
def test_time_stamps_are_no_lines(coordinates: bool, tmp_path: Path, anywhere: Any) -> None:
    made = draft(SHAPE)
    seconds = np.arange(len(made)) * 5
    for byte, values in ((157, 1999), (159, 200), (161, 7), (163, 10 + seconds // 60), (165, seconds % 60)):
        anywhere(made, byte, "i2", values)
    if not coordinates:
        made.headers["x"], made.headers["y"] = (np.zeros(len(made), int) for _ in "xy")
    assert candidates(tmp_path, made) == []


def test_of_a_large_file_only_runs_are_searched_and_all_traces_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingestion.preflight.header_fields.BLOCK_BYTES", 20 * 256)  # 20 traces a run, of 960
    made = draft((40, 24, 4))
    made.headers["at_9"], made.headers["at_21"] = made.headers["inline"], made.headers["crossline"]
    assert places(candidates(tmp_path, made)) == [{"inline_byte": 9, "crossline_byte": 21}]
    made = draft((40, 24, 4))
    made.headers["at_9"], made.headers["at_21"] = made.headers["inline"], made.headers["crossline"].copy()
    made.headers["at_21"][30] = made.headers["at_21"][31]  # outside the runs
    assert candidates(tmp_path, made) == []


def test_of_several_files_all_are_searched(tmp_path: Path) -> None:
    made = draft(SHAPE)
    made.headers["at_9"], made.headers["at_21"] = made.headers.pop("inline"), made.headers.pop("crossline")
    one, other = made.headers.copy(), made.samples
    for name, rows in (("a.sgy", slice(48)), ("b.sgy", slice(48, None))):
        part = Draft(other, one).take(rows)
        (tmp_path / name).write_bytes(part.to_bytes())
    sources = [open_source(str(tmp_path / name)) for name in ("a.sgy", "b.sgy")]
    layouts = [read_layout(source, SurveySpec()) for source in sources]
    found = find_candidates(sources, layouts, np.ones(96, bool), SurveySpec())
    assert "8 × 12 lines" in str(found[0])
