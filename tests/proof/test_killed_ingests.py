"""kill -9 at 50 seeded random moments of an ingest: the survey does not exist or is whole, and another completes it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from killed_ingest import Original, kill_an_ingest, seconds_of_writing
from proofs import Proof

from ingestion.lake import Lake

SEED = 20261130
KILLS = 50


@pytest.mark.parametrize("where", ["file", "s3"])
def test_a_killed_ingest_leaves_no_survey_or_a_whole_one(
    where: str, request: pytest.FixtureRequest, tmp_path: Path, proof: Proof
) -> None:
    root = Lake(str(tmp_path / "lakes")) if where == "file" else request.getfixturevalue("lake")
    original, draw = Original(tmp_path / "killed.sgy"), random.Random(f"{SEED} {where}")
    assert original.undisturbed
    longest = 1.1 * seconds_of_writing(original, Lake(f"{root.uri}/undisturbed"))
    kills = existed = tries = 0
    while kills < KILLS:
        lake = Lake(f"{root.uri}/{tries}")
        kills += kill_an_ingest(original, lake, draw, longest)
        existed += original.assert_absent_or_whole(lake)
        original.assert_completed_by_another(lake)
        tries += 1
        proof.record(
            kills, f"0 half surveys; of {tries} ingests {existed} were whole, the others completed by the next"
        )
