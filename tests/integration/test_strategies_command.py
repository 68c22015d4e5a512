"""``sfm strategies`` in real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from planned import plan

from ingestion.lake import Lake
from seismic_model.cli import main
from seismic_model.comparison.table import measured_winner

MADE = ["strategies", "--size", "tiny", "--window", "8x8x8", "--processes", "2", "--steps", "1"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def test_the_winner_is_kept_on_the_lake_of_the_run(lake: Lake) -> None:
    config = plan(lake, cp=2, accumulation=2)
    asked = ["strategies", "--config", lake.uri_of(config.key), "--processes", "2", "--steps", "1", "--json"]
    result = CliRunner().invoke(main, [*asked, "--strategy", "fsdp2"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["rows"]
    assert row["fault"] is None
    assert row["samples_per_second"] > 0
    assert row["tokens_per_second"] == pytest.approx(row["samples_per_second"] * 16)
    assert row["peak_memory"] > 2**20
    assert set(row["seconds"]) == {"data", "forward", "backward", "step"}
    assert measured_winner(lake, config, 2) == "fsdp2"
    assert measured_winner(lake, config, 4) is None


def test_a_strategy_that_fails_says_why_and_nothing_is_kept(lake: Lake) -> None:
    result = CliRunner().invoke(main, [*MADE, "--batch", "3", "--strategy", "ddp", "--lake", lake.uri])
    assert result.exit_code == 1, result.output
    assert "failed" in result.output
    assert "batch 3 cannot be dealt out" in result.output
    assert lake.folders("strategies") == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--size", "tiny"], "--window and --batch"),
        (["--config", "file:///nowhere/config.json"], "there is no config"),
        (["--config", "file:///nowhere/config.json", "--size", "tiny"], "--config says all"),
        (["--size", "tiny", "--window", "9x8x8", "--batch", "2"], "not a positive multiple of patch"),
        (["--size", "tiny", "--window", "8x8", "--batch", "2"], "window"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["strategies", "--processes", "1", *options])
    assert result.exit_code == 2, result.output
    assert said in result.output
