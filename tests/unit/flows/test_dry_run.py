"""What the week would do, without doing any of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked import RAW, asked, finish
from click.testing import CliRunner
from planned import SPLIT, WINDOW
from published import noise, publish

from flows.dry_run import dry_run
from flows.week_command import main
from ingestion.lake import Lake
from seismic_model.data.freeze import freeze
from seismic_model.training.lease import acquire

RECIPE = RAW["recipes"]["tiny"] | {"window": list(WINDOW)}
SETTINGS: dict[str, Any] = RAW | {"split": SPLIT.model_dump(), "recipes": {"tiny": RECIPE}}
RUN = "2026-w49-tiny-s0"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path))
    publish(lake, "north", noise((40, 40, 24)))
    freeze(lake, "2026-W48", WINDOW, SPLIT)
    publish(lake, "south", noise((32, 32, 24), seed=1), origin=(50_000.0, 0.0))
    lake.write("incoming/east.sgy", b"whatever")
    return lake


def said(lake: Lake, raw: dict[str, Any] = SETTINGS, **changes: object) -> dict[str, str]:
    """Its lines, after a look that nothing was written."""
    before = {entry.key: (entry.etag, entry.modified) for entry in lake.objects()}
    lines = dict(dry_run(asked(lake, raw, **changes)).lines())
    assert {entry.key: (entry.etag, entry.modified) for entry in lake.objects()} == before
    return lines


def test_it_says_what_would_happen_and_what_it_would_cost(lake: Lake) -> None:
    lines = said(lake, SETTINGS | {"budget": {"gpu": "h200", "price_per_gpu_hour": 7.5}})
    assert lines["to take in"] == "east"
    assert lines["data set"] == (
        "2 surveys, as it would be without what is still to be taken in; added: south; unchanged: north"
    )
    assert (lines["run"], lines["would train"]) == (RUN, "yes")
    assert "2 processes, cp 2" in lines["layout"]
    assert "GPU hours" in lines["hours"]
    assert "USD at 7.5 a GPU and hour" in lines["money"]
    assert "GB of a h200" in lines["memory"]
    assert "waits for" not in lines


def test_it_says_why_nothing_would_be_trained(lake: Lake) -> None:
    assert "its budget is" in said(lake, SETTINGS | {"budget": {"gpu_hours": 1e-9}})["would train"]
    freeze(lake, "2026-W49", WINDOW, SPLIT)
    finish(lake, RUN)
    lines = said(lake)
    assert "2 surveys, frozen" in lines["data set"]
    assert lines["would train"] == f"no: run {RUN} is done; --force trains again"
    assert said(lake, force=True)["run"] == f"{RUN}-2"


def test_it_says_what_keeps_a_data_set_from_being_frozen(lake: Lake) -> None:
    large = SETTINGS | {"recipes": {"tiny": RECIPE | {"window": [400, 400, 24]}}}
    assert "nothing trainable for a crop of (400, 400, 24) voxels" in said(lake, large)["would train"]


def test_it_says_whom_the_training_would_wait_for(lake: Lake) -> None:
    acquire(lake, "2026-w48-tiny-s0", "here", "process 7 of n1")
    assert "run 2026-w48-tiny-s0 (process 7 of n1; here) since" in said(lake)["waits for"]


@pytest.mark.parametrize(
    ("size", "settings", "code", "words"),
    [
        ("tiny", SETTINGS, 0, RUN),
        ("tiny", SETTINGS | {"recipe": {}}, 2, "recipe"),
        ("tiny", [], 2, "holds list"),
        ("tiny", None, 2, "holds "),
        ("tiny", SETTINGS | {"recipes": {"tiny": RECIPE | {"processes": 0}}}, 2, "processes"),
        ("huge", SETTINGS, 2, "'huge'"),
    ],
)
def test_the_command_tells_what_can_never_be_run_from_what_failed(
    lake: Lake, tmp_path: Path, size: str, settings: object, code: int, words: str
) -> None:
    file = tmp_path / "settings.json"  # which is YAML
    file.write_text(json.dumps(settings))
    command = ["dry-run", "--lake", lake.uri, "--settings", str(file), "--size", size, "--week", "2026-W49"]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, words in done.output) == (code, True), done.output
    assert CliRunner().invoke(main, [*command, "--lake", str(tmp_path / "absent")]).exit_code == 1
