"""kill -9 at three moments of an ingest, on a folder and on a real S3 server; ``make proof`` does fifty of each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from killed_ingest import Original, kill_an_ingest

from ingestion.lake import Lake


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return Original(tmp_path_factory.mktemp("original") / "killed.sgy")


@pytest.mark.parametrize("number", range(3))
def test_a_killed_ingest_leaves_no_survey_or_a_whole_one(
    number: int, original: Original, lake: Lake, tmp_path: Path
) -> None:
    assert original.undisturbed
    here = lake if number else Lake(str(tmp_path / "lake"))
    kill_an_ingest(original, here, random.Random(number), 1.5)
    original.assert_absent_or_whole(here)
    original.assert_completed_by_another(here)
