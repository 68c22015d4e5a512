"""The expectations as people wrote them (``suites.yaml``), checked on loading."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import Field

from ingestion.manifest import Contract


class Rule(Contract):
    """One expectation and what to tell a person when it fails."""

    code: str = Field(pattern=r"^[a-z]+(-[a-z]+)*$")
    severity: Literal["warn", "hold"]
    expectation: str  # a class of great_expectations.expectations
    arguments: dict[str, Any]
    found: str  # may name {count}, {total} and {value}
    expected: str
    release: str


class Table(Contract):
    """The expectations of one data frame."""

    identity: list[str]  # columns that name a row to people
    expectations: list[Rule] = Field(min_length=1)


class Suites(Contract):
    """All expectations, by the name of the data frame they look at."""

    version: int = Field(gt=0)
    tables: dict[str, Table]


@cache
def load() -> Suites:
    """The expectations in force. Raises pydantic's ``ValidationError`` for a malformed file."""
    return Suites.model_validate(yaml.safe_load(resources.files("validation").joinpath("suites.yaml").read_text()))
