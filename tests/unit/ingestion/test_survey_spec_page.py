"""docs/survey-spec.md says what the model says, and its examples are specs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from ingestion.spec import SurveySpec
from ingestion.spec_yaml import parse_spec

PAGE = Path(__file__).parents[3] / "docs/survey-spec.md"


def row(name: str) -> str:
    """The table's line about a field."""
    field = SurveySpec.model_fields[name]
    words = [arg for part in (field.annotation, *get_args(field.annotation)) for arg in get_args(part)]
    choices = [f"`{word}`" for word in dict.fromkeys(words) if isinstance(word, str)]
    default = "" if field.default in (None, []) else f"`{field.default}`"
    [example] = field.examples or [""]
    shown = f"[{', '.join(map(str, example))}]" if isinstance(example, list) else example
    meaning = f"{field.description} One of {', '.join(choices)}." if choices else field.description
    return f"| `{name}` | {meaning} | {default} | `{shown}` |"


def test_the_table_holds_every_field() -> None:
    table = ["| field | meaning | without it | example |", "|---|---|---|---|", *map(row, SurveySpec.model_fields)]
    assert PAGE.read_text().rstrip().endswith("\n".join(table))


def test_the_examples_are_specs() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    specs = [parse_spec(block.encode(), "docs/survey-spec.md") for block in blocks]
    assert [spec.model_dump(exclude_defaults=True) for spec in specs] == [
        {"inline_byte": 9, "crossline_byte": 21},
        {"sample_format": "ieee", "domain": "depth", "sample_interval": 5.0, "crs": "EPSG:23031"},
        {
            "name": "Block A 2019",
            "files": ["block_a_north.sgy", "block_a_south.sgy"],
            "drop_traces": [17, 4031],
        },
    ]
