"""Long proofs, run by ``make proof``. Each leaves one line in docs/proofs.md, a failed one too.

def test_the_claim_in_words(proof: Proof) -> None:
    ...
    proof.record(cases=24, worst="0 differing bits")
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.common import machine, versions

REPORT = Path(__file__).parents[2] / "docs" / "proofs.md"
HEAD = """# Proofs

Long checks that `make test` runs only a small seeded part of. `make proof` runs them all and writes this table;
a proof that is run alone renews its own line.

| proof | cases | worst figure | seconds | when and where |
|---|---|---|---|---|
"""
RECORDED: pytest.StashKey[Proof] = pytest.StashKey()


@dataclass
class Proof:
    """What one proof has to say for itself."""

    cases: int = 0
    worst: str = "none recorded"

    def record(self, cases: int, worst: str) -> None:
        """How many cases were tried, and the worst figure among them with its unit and bound."""
        self.cases, self.worst = cases, worst


@pytest.fixture
def proof(request: pytest.FixtureRequest) -> Proof:
    return request.node.stash.setdefault(RECORDED, Proof())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    began, outcome = time.monotonic(), "**FAILED**"
    try:
        yield
        outcome = ""
    except pytest.skip.Exception:
        outcome = "not run here"
        raise
    finally:
        proof = item.stash.get(RECORDED, Proof())
        said = outcome or proof.worst
        name = item.name.removeprefix("test_").replace("_", " ")
        write_line(name, f"{proof.cases} | {said} | {time.monotonic() - began:.0f} | {where()}")


def write_line(name: str, line: str) -> None:
    """Put one proof's line into the report, in place of its old one."""
    known = REPORT.read_text().removeprefix(HEAD).splitlines() if REPORT.exists() else []
    lines = {each.split(" | ")[0].removeprefix("| "): each for each in known} | {name: f"| {name} | {line} |"}
    REPORT.write_text(HEAD + "".join(f"{lines[each]}\n" for each in sorted(lines)))


def where() -> str:
    used = {name: version for name, version in versions().items() if name in ("python", "torch", "deepspeed")}
    named = ", ".join(" ".join(each) for each in used.items())
    return f"{datetime.now(UTC):%Y-%m-%d}, {machine()}; {named}"
