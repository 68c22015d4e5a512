"""The survey spec: what it accepts, what it says of mistakes, and names that are safe everywhere."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ingestion.names import printable, safe_identifier
from ingestion.spec import SurveySpec, survey_digest
from ingestion.spec_yaml import MAX_SPEC_BYTES, SpecError, parse_spec, schema_text

SCHEMA = Path(__file__).parents[3] / "docs/survey-spec.schema.json"
SAFE = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")


def test_a_spec_is_read() -> None:
    spec = parse_spec(b"name: Block A\ninline_byte: 9\ndrop_traces: [17]\ncrs: EPSG:23031\n", "a.yaml")
    assert (spec.name, spec.inline_byte, spec.drop_traces, spec.crs) == ("Block A", 9, [17], "EPSG:23031")
    assert parse_spec(b"", "a.yaml") == SurveySpec()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a: [", "not readable as YAML"),
        (b"- a\n- b", "found a list"),
        (b"inline_byte: !!int x", "not readable as YAML"),
        (b"name: !!bool x", "not readable as YAML"),
        (b"name: !!timestamp x", "not readable as YAML"),
        (b"inline_byte: " + b"9" * 5000, "line 1: inline_byte: found '9999"),
        (b"a: [1, 2", "line 1: expected ',' or ']'"),
        (
            b"polarity: normal\nname: a\npolarity: reverse",
            "line 3: `polarity` stands here again; it stands in line 1 too",
        ),
        (b"name: &a x\nlicence: *a", "line 1: anchors"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "line 1: anchors"),
        (b"crs: *a", "anchors"),
        (b"name:\n  first: a", "holds fields of its own"),
        (b"files: [[a], b]", "lists of lists"),
        (b"[" * 60_000, "lists of lists"),
        (b"{" * 60_000, "lists of lists"),
        (b"? [a]\n: b", "expected a field's name"),
        (b"inline_byte: 012", "line 1: inline_byte: found '012'; expected a valid integer (write it in plain digits"),
        (b"inline_byte: 1_000", "found '1_000'; expected a valid integer (write it in plain digits"),
        (b"inline_byte: 0x09", "found '0x09'"),
        (b"inline_byte: 1:30", "found '1:30'"),  # 90 in YAML 1.1
        (b"inline_byte: '9'", "found '9'; expected a valid integer (write it in plain digits, without quotes"),
        (b"inline_byte: 9.0", "found 9.0; expected a valid integer"),
        (b"inline_byte: true", "found True; expected a valid integer"),
        (b"polarity: no", "found 'no'; expected 'normal', 'reverse' or 'unknown', for example `polarity: normal`"),
        (b"name: 2019", "found 2019; expected a valid string (put it in quotes)"),
        (b"name: yes\ninline_byte: 300", "line 2: inline_byte: found 300; expected less than or equal to 239"),
        (b"drop_traces:\n- 1\n- x", "line 3: drop_traces.1: found 'x'"),
        (b"inline_byte: 238", "leaves no room for 4 bytes"),
        (b"inline_byte: 21\ncrossline_byte: 21", "both at byte 21"),
        (b"files: a.sgy", 'for example `files: ["block_a_1.sgy", "block_a_2.sgy"]`'),
        (b"sample_interval: 1e308", "sample_interval"),
        (
            b"crs: EPSG:023031",
            "crs: found 'EPSG:023031'; String should match",
        ),  # another name for the same place would hide a leak
        (b"\xff\xfe\x00", "not readable as YAML"),
        (b"inlin_byte: 9", "line 1: there is no field 'inlin_byte'; did you mean `inline_byte`?"),
        (b"inline_byte: 0", "inline_byte"),
        (b"inline_byte: 240", "inline_byte"),
        (b"coordinate_scalar: 0", "use 1"),
        (b"sample_interval: .nan", "sample_interval"),
        (b"sample_interval: -4", "sample_interval"),
        (b"drop_traces: [0]", "drop_traces.0"),
        (b"files: [../a.sgy]", "not a plain file name"),
        (b"files: [a.sgy, a.sgy]", "listed twice"),
        (b"crs: WGS84", "crs"),
        (b"duplicates: maybe", "duplicates"),
        (b"!!python/object/apply:os.system [ls]", "not readable as YAML"),
        (b"a" * (MAX_SPEC_BYTES + 1), "at most"),
    ],
)
def test_mistakes_are_named(text: bytes, said: str) -> None:
    with pytest.raises(SpecError, match=re.escape(said)) as caught:
        parse_spec(text, "incoming/a.yaml")
    assert "incoming/a.yaml" in str(caught.value)


@pytest.mark.parametrize("text", ["no", "on", "Yes", "2019-02-30", "012", "1_000", "0x1F", "1:30", "~a", "=", "<<"])
def test_what_other_readers_would_change_stays_text(text: str) -> None:
    assert parse_spec(f"name: {text}".encode(), "a.yaml").name == text


@pytest.mark.parametrize("text", [b"domain:\ncrs: ~\npolarity: null", b"# nothing\n", b"\xef\xbb\xbfdomain:", b"---\n"])
def test_a_field_without_a_value_is_not_said(text: bytes) -> None:
    assert parse_spec(text, "a.yaml") == SurveySpec()


def test_the_schema_is_the_one_in_the_docs() -> None:
    assert SCHEMA.read_text() == schema_text()  # else: survey schema > docs/survey-spec.schema.json


def test_the_schema_knows_every_field_and_holds_its_own_examples() -> None:
    schema = json.loads(schema_text())
    Draft202012Validator.check_schema(schema)
    valid = Draft202012Validator(schema).is_valid
    assert set(schema["properties"]) == set(SurveySpec.model_fields)
    for name, field in schema["properties"].items():
        assert len(field["description"]) > 20
        for example in field["examples"]:
            assert valid({name: example})
            SurveySpec.model_validate({name: example}, strict=True)
    assert not valid({"inlin_byte": 9})
    assert not valid({"inline_byte": "9"})
    assert not valid({"crs": "WGS84"})


def test_fields_added_later_do_not_change_the_digests_of_published_surveys() -> None:
    assert SurveySpec(inline_byte=9, domain="depth").sha256.startswith("135fcfd8")
    assert survey_digest(["0" * 64], SurveySpec()) != survey_digest(["0" * 64], SurveySpec(inline_type="int16"))
    assert SurveySpec.model_validate_json(SurveySpec(auxiliary="drop").to_bytes()).auxiliary == "drop"


@given(st.text(min_size=1, max_size=300))
def test_identifiers_are_safe(name: str) -> None:
    identifier = safe_identifier(name)
    assert SAFE.fullmatch(identifier)
    assert identifier == safe_identifier(name)
    assert (identifier == name) == bool(re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,99}", name))


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_different_names_stay_different(one: str, other: str) -> None:
    same = unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)
    assert (safe_identifier(one) == safe_identifier(other)) == same


@pytest.mark.parametrize(
    "name", ["Block A", "../../etc/passwd", "$(reboot)", "a'b\"c", "Blåvand", "日本", "..", "-rf", "A"]
)
def test_nothing_escapes_and_names_stay_readable(name: str) -> None:
    identifier = safe_identifier(name)
    assert not identifier.startswith((".", "-"))
    assert not set(identifier) & set("/\\$'\"` ()")


@given(st.text(max_size=100))
def test_printable_text_moves_no_cursor(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(c).startswith("C") for c in shown)
    assert printable(shown) == shown


def test_the_digest_is_of_content_not_of_names() -> None:
    spec = SurveySpec(name="a", files=["a.sgy"])
    digest = survey_digest(["0" * 64], spec)
    assert survey_digest(["0" * 64], SurveySpec(name="b")) == digest
    assert survey_digest(["0" * 64], spec.model_copy(update={"domain": "depth"})) != digest
    assert survey_digest(["1" * 64], spec) != digest
    assert survey_digest(["0" * 64, "1" * 64], spec) != survey_digest(["1" * 64, "0" * 64], spec)
