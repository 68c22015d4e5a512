"""Clean but unusual surveys are all published: exact samples, exact axes, exact live mask, readable as MDIO."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mdio
import numpy as np
import pytest
from segy_bytes import Draft, draft

from ingestion.ingest import IngestResult, ingest
from ingestion.lake import Lake
from ingestion.spec import SurveySpec

SHAPE = (6, 7, 20)


def take_in(folder: Path, data: bytes, **spec: Any) -> IngestResult:
    path = folder / "survey.sgy"
    path.write_bytes(data)
    return ingest(str(path), Lake(str(folder / "lake")), SurveySpec(**spec))


def opened(folder: Path, result: IngestResult) -> Any:
    assert result.manifest is not None, result.findings
    return mdio.open_mdio(str(folder / "lake" / result.manifest.folder / "volume.mdio"))


def expected_cube(made: Draft, dead: Any = ()) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Line numbers and samples of a draft, straight from its headers, one trace after the other."""
    inlines, crosslines = (made.headers[name] for name in ("inline", "crossline"))
    steps = [np.gcd.reduce(np.diff(np.unique(lines))) for lines in (inlines, crosslines)]
    axes = [np.arange(v.min(), v.max() + 1, s) for v, s in zip((inlines, crosslines), steps, strict=True)]
    out = np.full((len(axes[0]), len(axes[1]), made.samples.shape[1]), np.nan, np.float32)
    for trace in range(len(made)):
        if trace not in dead:
            i = axes[0].tolist().index(inlines[trace])
            out[i, axes[1].tolist().index(crosslines[trace])] = made.samples[trace]
    return axes[0], axes[1], out


def shuffled(made: Draft) -> None:
    made.take(np.random.default_rng(1).permutation(len(made)))


def by_crossline(made: Draft) -> None:
    made.take(np.lexsort([made.headers["inline"], made.headers["crossline"]]))


def descending(made: Draft) -> None:
    made.take(np.lexsort([made.headers["crossline"], -made.headers["inline"]]))


def snake(made: Draft) -> None:
    sign = np.where(made.headers["inline"] % 2, -1, 1)
    made.take(np.lexsort([sign * made.headers["crossline"], made.headers["inline"]]))


def missing_inlines(made: Draft) -> None:
    made.take(~np.isin(made.headers["inline"], [102, 103]))


def irregular_edge(made: Draft) -> None:
    made.take(made.headers["crossline"] - 300 < 8 - (made.headers["inline"] - 100))


def scalars_that_differ(made: Draft) -> None:
    scalar = np.resize([-100, -10, 1], len(made))
    divisor = np.where(scalar < 0, 100 / -scalar, 100)
    made.headers |= {name: np.round(made.headers[name] / divisor).astype(int) for name in ("x", "y")}
    made.headers["scalar"] = scalar


def integers(made: Draft) -> None:
    made.samples = made.samples.round().clip(-128, 127)


def no_coordinates(made: Draft) -> None:
    made.headers["x"] = made.headers["y"] = np.zeros(len(made), int)


def counts_from_traces(made: Draft) -> None:
    made.count, made.interval = 0, 0


def cropped(made: Draft) -> None:
    made.headers["count"] = np.full(len(made), 462)


def silent_trace_fields(made: Draft) -> None:
    for name in ("count", "interval", "trace_id"):
        made.headers[name] = np.zeros(len(made), int)


def nothing(_made: Draft) -> None:
    return


def with_text(*texts: str) -> dict[str, Any]:
    return {"extended": len(texts), "extended_texts": list(texts)}


