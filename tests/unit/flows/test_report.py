"""The week's page shows what happened, and nothing in a stranger's file becomes markup."""

from __future__ import annotations

import re
from pathlib import Path

from planned import plan

from flows.budget import Cost
from flows.report import INDEX_KEY, WeekResult, publish
from flows.surveys import SurveyOutcome
from ingestion.lake import Lake
from ingestion.manifest import Finding

HOSTILE = "<script>alert(1)</script>\"'&"


def outcome(survey: str, status: str, found: str = "", report: str | None = None) -> SurveyOutcome:
    finding = Finding(code="odd", severity="hold", found=found, expected="even", release="mend it")
    return SurveyOutcome.model_validate(
        {
            "survey": survey,
            "status": status,
            "digest": None,
            "findings": [finding] if found else [],
            "report": report,
        }
    )


def test_a_week_that_trained_nothing_says_why(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    outcomes = [
        outcome("north", "passed"),
        outcome("south", "held", HOSTILE, "quarantine/south/ab/report.json"),
        outcome("west", "failed", "killed"),
    ]
    summary, page = publish(lake, WeekResult("2026-W49", outcomes, why_not=f"nothing trainable: {HOSTILE}"))
    rows = {line.name: line.value for line in summary.lines}
    assert rows["surveys in"] == "1"
    assert rows["held back"] == "2: south, west"
    assert rows["trained"].startswith("nothing trainable")
    assert "mend it" in page
    assert '<a href="../../quarantine/south/ab/report.html">south</a>' in page
    assert 'href="../../datadocs/index.html"' in page
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


def test_two_runs_of_a_week_keep_a_page_each_and_link_to_each_other(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    runs = [plan(lake, run=f"2026-w49-tiny-s{seed}") for seed in range(2)]
    published = [publish(lake, WeekResult("2026-W49", [], config=run))[1] for run in (*runs, runs[1])]  # tried again
    publish(lake, WeekResult("2026-W50", [], config=plan(lake, run="2026-w50-tiny-s0")))
    nothing, _ = publish(lake, WeekResult("2026-W49", [], why_not="training is paused"))

    for run, page in zip(runs, (published[0], published[2]), strict=True):
        assert lake.read(f"runs/{run.run}/report.html").decode() == page
    for key, others in ((f"runs/{runs[1].run}/report.html", runs[:1]), (nothing.report, runs)):
        links = re.findall(r'href="([^"]*)"', lake.read(key).decode())
        found = [(tmp_path / key).parent.joinpath(link).resolve() for link in links]
        assert found == [tmp_path.resolve() / "runs" / other.run / "report.html" for other in others]
