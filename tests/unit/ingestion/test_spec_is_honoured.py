"""What stands in the spec is what is published: the fields that change how a file is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mdio
import numpy as np
import pytest
from segy_bytes import FIELDS, draft

from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.manifest import Manifest
from ingestion.preflight.inspection import inspect
from ingestion.source import open_source
from ingestion.spec import SurveySpec
from validation.headers import headers
from validation.volume import PublishedVolume


def published(folder: Path, data: bytes, **spec: Any) -> tuple[Manifest, Any]:
    (folder / "a.sgy").write_bytes(data)
    lake = Lake(str(folder / "lake"))
    result = ingest(str(folder / "a.sgy"), lake, SurveySpec(**spec))
    assert result.manifest is not None, result.findings
    return result.manifest, mdio.open_mdio(str(folder / "lake" / result.manifest.folder / result.manifest.volume.path))


def values(volume: Any) -> np.ndarray:
    return np.asarray(volume["amplitude"])


@pytest.mark.parametrize("order", [">", "<"])
def test_two_byte_line_numbers(order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = draft(order=order)
    for byte, line in ((197, "inline"), (199, "crossline")):
        monkeypatch.setitem(FIELDS, f"own_{byte}", (byte, "i2"))
        made.headers[f"own_{byte}"] = made.headers[line] - 400
        made.headers[line] = made.headers[line] * 0
    spec = {"inline_byte": 197, "inline_type": "int16", "crossline_byte": 199, "crossline_type": "int16"}
    manifest, volume = published(tmp_path, made.to_bytes(), **spec)
    assert (manifest.inline.first, manifest.inline.count) == (-300, 6)
    assert (manifest.crossline.first, manifest.crossline.count) == (-100, 7)
    np.testing.assert_array_equal(values(volume).reshape(42, 20), made.samples)
    table = headers(PublishedVolume(Lake(str(tmp_path / "lake")), manifest))
    for name in ("inline", "crossline"):
        assert (table[f"header_{name}"] == table[name]).all()


def test_the_count_and_the_start_of_traces(tmp_path: Path) -> None:
    made = draft(count=21, extended=3)
    spec = {"samples_per_trace": 20, "first_trace_byte": 3601}
    manifest, volume = published(tmp_path, made.to_bytes(), **spec)
    assert manifest.sample.count == 20
    np.testing.assert_array_equal(values(volume).reshape(42, 20), made.samples)
    assert "first trace at byte 3601 by the spec" in manifest.notes
    assert "20 samples a trace by the spec; the binary header says 21" in manifest.notes


def test_auxiliary_traces_are_left_out(tmp_path: Path) -> None:
    made = draft()
    made.headers["trace_id"][[0, 9]] = (3, 8)
    manifest, volume = published(tmp_path, made.to_bytes(), auxiliary="drop")
    live = np.asarray(volume["trace_mask"]).ravel()
    assert np.flatnonzero(~live).tolist() == [0, 9]
    assert any("2 auxiliary traces (trace ids 3 to 8) dropped, by the spec" in note for note in manifest.notes)


@pytest.mark.parametrize(("system", "spec", "unit"), [(1, "ft", "ft"), (2, "m", "m"), (2, None, "ft")])
def test_the_unit_of_coordinates(system: int, spec: str | None, unit: str, tmp_path: Path) -> None:
    made = draft(binary={55: ("H", system)})
    _, volume = published(tmp_path, made.to_bytes(), coordinate_unit=spec)
    assert volume["cdp_x"].attrs["unitsV1"] == {"length": unit}


@pytest.mark.parametrize("byte", [3601 + 400, 2**31])
def test_a_start_that_is_none_is_held_back(byte: int, tmp_path: Path) -> None:
    (tmp_path / "a.sgy").write_bytes(draft().to_bytes() + b"\0")
    found = inspect([open_source(str(tmp_path / "a.sgy"))], SurveySpec(first_trace_byte=byte))
    assert [finding.code for finding in found.findings] in (["truncated"], ["no-traces"])
