"""A recipe that leaves the strategy open gets the measured winner; without one the report says so."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from planned import SPLIT, WEEK, WINDOW
from planned import plan as publish_week

from flows.planning import UNMEASURED
from flows.settings import read_settings
from flows.steps import plan, strategy_note
from flows.week import Request
from ingestion.lake import Lake
from seismic_model.comparison.table import Comparison, Row
from seismic_model.config import RunConfig
from seismic_model.data.dataset import dataset_key
from seismic_model.train import read_config


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path))
    publish_week(lake)
    return lake


def request(lake: Lake, **recipe: Any) -> Request:
    tiny = {"window": WINDOW, "keep_ratio": 0.25, "steps": 9, "batch": 4, "learning_rate": 1e-3, "warmup_steps": 1}
    tiny |= {"cp": 2, "processes": 2, "checkpoint_every": 9, "strategy": "auto"} | recipe
    gate = {"margin": 0, "survey_tolerance": 0}
    settings = {"split": SPLIT.model_dump(), "gate": gate, "start_from": "scratch", "recipes": {"tiny": tiny}}
    named = {"lake": lake.uri, "week": WEEK, "surveys": [], "size": "tiny", "launcher": "local", "seed": 0}
    return Request(**named, force=False, settings=read_settings(settings))


def chosen(lake: Lake, asked: Request, run: str) -> RunConfig:
    return read_config(plan(asked, dataset_key(WEEK), run))


def measured(config: RunConfig, processes: int = 2) -> Comparison:
    rows = [
        Row(strategy="ddp", samples_per_second=3.0),
        Row(strategy="fsdp2", samples_per_second=5.0),
        Row(strategy="zero1", fault="out of memory"),
    ]
    return Comparison(
        config=config,
        processes=processes,
        device="CPU",
        versions={},
        data="made crops",
        steps=1,
        rows=rows,
        created=datetime.now(UTC),
    )


def test_the_measured_winner_is_taken(lake: Lake) -> None:
    asked = request(lake)
    found = measured(chosen(lake, asked, "before").model_copy(update={"strategy": "hsdp", "seed": 3}))
    lake.write(found.key, found.to_bytes())
    config = chosen(lake, asked, "after")
    assert config.strategy == "fsdp2"
    assert strategy_note(asked, config, lake) == "the fastest that was measured"


@pytest.mark.parametrize("other", [{"batch": 8}, {"precision": "bfloat16"}, {"cp": 1}, {"compile": True}])
def test_what_was_measured_for_something_else_does_not_count(lake: Lake, other: dict[str, Any]) -> None:
    found = measured(chosen(lake, request(lake), "before"))
    lake.write(found.key, found.to_bytes())
    asked = request(lake, **other)
    config = chosen(lake, asked, "after")
    assert config.strategy == UNMEASURED
    assert "none was measured" in strategy_note(asked, config, lake)
    assert f"sfm strategies --config {lake.uri_of(config.key)}" in strategy_note(asked, config, lake)


def test_what_is_measured_later_changes_no_run_that_is_planned(lake: Lake) -> None:
    asked = request(lake)
    config = chosen(lake, asked, "run")
    found = measured(config)
    lake.write(found.key, found.to_bytes())
    assert chosen(lake, asked, "run").strategy == UNMEASURED
    assert strategy_note(asked, config, lake) == "planned before fsdp2 was measured as the fastest"


def test_a_strategy_that_is_given_is_kept(lake: Lake) -> None:
    found = measured(chosen(lake, request(lake), "before"))
    lake.write(found.key, found.to_bytes())
    asked = request(lake, strategy="zero3")
    config = chosen(lake, asked, "after")
    assert config.strategy == "zero3"
    assert strategy_note(asked, config, lake) == ""


def test_nothing_wins_where_nothing_ran(lake: Lake) -> None:
    failed = [Row(strategy="ddp", fault="no GPU")]
    assert measured(chosen(lake, request(lake), "run")).model_copy(update={"rows": failed}).winner is None


def test_a_strategy_measured_anew_joins_what_was_found_of_the_others_in_the_same_way(lake: Lake) -> None:
    before = measured(chosen(lake, request(lake), "run"))
    anew = before.model_copy(update={"rows": [Row(strategy="ddp", samples_per_second=4.0)]})
    assert anew.with_rows_of(before).winner == "fsdp2"
    assert [row.samples_per_second for row in anew.with_rows_of(before).rows if row.strategy == "ddp"] == [4.0]
    assert anew.model_copy(update={"device": "another"}).with_rows_of(before).winner == "ddp"
