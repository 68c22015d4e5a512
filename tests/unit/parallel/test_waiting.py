"""Waits add up, whether or not anyone asks for their time."""

from __future__ import annotations

import time

import pytest
import torch

from seismic_model.parallel import waiting
from seismic_model.parallel.waiting import Waiting


def test_a_wait_counts_once() -> None:
    counted = Waiting(torch.device("cpu"))
    for _ in range(2):
        with counted:
            time.sleep(0.01)
        assert 0.01 <= counted.take() < 1
    assert (counted.take(), counted.finished) == (0, 2)


def test_what_nobody_asks_for_takes_no_memory_and_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_HELD", 3)
    counted = Waiting(torch.device("cpu"))
    for _ in range(10):
        with counted:
            time.sleep(0.002)
        assert len(counted._began) < 3
    assert counted.take() >= 0.02
    assert counted.take() == 0
