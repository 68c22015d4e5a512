"""A run goes on under another strategy, another cp and on another number of processes within rounding.

All pairs of strategies are tried by ``tests/proof/test_layouts.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from layouts import Layout, continued, largest_difference, product, uninterrupted

from ingestion.lake import Lake

FIRST = Layout("zero2", processes=2, cp=2)
OTHERS = [
    Layout("ddp", processes=1, accumulation=2),
    Layout("ddp", processes=4, cp=2, ulysses=2),
    Layout("zero2", processes=3, cp=3, activation_checkpointing="full"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return uninterrupted(FIRST, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_losses_after_a_change_of_layout_agree_within_rounding(whole: Lake, other: Layout, tmp_path: Path) -> None:
    assert largest_difference(continued(whole, other, tmp_path), whole) <= 1e-5


def test_under_the_same_layout_nothing_differs(whole: Lake, tmp_path: Path) -> None:
    again = continued(whole, FIRST, tmp_path)
    assert largest_difference(again, whole) == 0
    assert product(again) == product(whole)
