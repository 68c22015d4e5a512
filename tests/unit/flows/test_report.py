"""The week's page shows what happened, and nothing in a stranger's file becomes markup."""

from __future__ import annotations

from pathlib import Path

from flows.report import WeekResult, publish
from flows.surveys import SurveyOutcome
from ingestion.lake import Lake
from ingestion.manifest import Finding

HOSTILE = "<script>alert(1)</script>\"'&"


def outcome(survey: str, status: str, found: str = "") -> SurveyOutcome:
    finding = Finding(code="odd", severity="hold", found=found, expected="even", release="mend it")
    return SurveyOutcome.model_validate(
        {
            "survey": survey,
            "status": status,
            "digest": None,
            "findings": [finding] if found else [],
            "report": None,
        }
    )


def test_a_week_that_trained_nothing_says_why(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    outcomes = [outcome("north", "passed"), outcome("south", "held", HOSTILE), outcome("west", "failed", "killed")]
    summary, page = publish(lake, WeekResult("2026-W49", outcomes, why_not=f"nothing trainable: {HOSTILE}"))
    rows = {line.name: line.value for line in summary.lines}
    assert rows["surveys in"] == "1"
    assert rows["held back"] == "2: south, west"
    assert rows["trained"].startswith("nothing trainable")
    assert "mend it" in page
    assert "<script" not in page
    assert lake.read(summary.report).decode() == page


def test_the_summary_is_written_after_the_page(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    publish(lake, WeekResult("2026-W49", []))
    page, summary = (lake.head(f"weeks/2026-W49/{name}").modified for name in ("report.html", "summary.json"))
    assert page <= summary
