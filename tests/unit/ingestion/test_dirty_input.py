"""What the findings on dirty SEG-Y say. Which kind gets which code: test_dirty_matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from segy_bytes import draft
from spoils import numbers_at

from ingestion.preflight.inspection import Inspection, inspect
from ingestion.source import open_source
from ingestion.spec import SurveySpec

SHAPE = (6, 7, 20)


def look(folder: Path, data: bytes, **spec: Any) -> Inspection:
    path = folder / "survey.sgy"
    path.write_bytes(data)
    return inspect([open_source(str(path))], SurveySpec(**spec))


def codes(found: Inspection) -> list[str]:
    return [finding.code for finding in found.findings]


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


def test_swapped_samples_are_told_from_others(tmp_path: Path) -> None:
    made = draft((10, 10, 50))
    made.samples = (made.samples * np.float32(1.1)).byteswap().view(made.samples.dtype)
    made.samples[~np.isfinite(made.samples)] = 0
    assert codes(look(tmp_path, made.to_bytes())) == ["byte-order-mixed"]


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
