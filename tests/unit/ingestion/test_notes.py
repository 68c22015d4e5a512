"""What ingestion infers by itself is said, in the notes of ``survey inspect`` and of the manifest; else nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from segy_bytes import Draft, draft
from spoils import Spoil, binary, fields, nothing, patched, put, samples, several

from ingestion.cli import main
from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.preflight.inspection import inspect
from ingestion.quarantine import load_report
from ingestion.source import open_source
from ingestion.spec import SurveySpec

LITTLE = "read as little endian, for only so is the format code one (bytes 3225-3226); no mark says it"
METRES = "depths taken as metres: neither the spec nor the measurement system (bytes 3255-3256) says so"


def dead_without_numbers(made: Draft) -> None:
    several(samples([3, 4], 0), put("inline", 3, 0), put("crossline", 4, 0))(made)


SAID: dict[str, tuple[Spoil, dict[str, Any], list[str]]] = {
    "a clean file": (nothing, {}, []),
    "little endian": (fields(order="<"), {}, [LITTLE]),
    "little endian with a mark": (several(fields(order="<"), binary(3297, "I", 0x01020304)), {}, []),
    "little endian by the spec": (fields(order="<"), {"endianness": "little"}, []),
    "revision 0.1": (fields(revision=b"\0\1"), {}, ["revision bytes 0.1 read as revision 1.0"]),
    "revision 0.2": (fields(revision=b"\0\2"), {}, ["revision bytes 0.2 read as revision 2.0"]),
    "dead traces without numbers": (
        dead_without_numbers,
        {},
        [
            "2 dead traces (0 by trace id 2, the others all zero)",
            "2 dead traces with inline or crossline 0 left out of the grid, as padding",
        ],
    ),
    "trace ids of no standard": (
        several(put("trace_id", [0, 1], 9), put("trace_id", 2, -5)),
        {},
        ["live traces of unknown trace ids taken as seismic data: 1 with -5, 2 with 9"],
    ),
    "many trace ids": (
        lambda made: put("trace_id", ..., 9 + np.arange(len(made)))(made),
        {},
        [
            "live traces of unknown trace ids taken as seismic data: "
            "1 with 9, 1 with 10, 1 with 11, 1 with 12, 1 with 13, …"
        ],
    ),
    "depth without a unit": (nothing, {"domain": "depth"}, [METRES]),
    "depth with its unit": (nothing, {"domain": "depth", "depth_unit": "m"}, []),
    "depth in metres by the header": (binary(3255, "h", 1), {"domain": "depth"}, []),
    "depth in feet by the header": (binary(3255, "h", 2), {"domain": "depth"}, []),
    "ASCII text": (fields(ascii_text=True), {}, []),
    "text of zeros": (patched(1, bytes(3200)), {}, []),
    "text of two encodings": (
        patched(1, b" " * 1700 + b"\x40" * 1500),
        {},
        ["text header read as ASCII; it may be EBCDIC (1700 spaces against 1500)"],
    ),
    "text without spaces": (
        patched(1, b"\xc1" * 3200),
        {},
        ["text header read as ASCII; it may be EBCDIC (0 spaces against 0)"],
    ),
}


@pytest.mark.parametrize("kind", SAID)
def test_what_is_inferred_is_said_and_nothing_else(kind: str, tmp_path: Path) -> None:
    spoil, spec, notes = SAID[kind]
    made = draft()
    data = spoil(made)
    (tmp_path / "a.sgy").write_bytes(made.to_bytes() if data is None else data)
    found = inspect([open_source(str(tmp_path / "a.sgy"))], SurveySpec(**spec, crs="EPSG:23031"))
    assert not found.held
    assert found.notes == notes


def test_the_manifest_holds_the_notes_of_what_is_published(tmp_path: Path) -> None:
    (tmp_path / "a.sgy").write_bytes(draft(order="<").to_bytes())
    result = ingest(str(tmp_path / "a.sgy"), Lake(str(tmp_path / "lake")), SurveySpec(crs="EPSG:23031"))
    assert result.manifest is not None
    assert result.manifest.notes == [LITTLE]


def test_the_report_holds_the_notes_of_what_is_held_back(tmp_path: Path) -> None:
    made, lake = draft(order="<"), Lake(str(tmp_path / "lake"))
    put("inline", ..., 7)(made)
    (tmp_path / "a.sgy").write_bytes(made.to_bytes())
    result = ingest(str(tmp_path / "a.sgy"), lake)
    assert result.digest is not None
    assert load_report(lake, result.survey, result.digest).notes == [LITTLE]
    page = (tmp_path / "lake" / f"quarantine/a/{result.digest}/report.html").read_text()
    assert f"<li>{LITTLE}</li>" in page
    assert LITTLE in CliRunner().invoke(main, ["show", "a", "--lake", lake.uri]).stdout
