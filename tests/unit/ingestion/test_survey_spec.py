"""The survey spec: what it accepts, what it says of mistakes, and names that are safe everywhere."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestion.spec import MAX_SPEC_BYTES, SpecError, SurveySpec, parse_spec, printable, safe_identifier, survey_digest

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
        (b"name: 2020-13-45", "not readable as YAML"),
        (b"inline_byte: !!int x", "not readable as YAML"),
        (b"name: !!bool x", "not readable as YAML"),
        (b"name: !!timestamp x", "not readable as YAML"),
        (b"inline_byte: " + b"9" * 5000, "not readable as YAML"),
        (b"sample_interval: 1e308", "sample_interval"),
        (b"crs: EPSG:023031", "crs: String should match"),  # another name for the same place would hide a leak
        (b"\xff\xfe\x00", "not readable as YAML"),
        (b"inlin_byte: 9", "inlin_byte: Extra inputs are not permitted"),
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
