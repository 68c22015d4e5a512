"""A survey spec from its YAML, with the line, the cause and an example for every mistake in it; and its JSON schema."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ingestion.spec import SurveySpec
from ingestion.yaml_lines import Lines, YamlLinesError, read_lines

MAX_SPEC_BYTES = 64 * 1024
_MODIFIED_NUMBER = re.compile(r"[-+]?[0-9][0-9_,']*")
_FIELDS = SurveySpec.model_fields


class SpecError(Exception):
    """A survey spec that cannot be used; the message names the field, what was found and what was expected."""


def parse_spec(text: bytes, origin: str) -> SurveySpec:
    """The spec that ``text`` (YAML) holds; ``origin`` names it in messages. Raises ``SpecError``."""
    if len(text) > MAX_SPEC_BYTES:
        raise SpecError(f"{origin}: {len(text)} bytes; expected a survey spec of at most {MAX_SPEC_BYTES}")
    try:
        lines = read_lines(text.decode("utf-8"))
    except (YamlLinesError, UnicodeDecodeError) as error:
        raise SpecError(f"{origin}: not readable as YAML: {error}") from error
    try:
        said = {name: value for name, value in lines.fields.items() if value is not None or name not in _FIELDS}
        return SurveySpec.model_validate(said, strict=True)
    except ValidationError as error:
        problems = "; ".join(_problem(dict(e), lines) for e in error.errors())
        raise SpecError(f"{origin}: {problems}") from error


def schema_text() -> str:
    """JSON schema (draft 2020-12) of the survey spec, for editors."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **SurveySpec.model_json_schema()}
    return json.dumps(schema | {"title": "Survey spec"}, indent=2, ensure_ascii=False) + "\n"


def _problem(error: Mapping[str, Any], lines: Lines) -> str:
    """One mistake: its line, its field, what was found, what is allowed, an example."""
    where = tuple(error["loc"])
    field = str(where[0]) if where else "spec"
    line = lines.line.get(where[:2], lines.line.get(where[:1], 0))
    place = f"line {line}: " if line else ""
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(field.lower().replace("-", "_"), _FIELDS, 1)
        meant = f"; did you mean `{near[0]}`?" if near else "."
        return f"{place}there is no field {field!r}{meant} Known fields: {', '.join(_FIELDS)}"
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    if field not in _FIELDS:  # a rule about several fields
        return message
    [example] = _FIELDS[field].examples or [""]
    shown = json.dumps(example, ensure_ascii=False) if isinstance(example, list) else example
    named = ".".join(map(str, where))
    return f"{place}{named}: found {_shown(error['input'])}; {message}{_hint(error)}, for example `{field}: {shown}`"


def _shown(value: object) -> str:
    return ascii(value) if len(repr(value)) <= 60 else f"{ascii(value)[:60]}…"


def _hint(error: Mapping[str, Any]) -> str:
    """How to write what other YAML readers would have taken for something else."""
    found, wanted = error["input"], error["type"]
    if wanted == "string_type" and isinstance(found, bool | int | float):
        return " (put it in quotes)"
    if wanted in ("int_type", "float_type") and isinstance(found, str) and _MODIFIED_NUMBER.fullmatch(found):
        return " (write it in plain digits, without quotes, leading zeros or marks between digits)"
    return ""
