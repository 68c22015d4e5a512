"""Every kind of dirty SEG-Y gets its finding by its stable code, in both byte orders."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from segy_bytes import Draft, draft

from ingestion.inspect import Inspection, inspect
from ingestion.source import open_source
from ingestion.spec import SurveySpec

SHAPE = (6, 7, 20)
Spoil = Callable[[Draft], Any]  # changes the draft; may return bytes instead


def look(folder: Path, data: bytes, **spec: Any) -> Inspection:
    path = folder / "survey.sgy"
    path.write_bytes(data)
    return inspect([open_source(str(path))], SurveySpec(**spec))


def codes(found: Inspection) -> list[str]:
    return [finding.code for finding in found.findings]


def put(name: str, where: Any, value: Any) -> Spoil:
    def spoil(made: Draft) -> None:
        made.headers.setdefault(name, np.zeros(len(made), int))[where] = value

    return spoil


def fields(**values: Any) -> Spoil:
    def spoil(made: Draft) -> None:
        for name, value in values.items():
            setattr(made, name, value)

    return spoil


def samples(where: Any, value: float) -> Spoil:
    def spoil(made: Draft) -> None:
        made.samples[where] = value

    return spoil


def duplicate(made: Draft) -> None:
    made.take(np.r_[np.arange(len(made)), 3, 3, 10])


def prestack(made: Draft) -> None:
    made.take(np.repeat(np.arange(len(made)), 2))
    made.headers["offset"] = np.tile([100, 200], len(made) // 2)


def numbers_at(inline: str, crossline: str) -> Spoil:
    def spoil(made: Draft) -> None:
        made.headers[inline], made.headers[crossline] = made.headers["inline"], made.headers["crossline"]
        made.headers["inline"] = np.zeros(len(made), int)
        made.headers["crossline"] = np.zeros(len(made), int)

    return spoil


def mislabelled(stored: int, declared: int) -> Spoil:
    def spoil(made: Draft) -> bytes:
        made.code = stored
        data = bytearray(made.to_bytes())
        struct.pack_into(made.order + "H", data, 3224, declared)
        return bytes(data)

    return spoil


def cut(length: int) -> Spoil:
    return lambda made: made.to_bytes()[:length]


def more(tail: bytes) -> Spoil:
    return lambda made: made.to_bytes() + tail


def degrees(made: Draft) -> None:
    made.headers |= {"x": made.headers["x"] // 10**5, "y": made.headers["y"] // 10**7}
    made.headers["coordinate_unit"] = np.full(len(made), 3)


def sparse(made: Draft) -> None:
    made.headers |= {"inline": np.arange(len(made)) * 997, "crossline": np.arange(len(made))}


def several(*spoils: Spoil) -> Spoil:
    def spoil(made: Draft) -> Any:
        return [one(made) for one in spoils][-1]

    return spoil


HELD: dict[str, tuple[Spoil, list[str]]] = {
    "empty file": (cut(0), ["file-empty"]),
    "some bytes": (cut(1000), ["not-segy"]),
    "header only": (cut(3600), ["no-traces"]),
    "cut in the first trace": (cut(3700), ["truncated"]),
    "cut in a trace": (cut(-10), ["truncated"]),
    "bytes too many": (more(b"\0" * 7), ["truncated"]),
    "a count of a terabyte": (fields(revision=b"\x02\x00", binary={69: ("I", 2**31 - 1)}), ["truncated"]),
    "a count of 65535": (fields(count=65535), ["truncated"]),
    "no count anywhere": (several(fields(count=0), put("count", ..., 0)), ["sample-count-missing"]),
    "no interval anywhere": (several(fields(interval=0), put("interval", ..., 0)), ["sample-interval-missing"]),
    "intervals that differ": (put("interval", [5, 6], 2000), ["sample-interval-differs"]),
    "interval against header": (put("interval", ..., 2000), ["sample-interval-conflict"]),
    "counts that differ": (put("count", 4, 19), ["sample-count-differs"]),
    "delays that differ": (put("delay", slice(10, 20), 1000), ["delay-differs"]),
    "odd scalar for times": (several(put("delay", ..., 1000), put("times_scalar", ..., 7)), ["times-scalar-unknown"]),
    "IEEE called IBM": (mislabelled(5, 1), ["sample-format-mismatch"]),
    "IBM called IEEE": (mislabelled(1, 5), ["sample-format-mismatch"]),
    "format without code": (fields(code=0), ["sample-format-unknown"]),
    "fixed point with gain": (fields(code=4), ["sample-format-unsupported"]),
    "wild inline": (put("inline", 17, 90_000), ["wild-inline"]),
    "wild crossline": (put("crossline", 17, -5_000), ["wild-crossline"]),
    "inline between the steps": (several(put("inline", 17, 101), put("crossline", 17, 300)), ["inline-off-step"]),
    "duplicates": (duplicate, ["duplicate-traces"]),
    "pre-stack": (prestack, ["prestack"]),
    "one inline": (put("inline", ..., 100), ["no-3d-grid"]),
    "numbers at 9 and 21": (numbers_at("at_9", "at_21"), ["no-3d-grid"]),
    "sparse": (sparse, ["grid-sparse"]),
    "NaN": (samples((3, 4), np.nan), ["non-finite-samples"]),
    "infinite": (samples((3, 4), np.inf), ["non-finite-samples"]),
    "all zero": (samples(..., 0), ["all-zero"]),
    "all dead": (put("trace_id", ..., 2), ["no-live-traces"]),
    "constant": (samples(..., 7), ["constant-amplitude"]),
    "auxiliary traces": (put("trace_id", [0, 1], 5), ["auxiliary-traces"]),
    "a coordinate off": (put("x", 20, 44_000_000), ["coordinates-misfit"]),
    "typo that hits another line": (several(put("inline", 20, 105), put("trace_id", 41, 2)), ["coordinates-misfit"]),
    "coordinates in degrees": (degrees, ["coordinates-geographic"]),
    "y missing": (put("y", ..., 0), ["coordinates-degenerate"]),
    "text speaks of depth": (fields(text="C 1 PSDM STACK IN DEPTH"), ["domain-unclear"]),
    "extended headers beyond the end": (fields(extended=900), ["extended-headers-invalid"]),
    "extended headers without end": (fields(extended=-1), ["extended-headers-invalid"]),
    "extended trace headers": (fields(revision=b"\x02\x00", binary={307: ("i", 1)}), ["extended-trace-headers"]),
    "unknown trailer": (fields(revision=b"\x02\x00", binary={329: ("i", -1)}), ["data-trailer-unknown"]),
}  # fmt: skip


@pytest.mark.parametrize("order", [">", "<"])
@pytest.mark.parametrize("kind", HELD)
def test_held_back_with_its_code(kind: str, order: str, tmp_path: Path) -> None:
    spoil, expected = HELD[kind]
    step = 2 if "steps" in kind else 1
    made = draft(SHAPE, inlines=(100, step), order=order)
    spoiled = spoil(made)
    data = spoiled if isinstance(spoiled, bytes) else made.to_bytes()
    found = look(tmp_path, data)
    assert codes(found) == expected
    assert found.held
    assert all(finding.found and finding.expected and finding.release for finding in found.findings)
    assert found.summary()["would_be"] == "held"


RELEASED: dict[str, tuple[Spoil, dict[str, Any]]] = {
    "wild inline dropped": (HELD["wild inline"][0], {"drop_traces": [18]}),
    "duplicates, first": (duplicate, {"duplicates": "first"}),
    "NaN traces dead": (HELD["NaN"][0], {"non_finite": "dead"}),
    "IEEE by the spec": (mislabelled(5, 1), {"sample_format": "ieee"}),
    "IBM by the spec": (mislabelled(1, 5), {"sample_format": "ibm"}),
    "interval by the spec": (HELD["intervals that differ"][0], {"sample_interval": 4}),
    "first sample by the spec": (HELD["delays that differ"][0], {"first_sample": 0}),
    "bytes by the spec": (numbers_at("at_9", "at_21"), {"inline_byte": 9, "crossline_byte": 21}),
    "bytes 17 and 13": (numbers_at("at_17", "at_13"), {"inline_byte": 17, "crossline_byte": 13}),
    "bytes 221 and 225": (numbers_at("at_221", "at_225"), {"inline_byte": 221, "crossline_byte": 225}),
    "domain by the spec": (HELD["text speaks of depth"][0], {"domain": "depth"}),
    "auxiliary traces dropped": (HELD["auxiliary traces"][0], {"drop_traces": [1, 2]}),
}


@pytest.mark.parametrize("order", [">", "<"])
@pytest.mark.parametrize("kind", RELEASED)
def test_what_the_report_proposes_releases(kind: str, order: str, tmp_path: Path) -> None:
    spoil, spec = RELEASED[kind]
    made = draft(SHAPE, order=order)
    spoiled = spoil(made)
    found = look(tmp_path, spoiled if isinstance(spoiled, bytes) else made.to_bytes(), **spec)
    assert codes(found) == []
    assert found.survey().grid.shape == SHAPE[:2]


@pytest.mark.parametrize(("inline", "crossline"), [(9, 21), (17, 13), (221, 225)])
def test_other_header_bytes_are_proposed_with_evidence(inline: int, crossline: int, tmp_path: Path) -> None:
    made = draft(SHAPE)
    numbers_at(f"at_{inline}", f"at_{crossline}")(made)
    release = look(tmp_path, made.to_bytes()).findings[0].release
    assert f"inline_byte: {inline} and crossline_byte: {crossline} give 6 × 7 lines (100 to 105 step 1" in release


def test_shot_numbering_of_a_line_is_no_evidence(tmp_path: Path) -> None:
    made = draft(SHAPE)
    numbers_at("at_9", "at_21")(made)
    made.headers["offset"] = np.arange(len(made)) % 7 * 25
    finding = look(tmp_path, made.to_bytes()).findings[0]
    assert "proposed" not in finding.release
    assert "7 different offsets from 0 to 150" in finding.found


def test_findings_name_the_trace_and_the_others(tmp_path: Path) -> None:
    made = draft(SHAPE)
    made.headers["inline"][17] = 90_000
    finding = look(tmp_path, made.to_bytes()).findings[0]
    assert "inline 90000" in finding.found
    assert "100 to 105" in finding.found
    assert finding.examples == ["trace 18 (inline 90000, crossline 303)"]
    assert "drop_traces: [18]" in finding.release


def test_truncation_says_both_lengths(tmp_path: Path) -> None:
    data = draft(SHAPE).to_bytes()
    finding = look(tmp_path, data[:-10]).findings[0]
    assert str(len(data) - 10) in finding.found
    assert str(len(data)) in finding.expected


def test_junk_is_no_segy(tmp_path: Path) -> None:
    junk = np.random.default_rng(3).integers(0, 256, 20_000, np.uint8).tobytes()
    assert codes(look(tmp_path, junk)) == ["not-segy"]


def test_overflow_of_ibm_is_found(tmp_path: Path) -> None:
    made = draft(SHAPE, code=1)
    data = bytearray(made.to_bytes())
    data[3600 + 240 : 3600 + 244] = b"\x7f\xff\xff\xff"  # 7.2e75
    assert codes(look(tmp_path, bytes(data))) == ["amplitude-overflow"]


def test_swapped_samples_are_implausible(tmp_path: Path) -> None:
    made = draft((10, 10, 50))
    made.samples = (made.samples * np.float32(1.1)).byteswap().view(made.samples.dtype)
    made.samples[~np.isfinite(made.samples)] = 0
    assert "implausible-amplitudes" in codes(look(tmp_path, made.to_bytes()))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_amplitudes_of_any_size_are_plausible(scale: float, tmp_path: Path) -> None:
    made = draft((10, 10, 50))
    made.samples = (made.samples * np.float32(scale)).astype(np.float32)
    assert codes(look(tmp_path, made.to_bytes())) == []


def test_source_coordinates_are_proposed_where_only_these_are_filled(tmp_path: Path) -> None:
    made = draft(SHAPE)
    made.headers["source_x"], made.headers["source_y"] = made.headers.pop("x"), made.headers.pop("y")
    found = look(tmp_path, made.to_bytes())
    assert codes(found) == ["coordinates-elsewhere"]
    assert codes(look(tmp_path, made.to_bytes(), cdp_x_byte=73, cdp_y_byte=77)) == []


def test_wrong_trace_numbers_in_the_spec_are_said(tmp_path: Path) -> None:
    assert codes(look(tmp_path, draft(SHAPE).to_bytes(), drop_traces=[43])) == ["drop-traces-unknown"]
    assert codes(look(tmp_path, draft(SHAPE).to_bytes(), drop_traces=[42])) == []


def test_files_of_one_survey_must_agree(tmp_path: Path) -> None:
    (tmp_path / "a.sgy").write_bytes(draft(SHAPE).to_bytes())
    (tmp_path / "b.sgy").write_bytes(draft((6, 7, 21)).to_bytes())
    found = inspect([open_source(str(tmp_path / name)) for name in ("a.sgy", "b.sgy")], SurveySpec())
    assert codes(found) == ["files-differ"]


def test_memory_stays_bounded_whatever_the_header_claims(tmp_path: Path) -> None:
    import tracemalloc

    made = draft(SHAPE, revision=b"\x02\x00", binary={69: ("I", 2**31 - 1)})
    tracemalloc.start()
    look(tmp_path, made.to_bytes())
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
