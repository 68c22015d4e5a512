"""A seeded part of the matrix of inputs is taken in; all that is held back is at least judged. ``make proof``: all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dirty_kinds import HELD
from dirty_matrix import KINDS, Case, cases, check, look, seeded
from dirty_table import PAGE, REMEDIES, page

TAKEN_IN = seeded(30)


@pytest.mark.parametrize("case", TAKEN_IN, ids=str)
def test_taken_in_as_the_table_says(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.parametrize("kind", HELD)
def test_held_back_with_exactly_its_codes(kind: str, tmp_path: Path) -> None:
    for case in cases({kind: HELD[kind]}):
        if case.outcome == "held":
            assert look(case, tmp_path) == set(case.kind.codes), str(case)


def test_the_part_covers_every_code_of_the_matrix() -> None:
    assert {code for case in TAKEN_IN for code in case.kind.codes} == {c for kind in KINDS.values() for c in kind.codes}


def test_the_page_for_operators_is_that_of_the_matrix() -> None:
    assert PAGE.read_text() == page(), "run: python tests/dirty_table.py"


def test_the_page_has_every_code_of_ingestion() -> None:
    sources = "".join(path.read_text() for path in Path("ingestion").rglob("*.py"))
    codes = set(re.findall(r'(?:hold\(|code=|found\[)\s*f?"([a-z0-9{}-]+)"', sources))
    codes = {code.replace("{name}", name) for code in codes for name in ("inline", "crossline")}
    assert codes == set(REMEDIES)
