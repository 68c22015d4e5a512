"""``survey propose``: the spec it writes makes a survey publishable where that is right, and nothing else does."""

from __future__ import annotations

import json
import struct
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from dirty_matrix import Case, seeded
from dirty_matrix import write as write_case
from segy_bytes import Draft, draft
from spoils import Spoil, fields, put, several

from ingestion.cli import main
from ingestion.preflight.inspection import inspect
from ingestion.proposal.propose import Proposal, as_yaml, propose
from ingestion.source import open_source
from ingestion.spec import SurveySpec
from ingestion.spec_yaml import parse_spec

SHAPE = (8, 9, 40)


def survey(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def write(folder: Path, spoil: Spoil, order: str = ">", **fields: Any) -> Path:
    made = draft(SHAPE, order=order, **fields)
    made.samples = (made.samples * np.float32(1.37)).astype(np.float32)  # of all mantissas
    spoiled = spoil(made)
    path = folder / "a.sgy"
    path.write_bytes(spoiled if isinstance(spoiled, bytes) else made.to_bytes())
    return path


def proposal_of(path: Path) -> Proposal:
    return propose([open_source(str(path))])


def moved(inline: str, crossline: str) -> Spoil:
    def spoil(made: Draft) -> None:
        made.headers[inline], made.headers[crossline] = made.headers["inline"], made.headers["crossline"]
        made.headers["inline"], made.headers["crossline"] = np.zeros((2, len(made)), int)

    return spoil


def labelled(stored: int, declared: int) -> Spoil:
    """Samples in one format under the code of another, or under no code."""

    def spoil(made: Draft) -> bytes:
        made.code = stored
        if stored in (2, 3, 8):
            made.samples = np.round(made.samples / (20 if stored == 8 else 1)).clip(-127 if stored == 8 else -4096, 127)
        data = bytearray(made.to_bytes())
        struct.pack_into(made.order + "H", data, 3224, declared)
        return bytes(data)

    return spoil


def copies(made: Draft) -> None:
    made.take(np.r_[np.arange(len(made)), 3, 3, 10])


def group_coordinates(made: Draft) -> bytes:
    made.headers["source_x"] = made.headers["x"] * 0
    x, y = made.headers["x"].copy(), made.headers["y"].copy()
    made.headers["x"], made.headers["y"] = np.zeros((2, len(made)), int)
    data = bytearray(made.to_bytes())
    size = (len(data) - 3600) // len(made)
    for i in range(len(made)):
        struct.pack_into(made.order + "ii", data, 3600 + i * size + 80, int(x[i]), int(y[i]))
    return bytes(data)


def source_coordinates(made: Draft) -> None:
    made.headers["source_x"], made.headers["source_y"] = made.headers.pop("x"), made.headers.pop("y")


def exchanged(made: Draft) -> None:
    for line, place in (("inline", "x"), ("crossline", "y")):
        made.headers[line], made.headers[place] = made.headers[place], made.headers[line]


def wrong_lines_format_and_a_nan(made: Draft) -> bytes:
    moved("at_9", "at_21")(made)
    made.samples[5, 7] = np.nan
    return labelled(5, 1)(made)  # type: ignore[no-any-return]


RELEASED: dict[str, tuple[Spoil, dict[str, Any]]] = {
    "lines at 9 and 21": (moved("at_9", "at_21"), {"inline_byte": 9, "crossline_byte": 21}),
    "lines at 17 and 13": (moved("at_17", "at_13"), {"inline_byte": 17, "crossline_byte": 13}),
    "lines at 221 and 9": (moved("at_221", "at_9"), {"inline_byte": 221, "crossline_byte": 9}),
    "IEEE called IBM": (labelled(5, 1), {"sample_format": "ieee"}),
    "IBM called IEEE": (labelled(1, 5), {"sample_format": "ibm"}),
    "int32 called IEEE": (labelled(2, 5), {"sample_format": "int32"}),
    "int32 called IBM": (labelled(2, 1), {"sample_format": "int32"}),
    "IEEE called int32": (labelled(5, 2), {"sample_format": "ieee"}),
    "IEEE called int16": (labelled(5, 3), {"sample_format": "ieee"}),
    "int16 called IEEE": (labelled(3, 5), {"sample_format": "int16"}),
    "IEEE without code": (labelled(5, 0), {"sample_format": "ieee"}),
    "int16 without code": (labelled(3, 0), {"sample_format": "int16"}),
    "int8 under a nonsense code": (labelled(8, 12345), {"sample_format": "int8"}),
    "a wrong count": (fields(count=41), {"samples_per_trace": 40}),
    "no count anywhere": (several(fields(count=0), put("count", ..., 0)), {"samples_per_trace": 40}),
    "no count, and no sequence": (
        several(fields(count=0), put("count", ..., 0), put("sequence", ..., 0)),
        {"samples_per_trace": 40},
    ),
    "text headers that are not there": (fields(extended=300), {"first_trace_byte": 3601}),
    "a wild inline": (put("inline", 17, 90_000), {"drop_traces": [18]}),
    "wild in both": (several(put("inline", 17, 90_000), put("crossline", 30, -9000)), {"drop_traces": [18, 31]}),
    "a coordinate off": (put("x", 20, 44_000_000), {"drop_traces": [21]}),
    "copies": (copies, {"duplicates": "first"}),
    "a NaN": (lambda made: made.samples.__setitem__((3, 4), np.nan), {"non_finite": "dead"}),
    "auxiliary traces": (put("trace_id", [0, 1], 5), {"auxiliary": "drop"}),
    "text speaks of depth": (fields(text="C 1 KIRCHHOFF PSDM STACK"), {"domain": "depth"}),
    "an interval that differs": (put("interval", [5], 2000), {"sample_interval": 4.0}),
    "no interval, but a text": (
        several(fields(interval=0, text="C 1 SAMPLE INTERVAL: 2.5 MS"), put("interval", ..., 0)),
        {"sample_interval": 2.5},
    ),
    "interval against header": (
        several(fields(text="C 4 SAMPLE RATE 2 MS"), put("interval", ..., 2000)),
        {"sample_interval": 2.0},
    ),
    "an interval in ms": (several(fields(interval=4), put("interval", ..., 4)), {"sample_interval": 4.0}),
    "lines and coordinates exchanged": (
        exchanged,
        {"inline_byte": 181, "crossline_byte": 185, "cdp_x_byte": 189, "cdp_y_byte": 193},
    ),
    "scalars of some traces wrong": (put("scalar", slice(3, 8), -10), {"coordinate_scalar": -100}),
    "a delay that differs": (put("delay", [5], 1000), {"first_sample": 0.0}),
    "a count that differs": (put("count", 4, 19), {"samples_per_trace": 40}),
    "source coordinates": (source_coordinates, {"cdp_x_byte": 73, "cdp_y_byte": 77}),
    "group coordinates": (group_coordinates, {"cdp_x_byte": 81, "cdp_y_byte": 85}),
    "scalar off by a hundred": (put("scalar", ..., 1), {"coordinate_scalar": -100}),
    "three at once": (
        wrong_lines_format_and_a_nan,
        {"sample_format": "ieee", "inline_byte": 9, "crossline_byte": 21, "non_finite": "dead"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", [">", "<"])
@pytest.mark.parametrize("kind", RELEASED)
def test_what_is_proposed_publishes(kind: str, order: str, tmp_path: Path) -> None:
    spoil, expected = RELEASED[kind]
    path = write(tmp_path, spoil, order)
    output = tmp_path / "proposed.yaml"
    said = survey("propose", str(path), "--output", str(output))
    assert said.exit_code == 0, said.output
    spec = parse_spec(output.read_bytes(), "proposed.yaml")
    values = spec.model_dump(exclude_defaults=True)
    if "sample_format" in expected and order == "<":
        values.pop("endianness", None)  # needed where no format code gives the order away
    if kind in ("IEEE without code", "int16 without code", "int8 under a nonsense code"):
        values.pop("endianness", None)
    assert values == expected
    found = inspect([open_source(str(path))], spec)
    assert not found.held
    assert found.survey().grid.shape == SHAPE[:2]


@pytest.mark.parametrize("kind", ["int16 without code", "three at once", "a wild inline"])
def test_the_saved_proposal_is_ingested(kind: str, tmp_path: Path) -> None:
    path, lake = write(tmp_path, RELEASED[kind][0]), str(tmp_path / "lake")
    assert survey("ingest", str(path), "--lake", lake).exit_code == 1
    assert survey("propose", str(path), "--output", str(tmp_path / "a.yaml")).exit_code == 0
    assert "a: published" in survey("ingest", str(path), "--lake", lake, "--spec", str(tmp_path / "a.yaml")).stdout


def line(made: Draft) -> None:
    along = np.arange(len(made)) * 25
    made.headers["x"], made.headers["y"] = 45_000_000 + along * 80, 620_000_000 - along * 60
    made.headers["at_21"] = np.arange(len(made)) + 1
    made.headers["inline"], made.headers["crossline"] = np.zeros((2, len(made)), int)


def prestack(made: Draft) -> None:
    made.take(np.repeat(np.arange(len(made)), 2))
    made.headers["offset"] = np.tile([100, 200], len(made) // 2)


def gathers(made: Draft) -> None:
    moved("at_9", "at_13")(made)
    made.headers["offset"] = made.headers["at_13"] * 25


def swap_samples(made: Draft) -> None:
    made.code, made.samples = 5, made.samples.byteswap().view(made.samples.dtype)


def unsigned(made: Draft) -> bytes:
    made.samples = (made.samples * 4 + 32_768).astype(np.uint16).view(np.int16)
    made.code = 3
    data = bytearray(made.to_bytes())
    struct.pack_into(made.order + "H", data, 3224, 0)
    return bytes(data)


def other_copies(made: Draft) -> None:
    copies(made)
    made.samples[-1] += 1


UNRESOLVED: dict[str, tuple[Spoil, str]] = {
    "2D line": (line, "a 2D line, which is no volume"),
    "pre-stack": (prestack, "prestack: 2 traces a cell with offsets 100, 200"),
    "shot gathers": (gathers, "traces before the stack"),
    "cut": (lambda made: made.to_bytes()[:-10], "truncated"),
    "junk": (lambda _: np.random.default_rng(3).integers(0, 256, 20_000, np.uint8).tobytes(), "not-segy"),
    "empty": (lambda _: b"", "file-empty"),
    "swapped samples": (swap_samples, "byte-order-mixed"),
    "unsigned samples without code": (unsigned, "sample-format-unknown"),
    "intervals of revision 2": (fields(revision=b"\x02\x00", binary={73: ("d", 4.0)}), "sample-interval-conflict"),
    "traces missing of a counted number": (fields(revision=b"\x02\x00", binary={313: ("Q", 100)}), "100 are declared"),
    "no count, blank headers": (
        several(fields(count=0), *(put(name, ..., 0) for name in ("count", "sequence", "interval"))),
        "counts of samples divide the file into whole traces; at none of them do regular trace headers follow",
    ),
    "all zero": (lambda made: made.samples.fill(0), "all-zero"),
    "numbers nowhere": (put("inline", ..., 7), "no other header bytes"),
}


@pytest.mark.parametrize("kind", UNRESOLVED)
def test_where_nothing_can_be_proposed_it_says_why(kind: str, tmp_path: Path) -> None:
    spoil, reason = UNRESOLVED[kind]
    path = write(tmp_path, spoil)
    said = survey("propose", str(path))
    assert said.exit_code == 1
    assert reason in " ".join(said.stdout.replace("#", "").split())
    assert parse_spec(said.stdout.encode(), "proposed") == SurveySpec()


GUESSED: dict[str, tuple[Spoil, str, list[str]]] = {
    "copies that differ": (other_copies, "duplicates", ["last", "mean"]),
    "many delays": (put("delay", slice(0, 30), 1000), "first_sample", ["1000"]),
    "interval against header": (put("interval", ..., 2000), "sample_interval", ["2"]),
    "depth and time": (fields(text="C 1 PSDM STACK IN DEPTH, STRETCHED TO TIME"), "domain", ["time"]),
}


@pytest.mark.parametrize("kind", GUESSED)
def test_a_guess_is_said_and_not_applied(kind: str, tmp_path: Path) -> None:
    spoil, field, alternatives = GUESSED[kind]
    proposal = proposal_of(write(tmp_path, spoil))
    [guess] = proposal.guesses
    assert (guess.field, guess.alternatives) == (field, alternatives)
    assert proposal.spec == SurveySpec()
    assert not proposal.publishable


@pytest.mark.parametrize("case", seeded(60), ids=str)
def test_of_the_matrix_clean_kinds_need_nothing_and_held_ones_are_never_released_without_a_line(
    case: Case, tmp_path: Path
) -> None:
    proposal = propose([open_source(str(path)) for path in write_case(case, tmp_path)])
    said = {one.field for one in proposal.values} - {"files"}
    assert parse_spec(as_yaml(proposal, date(2026, 11, 30)).encode(), "proposed") == proposal.spec
    if case.outcome == "published" and not case.spec:
        assert (proposal.publishable, said) == (True, set())
    elif case.outcome == "held" and not case.spec:
        assert proposal.publishable == bool(said and not proposal.unresolved)


def test_a_clean_file_needs_no_spec(tmp_path: Path) -> None:
    proposal = proposal_of(write(tmp_path, lambda _: None))
    assert (proposal.values, proposal.guesses, proposal.unresolved) == ([], [], [])
    assert proposal.publishable


def test_every_value_has_its_evidence_as_a_comment(tmp_path: Path) -> None:
    path = write(tmp_path, wrong_lines_format_and_a_nan)
    text = survey("propose", str(path)).stdout
    blocks = text.split("\n\n")
    for field, evidence in (
        ("inline_byte: 9", "8 × 9 lines (100 to 107 step 1, 300 to 308 step 1), each of 71 live traces its own cell"),
        ("sample_format: ieee", "the samples look like ieee; of the formats of this size"),
        ("non_finite: dead", "1 NaN or infinite samples in 1 of 72 traces"),
    ):
        [block] = [block for block in blocks if f"\n{field}" in block]
        assert evidence in " ".join(block.replace("# ", "").split())
    assert text.startswith("# Proposed for a.sgy on 20")


def test_json_gives_values_evidence_confidence_and_alternatives(tmp_path: Path) -> None:
    path = write(tmp_path, moved("at_9", "at_21"))
    facts = json.loads(survey("propose", str(path), "--json").stdout)
    assert (facts["publishable"], facts["spec"]) == (True, {"inline_byte": 9, "crossline_byte": 21})
    assert {one["confidence"] for one in facts["values"]} == {"certain"}
    assert set(facts["values"][0]) == {"field", "value", "evidence", "confidence", "alternatives"}
    path = write(tmp_path, UNRESOLVED["2D line"][0])
    said = survey("propose", str(path), "--json")
    assert said.exit_code == 1
    assert json.loads(said.stdout)["unresolved"]


def test_the_text_header_is_quoted_for_what_no_header_field_says(tmp_path: Path) -> None:
    text = "C 1 CLIENT\nC 2 UTM ZONE 31N, ED50\nC 3 SEG NORMAL POLARITY\nC 4 \u2028inline_byte: 9"
    path = write(tmp_path, lambda _: None, text=text, ascii_text=True)
    said = survey("propose", str(path)).stdout
    assert "# crs:    # such as EPSG:23031; look into the survey's navigation report" in said
    assert "#     text header: C 2 UTM ZONE 31N, ED50" in said
    assert "#     text header: C 3 SEG NORMAL POLARITY" in said
    assert parse_spec(said.encode(), "proposed") == SurveySpec()


def test_no_file_name_or_header_becomes_a_value(tmp_path: Path) -> None:
    path = write(tmp_path, lambda _: None, text="C 1 UTM\x85inline_byte: 9\nC 2 UTM \ninline_byte: 9", ascii_text=True)
    odd = path.rename(tmp_path / "a\ninline_byte: 9\u2028crossline_byte: 7.sgy")
    said = survey("propose", str(odd)).stdout
    assert parse_spec(said.encode(), "proposed") == SurveySpec()


def test_what_a_spec_says_stays_and_what_is_missing_is_added(tmp_path: Path) -> None:
    path = write(tmp_path, wrong_lines_format_and_a_nan)
    written = {
        "name": "null",
        "licence": 'to 2030: "internal" # \x85 \u2028 地',
        "crs": "EPSG:23031",
        "inline_byte": 9,
        "crossline_byte": 21,
        "first_sample": 12.5,
        "drop_traces": [3],
    }
    spec = SurveySpec(**written)
    (tmp_path / "a.yaml").write_text(as_yaml(propose([open_source(str(path))], spec=spec), date(2026, 11, 30)))
    for arguments in ([], ["--spec", str(tmp_path / "a.yaml")]):
        said = survey("propose", str(path), *arguments)
        assert said.exit_code == 0, said.output
        proposed = parse_spec(said.stdout.encode(), "proposed")
        assert proposed.model_dump(exclude_defaults=True) == written | {"sample_format": "ieee", "non_finite": "dead"}
        assert "stands in the spec that is there" in said.stdout
    assert "a.yaml" in survey("propose", str(path)).stderr


def test_dropped_traces_of_a_spec_are_joined_by_others(tmp_path: Path) -> None:
    path = write(tmp_path, put("inline", 17, 90_000))
    (tmp_path / "mine.yaml").write_text("drop_traces: [3]")
    said = survey("propose", str(path), "--spec", str(tmp_path / "mine.yaml"))
    assert parse_spec(said.stdout.encode(), "proposed").drop_traces == [3, 18]


def test_a_spec_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, lambda _: None)
    (tmp_path / "a.yaml").write_text("inline_bite: 9")
    said = survey("propose", str(path))
    assert said.exit_code == 1
    assert "did you mean `inline_byte`?" in said.stderr


def test_the_files_that_a_spec_lists_are_read_in_its_order(tmp_path: Path) -> None:
    made = draft(SHAPE)
    moved("at_9", "at_21")(made)
    for name, rows in (("b.sgy", slice(0, 36)), ("a.sgy", slice(36, None))):
        (tmp_path / name).write_bytes(Draft(made.samples, made.headers).take(rows).to_bytes())
    (tmp_path / "both.yaml").write_text("files: [b.sgy, a.sgy]\ncrs: EPSG:23031")
    said = survey("propose", str(tmp_path / "a.sgy"), "--spec", str(tmp_path / "both.yaml"))
    spec = parse_spec(said.stdout.encode(), "proposed")
    assert (spec.files, spec.inline_byte, spec.crs) == (["b.sgy", "a.sgy"], 9, "EPSG:23031")


def test_an_existing_file_is_not_overwritten_unless_told(tmp_path: Path) -> None:
    path, output = write(tmp_path, lambda _: None), tmp_path / "mine.yaml"
    output.write_text("crs: EPSG:23031\n")
    said = survey("propose", str(path), "--output", str(output))
    assert said.exit_code == 1
    assert "is there already" in said.stderr
    assert output.read_text() == "crs: EPSG:23031\n"
    assert survey("propose", str(path), "--output", str(output), "--overwrite").exit_code == 0
    assert "Proposed for" in output.read_text()


@pytest.mark.parametrize("output", ["s3://bucket/a.yaml", "@/no/folder/a.yaml", "@"])
def test_a_place_that_cannot_be_written_is_said(output: str, tmp_path: Path) -> None:
    path = write(tmp_path, lambda _: None)
    said = survey("propose", str(path), "--output", output.replace("@", str(tmp_path)))
    assert said.exit_code == 1
    assert said.stderr.startswith("Error: ")


def test_several_files_are_listed_in_order(tmp_path: Path) -> None:
    made = draft(SHAPE)
    moved("at_9", "at_21")(made)
    whole = Draft(made.samples, made.headers)
    for name, rows in (("b.sgy", slice(0, 36)), ("a 2.sgy", slice(36, None))):
        (tmp_path / name).write_bytes(Draft(whole.samples, whole.headers).take(rows).to_bytes())
    said = survey("propose", str(tmp_path / "b.sgy"), str(tmp_path / "a 2.sgy"))
    spec = parse_spec(said.stdout.encode(), "proposed")
    assert (spec.files, spec.inline_byte, spec.crossline_byte) == (["b.sgy", "a 2.sgy"], 9, 21)
    (tmp_path / "block.yaml").write_text(said.stdout)
    done = survey(
        "ingest", str(tmp_path / "b.sgy"), "--spec", str(tmp_path / "block.yaml"), "--lake", str(tmp_path / "l")
    )
    assert "block: published" in done.stdout


def test_overlapping_published_surveys_tell_of_the_crs(tmp_path: Path) -> None:
    path, lake = write(tmp_path, lambda _: None), tmp_path / "lake"
    (tmp_path / "crs.yaml").write_text("crs: EPSG:23031\nname: older")
    survey("ingest", str(path), "--lake", str(lake), "--spec", str(tmp_path / "crs.yaml"))
    said = survey("propose", str(path), "--lake", str(lake)).stdout
    assert "published survey older has EPSG:23031" in " ".join(said.replace("#", "").split())
    assert parse_spec(said.encode(), "proposed").crs is None
