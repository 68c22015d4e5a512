"""Counts of failing rows by line, for tables too long to give Great Expectations row by row.

The rules stay those of the suite: each is counted here, and the suite then expects every count to be zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from validation.rules import Rule, Table

EXAMPLES = 5


@dataclass
class Count:
    """How often one rule failed, and where first."""

    failing: int = 0
    total: int = 0  # rows that the rule looks at
    first: list[tuple[int, Any, dict[str, Any]]] = field(default_factory=list)  # place, value, identity


class Tally:
    """Takes a table part by part; ``frame`` has one row for each value of the table's first identity column."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.counts = {rule.code: Count() for rule in table.expectations}
        self._lines: dict[Any, npt.NDArray[np.int64]] = {}

    def add(self, part: pd.DataFrame) -> None:
        """Count ``part``, whose index says where each row lies."""
        by_line = part[self.table.identity[0]].to_numpy()
        for place, rule in enumerate(self.table.expectations):
            looked_at, failing = failing_rows(rule, part)
            count = self.counts[rule.code]
            count.failing += int(failing.sum())
            count.total += int(looked_at.sum())
            for row in np.flatnonzero(failing)[:EXAMPLES]:
                identity = {name: part[name].iloc[row] for name in self.table.identity}
                count.first.append((int(part.index[row]), _value(rule, part, int(row)), identity))
            count.first = sorted(count.first, key=lambda found: found[0])[:EXAMPLES]
            lines, times = np.unique(by_line[failing], return_counts=True)
            for line, times_there in zip(lines, times, strict=True):
                self._of(line)[place] += times_there
        for line in np.unique(by_line):
            self._of(line)

    def frame(self) -> pd.DataFrame:
        """Failing rows of each line, one column a rule."""
        lines = sorted(self._lines)
        counts = np.stack([self._lines[line] for line in lines]) if lines else np.zeros((0, len(self.counts)), int)
        return pd.DataFrame({self.table.identity[0]: lines} | dict(zip(self.counts, counts.T, strict=True)))

    def _of(self, line: Any) -> npt.NDArray[np.int64]:
        return self._lines.setdefault(line, np.zeros(len(self.counts), np.int64))


def failing_rows(rule: Rule, frame: pd.DataFrame) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Rows that ``rule`` looks at (its values are there), and those of them that fail, as Great Expectations has it."""
    given = rule.arguments
    if rule.expectation == "ExpectColumnPairValuesToBeEqual":
        one, other = frame[given["column_A"]], frame[given["column_B"]]
        known = np.asarray(one.notna() & other.notna())
        return known, known & np.asarray(one != other)
    values = frame[given["column"]]
    known = np.asarray(values.notna())
    if rule.expectation == "ExpectColumnValuesToBeBetween":
        low, high = given.get("min_value", -np.inf), given.get("max_value", np.inf)
        return known, known & ~np.asarray((values >= low) & (values <= high))
    if rule.expectation == "ExpectColumnValuesToNotBeInSet":
        return known, known & np.asarray(values.isin(given["value_set"]))
    if rule.expectation == "ExpectColumnValuesToBeInSet":
        return known, known & ~np.asarray(values.isin(given["value_set"]))
    raise ValueError(f"{rule.code}: {rule.expectation} cannot be counted by line; use one that looks at single values")


def _value(rule: Rule, part: pd.DataFrame, row: int) -> Any:
    names = [rule.arguments[key] for key in ("column", "column_A", "column_B") if key in rule.arguments]
    values = tuple(part[name].iloc[row] for name in names)
    return values[0] if len(values) == 1 else values
