"""The table of proofs, docs/proofs.md: one line each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.common import machine, versions

REPORT = Path(__file__).parents[2] / "docs" / "proofs.md"
HEAD = """# Proofs

Long checks that `make test` runs only a small seeded part of. `make proof` runs them all and writes this table;
a proof that is run alone renews its own line.

| proof | cases | worst figure | seconds | when and where |
|---|---|---|---|---|
"""


@dataclass
class Proof:
    """What one proof has to say for itself."""

    cases: int = 0
    worst: str = "none recorded"

    def record(self, cases: int, worst: str) -> None:
        """How many cases were tried, and the worst figure among them with its unit and bound."""
        self.cases, self.worst = cases, worst


def write_line(name: str, proof: Proof, outcome: str | None, seconds: float) -> None:
    """Put one proof's line into the report, in place of its old one; ``outcome`` instead of a figure it has not."""
    known = REPORT.read_text().removeprefix(HEAD).splitlines() if REPORT.exists() else []
    line = f"| {name} | {proof.cases} | {outcome or proof.worst} | {seconds:.0f} | {where()} |"
    lines = {each.split(" | ")[0].removeprefix("| "): each for each in known} | {name: line}
    REPORT.write_text(HEAD + "".join(f"{lines[each]}\n" for each in sorted(lines)))


def where() -> str:
    used = {name: version for name, version in versions().items() if name in ("python", "torch", "deepspeed")}
    named = ", ".join(" ".join(each) for each in used.items())
    return f"{datetime.now(UTC):%Y-%m-%d}, {machine()}; {named}"
