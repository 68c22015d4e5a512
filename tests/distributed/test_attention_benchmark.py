"""The attention benchmark measures what it says, on few tokens."""

from __future__ import annotations

import sys

import pytest

from benchmarks import attention
from benchmarks.common import Measured, report


@pytest.fixture(scope="module")
def measured() -> Measured:
    return attention.measure(tokens=1024, timed_tokens=256, rounds=1)


def test_every_way_is_exact(measured: Measured) -> None:
    assert len(measured.rows) == len(attention.WAYS)
    for row in measured.rows:
        assert 0 < row["output_error"] < 3e-6, row
        assert 0 < row["gradient_error"] < 3e-6, row


def test_a_rank_holds_what_can_be_counted_by_hand(measured: Measured) -> None:
    tensor = 1024 * attention.HEADS * attention.WIDTH * 4  # bytes of q
    held = {(row["way"], row["ranks"]): row["peak_bytes"] / tensor for row in measured.rows}
    assert held["one process", 1] >= 8  # q, k, v, output and the gradients of all
    # the last block of two is not passed on; the rest is scratch space
    assert 15 <= 2 * held["ring", 2] <= 17 <= 8 * held["ring", 8] <= 20
    assert max(held["heads", 8], held["ring", 8]) < held["all-gather", 8] < held["one process", 1]


def test_goals_and_table_are_of_these_rows(measured: Measured) -> None:
    goals = report("attention", measured)["goals"]
    assert [goal["goal"] for goal in goals] == [3, 0.30, 1.05]
    assert goals[0]["met"]
    assert attention.tabulate(measured.rows).row_count == len(measured.rows)


@pytest.mark.parametrize("tokens", ["0", "100", "many"])
def test_tokens_that_eight_ranks_cannot_share_are_refused(
    tokens: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attention", "--tokens", tokens])
    with pytest.raises(SystemExit) as ended:
        attention.main()
    assert ended.value.code == 2
    assert "expected e.g. 4096" in capsys.readouterr().err