CLEAN: dict[str, tuple[dict[str, Any], Callable[[Draft], None], dict[str, Any]]] = {
    "plain": ({}, nothing, {}),
    "IBM": ({"code": 1}, nothing, {}),
    "int8": ({"code": 8}, integers, {}),
    "int16": ({"code": 3}, integers, {}),
    "int32": ({"code": 2}, integers, {}),
    "0.5 ms": ({"interval": 500}, nothing, {}),
    "2.5 ms": ({"interval": 2500}, nothing, {}),
    "65 ms": ({"interval": 65000}, nothing, {"sample_interval": 65}),
    "5 m": ({"interval": 5000}, nothing, {"domain": "depth"}),
    "2.5 m": ({"interval": 2500}, nothing, {"domain": "depth"}),
    "shuffled": ({}, shuffled, {}),
    "by crossline": ({}, by_crossline, {}),
    "descending": ({}, descending, {}),
    "back and forth": ({}, snake, {}),
    "step 2 and 5": ({"inlines": (100, 2), "crosslines": (300, 5)}, nothing, {}),
    "negative numbers": ({"inlines": (-3, 1), "crosslines": (-40, 4)}, nothing, {}),
    "from zero": ({"inlines": (0, 1), "crosslines": (0, 1)}, nothing, {}),
    "missing inlines": ({}, missing_inlines, {}),
    "irregular edge": ({}, irregular_edge, {}),
    "scalars that differ": ({"scalar": 1, "bins": (2500.0, 1250.0)}, scalars_that_differ, {"coordinate_scalar": None}),
    "scalar 0": ({"scalar": 0}, nothing, {}),
    "scalar by the spec": ({"scalar": 1}, nothing, {"coordinate_scalar": 1}),
    "no coordinates": ({}, no_coordinates, {}),
    "counts from the traces": ({}, counts_from_traces, {}),
    "cropped without new counts": ({}, cropped, {}),
    "silent trace fields": ({}, silent_trace_fields, {}),
    "revision 0": ({"revision": b"\x00\x00"}, nothing, {}),
    "revision 2": ({"revision": b"\x02\x00"}, nothing, {}),
    "odd revision": ({"revision": b"\x37\x31"}, nothing, {}),
    "ASCII text": ({"ascii_text": True, "text": "C 1 H\xf8yde \x1b[31m"}, nothing, {}),
    "two extended texts": (with_text("C 41", "C 81"), nothing, {}),
    "texts with an end": ({"extended": -1, "extended_texts": ["((SEG: Notes))", "((SEG: EndText))"]}, nothing, {}),
    "a trailer": ({"revision": b"\x02\x00", "binary": {329: ("i", 1)}, "trailer": b"x" * 3200}, nothing, {}),
    "0.0333 ms in revision 2": ({"revision": b"\x02\x00", "interval": 33, "binary": {73: ("d", 33.3)}}, nothing, {}),
}


@pytest.mark.parametrize(("kind", "order"), list(zip(CLEAN, "><" * len(CLEAN), strict=False)))
def test_published_exactly(kind: str, order: str, tmp_path: Path) -> None:
    how, change, spec = CLEAN[kind]
    if kind == "scalars that differ":
        how = {"scalar": -100}
    made = draft(SHAPE, order=order, **how)
    change(made)
    result = take_in(tmp_path, made.to_bytes(), **spec)
    assert result.status == "published", result.findings
    volume, manifest = opened(tmp_path, result), result.manifest
    assert manifest is not None
    inlines, crosslines, cube = expected_cube(made)
    axis = spec.get("domain", "time")
    assert np.array_equal(volume["inline"], inlines)
    assert np.array_equal(volume["crossline"], crosslines)
    interval = 33.3 if "0.0333" in kind else (made.interval or 4000)
    assert volume[axis].values.tolist() == (np.arange(SHAPE[2]) * (interval / 1000)).tolist()
    assert np.array_equal(volume["amplitude"], cube, equal_nan=True)
    assert np.array_equal(volume["trace_mask"], np.isfinite(cube[..., 0]))
    assert manifest.live_traces == len(made)
    assert manifest.sample.unit == ("m" if axis == "depth" else "ms")
    assert manifest.geometry.residual_max < 1


@pytest.mark.parametrize(
    ("delay", "scalar", "first"), [(4, 0, 4.0), (1000, 1, 1000.0), (-200, 0, -200.0), (25, -10, 2.5)]
)
def test_the_axis_starts_at_the_delay(delay: int, scalar: int, first: float, tmp_path: Path) -> None:
    made = draft(SHAPE, interval=500)
    made.headers |= {"delay": np.full(len(made), delay), "times_scalar": np.full(len(made), scalar)}
    volume = opened(tmp_path, take_in(tmp_path, made.to_bytes()))
    assert volume["time"].values.tolist() == [first + 0.5 * k for k in range(SHAPE[2])]


def test_every_trace_has_its_own_coordinate_scalar(tmp_path: Path) -> None:
    made = draft(SHAPE)
    scalars_that_differ(made)
    volume = opened(tmp_path, take_in(tmp_path, made.to_bytes()))
    exact = draft(SHAPE).headers["x"].reshape(SHAPE[:2]) / 100
    assert np.abs(volume["cdp_x"].values - exact).max() <= 0.5  # the scalar 1 rounds to metres
    assert np.array_equal(volume["cdp_x"].values.ravel()[::3], exact.ravel()[::3])


