"""A run interrupted under each strategy goes on under every other, on other numbers of processes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import get_args

from layouts import Layout, continued, largest_difference, uninterrupted
from proofs import Proof

from seismic_model.config import StrategyName

SEED = 20261130
SHAPES = [  # processes, cp, ulysses, accumulation: batches of 4 crops, models of 2 heads
    (1, 1, 1, 1),
    (1, 1, 1, 4),
    (2, 1, 1, 2),
    (2, 2, 1, 1),
    (2, 2, 2, 2),
    (3, 3, 1, 4),
    (4, 2, 2, 1),
    (4, 4, 1, 1),
]


def test_a_run_goes_on_under_any_strategy_and_layout_within_rounding(tmp_path: Path, proof: Proof) -> None:
    draw = random.Random(SEED)

    def any_layout(strategy: str) -> Layout:
        return Layout(strategy, *draw.choice(SHAPES), draw.choice(("none", "selective", "full")))

    worst, cases = 0.0, 0
    for first in get_args(StrategyName):
        begun = any_layout(first)
        whole = uninterrupted(begun, tmp_path / first)
        for second in get_args(StrategyName):
            other = any_layout(second)
            difference = largest_difference(continued(whole, other, tmp_path / f"{first}-{second}"), whole)
            assert difference <= 1e-5, f"{begun}, then {other}"
            worst, cases = max(worst, difference), cases + 1
    proof.record(cases, f"{worst:.1e} relative difference of a loss (at most 1e-5)")
