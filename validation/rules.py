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
    found: str  # may name {count}, {total}, {value} and, in short tables, the columns of the first failing row
    expected: str
    release: str
    acceptable: bool = True  # whether a person may release the survey in spite of it


class Table(Contract):
    """The expectations of one data frame."""

    identity: list[str]  # columns that name a row to people
    expectations: list[Rule] = Field(min_length=1)


class Limits(Contract):
    """Where validation changes its way."""

    rows_at_most: int = Field(gt=0)  # traces in one table; longer ones are counted by line
    surveys_to_compare: int = Field(gt=0)  # frozen surveys that drift is measured against


class Suites(Contract):
    """All expectations, by the name of the data frame they look at."""

    version: int = Field(gt=0)
    limits: Limits
    tables: dict[str, Table]

    def rule(self, code: str) -> Rule | None:
        """The expectation that gives findings of this code."""
        rules = (rule for table in self.tables.values() for rule in table.expectations)
        return next((rule for rule in rules if rule.code == code), None)


@cache
def load() -> Suites:
    """The expectations in force. Raises pydantic's ``ValidationError`` for a malformed file."""
    return Suites.model_validate(yaml.safe_load(resources.files("validation").joinpath("suites.yaml").read_text()))