def test_dead_traces_are_out_of_mask_and_statistics(tmp_path: Path) -> None:
    made = draft(SHAPE)
    made.headers["trace_id"][[3, 4]] = 2
    made.headers["trace_id"][5] = 0  # unknown: live
    made.samples[[10, 11, 12]] = 0
    made.samples[3] = 1e6  # what a dead trace holds is nobody's business
    result = take_in(tmp_path, made.to_bytes())
    volume, dead = opened(tmp_path, result), [3, 4, 10, 11, 12]
    assert np.flatnonzero(~volume["trace_mask"].values.ravel()).tolist() == dead
    assert np.isnan(volume["amplitude"].values.reshape(len(made), -1)[dead]).all()
    live = np.delete(made.samples, dead, axis=0).astype(np.float64)
    assert result.manifest is not None
    facts = result.manifest.statistics
    assert (facts.count, facts.minimum, facts.maximum) == (live.size, live.min(), live.max())
    assert facts.mean == pytest.approx(live.mean(), rel=1e-12)
    assert facts.std == pytest.approx(live.std(), rel=1e-12)


@pytest.mark.parametrize(("option", "pick"), [("first", 0), ("last", 2), ("mean", None)])
def test_duplicates_by_the_spec(option: str, pick: int | None, tmp_path: Path) -> None:
    made = draft(SHAPE)
    made.take(np.r_[np.arange(len(made)), 8, 8])
    made.samples[-2:] += [[1], [3]]
    made.take(np.random.default_rng(2).permutation(len(made)))
    same = np.flatnonzero((made.headers["inline"] == 101) & (made.headers["crossline"] == 301))
    volume = opened(tmp_path, take_in(tmp_path, made.to_bytes(), duplicates=option))
    expected = made.samples[same].mean(axis=0, dtype=np.float64) if pick is None else made.samples[same[pick]]
    assert np.array_equal(volume["amplitude"].values[1, 1], expected.astype(np.float32))


def test_several_files_make_one_survey(tmp_path: Path) -> None:
    made = draft((6, 7, 20))
    whole = made.samples.copy()
    for name, rows in (("b.sgy", slice(21, None)), ("a.sgy", slice(21))):
        part = draft((6, 7, 20)).take(rows)
        (tmp_path / name).write_bytes(part.to_bytes())
    uris = [str(tmp_path / name) for name in ("a.sgy", "b.sgy")]
    result = ingest(uris, Lake(str(tmp_path / "lake")), SurveySpec(name="both", files=["a.sgy", "b.sgy"]))
    assert result.survey == "both"
    assert np.array_equal(opened(tmp_path, result)["amplitude"].values.reshape(42, 20), whole)
    assert result.manifest is not None
    assert [source.original_name for source in result.manifest.sources] == ["a.sgy", "b.sgy"]


def test_more_than_one_chunk_in_every_direction(tmp_path: Path) -> None:
    made = draft((130, 131, 129), code=1)
    by_crossline(made)
    made.take(np.random.default_rng(0).random(len(made)) < 0.9)
    result = take_in(tmp_path, made.to_bytes())
    _, _, cube = expected_cube(made)
    assert np.array_equal(opened(tmp_path, result)["amplitude"].values, cube, equal_nan=True)
    assert result.manifest is not None
    assert {key for key in result.manifest.volume.keys if key.startswith("amplitude/c/")} == {
        f"amplitude/c/{i}/{x}/{z}" for i in (0, 1) for x in (0, 1) for z in (0, 1)
    }


@pytest.mark.parametrize(("order", "code"), [(">", 5), (">", 1), ("<", 5)])
def test_export_gives_the_samples_and_headers_back(order: str, code: int, tmp_path: Path) -> None:
    from segy.schema import ScalarType
    from segy.standards import get_segy_standard

    made = draft(SHAPE, order=order, code=code)
    result = take_in(tmp_path, made.to_bytes())
    assert result.manifest is not None
    spec = get_segy_standard(1.0)
    spec.trace.data.format = ScalarType.IBM32 if code == 1 else ScalarType.FLOAT32
    out = tmp_path / "out.sgy"
    mdio.mdio_to_segy(spec, str(tmp_path / "lake" / result.manifest.folder / "volume.mdio"), str(out))
    expected = draft(SHAPE, code=code)
    assert out.read_bytes()[3600:] == expected.to_bytes()[3600:]
