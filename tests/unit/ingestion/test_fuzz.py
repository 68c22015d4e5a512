"""Some hundred mutated files, in this process; ``make proof`` tries 50,000 under limits of memory and time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fuzzing import look, mutated, take_in


def test_inspect_says_something_of_any_file(tmp_path: Path) -> None:
    outcomes = Counter(look(seed, tmp_path) for seed in range(60_000, 60_250))
    assert set(outcomes) == {"held", "published"}


def test_ingest_holds_back_or_publishes_any_file(tmp_path: Path) -> None:
    outcomes = Counter(take_in(seed, tmp_path) for seed in range(60_000, 60_008))
    assert set(outcomes) == {"held", "published"}


def test_a_seed_gives_the_same_file() -> None:
    assert mutated(7) == mutated(7)
