"""The learning rate is a function of the step alone; metrics lines are neither lost nor doubled by a restart."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import plan

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.training.loop import learning_rate
from seismic_model.training.metrics import MetricsLog, read_metrics


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return plan(Lake(str(tmp_path_factory.mktemp("lake"))))


@given(steps=st.integers(1, 300), warmup=st.integers(0, 50))
def test_the_rate_rises_to_the_peak_and_falls_to_the_end(config: RunConfig, steps: int, warmup: int) -> None:
    config = config.model_copy(update={"steps": steps, "warmup_steps": warmup})
    rates = [learning_rate(config, step) for step in range(steps)]
    peak = min(max(warmup - 1, 0), steps - 1)
    assert all(a < b for a, b in pairwise(rates[: peak + 1]))
    assert all(a * (1 + 1e-12) >= b for a, b in pairwise(rates[peak:]))
    assert 0 < min(rates) <= max(rates) <= config.learning_rate * (1 + 1e-12)
    if steps > warmup + 1:
        assert max(rates) == pytest.approx(config.learning_rate)
        assert rates[-1] == pytest.approx(config.final_learning_rate)


def test_a_resumed_run_drops_the_lines_it_writes_anew(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    log = MetricsLog(lake, "r", 0)
    for step in range(1, 6):
        log.append({"step": step, "loss": 1.0})
    log.flush()
    log = MetricsLog(lake, "r", 3)
    log.append({"step": 4, "loss": 2.0})
    log.flush()
    assert [(entry["step"], entry["loss"]) for entry in read_metrics(lake, "r")] == [
        (1, 1.0),
        (2, 1.0),
        (3, 1.0),
        (4, 2.0),
    ]


def test_the_first_line_is_on_the_lake_at_once(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    assert read_metrics(lake, "r") == []
    MetricsLog(lake, "r", 0).append({"step": 1, "loss": 1.0})
    assert len(read_metrics(lake, "r")) == 1


def test_a_figure_that_is_not_finite_never_reaches_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        MetricsLog(Lake(str(tmp_path)), "r", 0).append({"step": 1, "loss": float("nan")})
