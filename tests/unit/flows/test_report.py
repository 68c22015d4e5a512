"""The week's page shows what happened, and nothing in a stranger's file becomes markup."""

from __future__ import annotations

import re
from pathlib import Path

from flows.budget import Cost
from flows.report import INDEX_KEY, WeekResult, publish
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


def test_all_weeks_stand_on_one_page_newest_first_with_links_that_lead_there(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    used = Cost(run="r", processes=8, seconds=1800, gpu_hours=4, money=16, gpu_hours_allowed=None, at=0)
    publish(
        lake, WeekResult("2026-W52", [outcome("north", "passed")], why_not="failed at step 3", failed=True, cost=used)
    )
    publish(lake, WeekResult("2027-W01", [outcome("south", "held", HOSTILE)], why_not=f"nothing: {HOSTILE}"))
    lake.write("weeks/2027-W02/surveys/east.json", b"{}")  # still runs
    lake.write("weeks/2025-W01/summary.json", b"{}")  # of another version
    page = lake.read(INDEX_KEY).decode()
    links = re.findall(r'href="([^"]*)"', page)
    assert links == ["2027-W01/report.html", "2026-W52/report.html"]
    assert all(lake.exists(f"weeks/{link}") for link in links)
    for part in ("1: south", "failed: failed at step 3", "4.00 GPU hours, 16.00 USD"):
        assert part in page
    assert "<script" not in page
