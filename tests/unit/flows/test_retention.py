"""What may be deleted of old runs, and what never may."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from asked import finish
from click.testing import CliRunner, Result
from planned import plan as planned

from flows import retention
from flows.week import outcome_key
from flows.week_command import main
from ingestion.lake import Lake

FOUR_WEEKS = 4 * 7 * 86_400


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A finished run with a registered checkpoint, an older one, and what a killed process left; all of it old."""
    lake = Lake(str(tmp_path))
    planned(lake, run="old")
    for step in (10, 20):
        checkpoint(lake, "old", step)
    lake.write("runs/old/checkpoints/step-00000020/in-use", b"registered")
    lake.write("runs/old/checkpoints/step-00000015/model-1.safetensors", b"12345")
    lake.write("runs/old/metrics.jsonl", b"{}")
    finish(lake, "old")
    age(lake, outcome_key("old"), FOUR_WEEKS + 60)
    return lake


def checkpoint(lake: Lake, run: str, step: int) -> None:
    for name in ("model-1.safetensors", "optimizer-1.safetensors", "manifest.json"):
        lake.write(f"runs/{run}/checkpoints/step-{step:08d}/{name}", b"1234567890")


def age(lake: Lake, key: str, seconds: float) -> None:
    import os

    path = Path(lake.uri.removeprefix("file://")) / key
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def run(lake: Lake, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["retention", "--lake", lake.uri, *arguments])


def can_go(lake: Lake) -> list[str]:
    return [each["folder"] for each in json.loads(run(lake, "--json").output)["old"]]


def test_a_list_first_and_nothing_is_deleted_without_being_asked(lake: Lake) -> None:
    before = sorted(entry.key for entry in lake.objects())
    shown = run(lake)
    assert shown.exit_code == 0
    assert "can go runs/old/checkpoints/step-00000010 (30 bytes)" in shown.output
    assert "can go runs/old/checkpoints/step-00000015 (5 bytes, left by a killed process)" in shown.output
    assert "stays  old: step-00000020 is in use" in shown.output
    assert "35 bytes; --delete deletes them" in shown.output
    assert sorted(entry.key for entry in lake.objects()) == before


def test_deleting_takes_exactly_what_was_listed(lake: Lake) -> None:
    going = can_go(lake)
    before = sorted(entry.key for entry in lake.objects())
    assert "35 bytes deleted" in run(lake, "--delete").output
    assert sorted(entry.key for entry in lake.objects()) == [
        key for key in before if not any(key.startswith(f"{folder}/") for folder in going)
    ]
    assert can_go(lake) == []


def test_a_copy_that_a_person_laid_beside_checkpoints_stays(lake: Lake) -> None:
    lake.write("runs/old/checkpoints/step-00000010-good/manifest.json", b"{}")
    lake.write("runs/old/checkpoints/notes.txt", b"mine")
    assert "stays  old: step-00000010-good is no checkpoint's folder" in run(lake, "--delete").output
    assert lake.exists("runs/old/checkpoints/step-00000010-good/manifest.json")
    assert lake.exists("runs/old/checkpoints/notes.txt")


def test_a_run_that_is_not_finished_or_not_old_enough_keeps_everything(lake: Lake) -> None:
    checkpoint(lake, "unfinished", 10)
    checkpoint(lake, "young", 10)
    finish(lake, "young")
    assert not any("unfinished" in folder or "young" in folder for folder in can_go(lake))
    assert "stays  unfinished: not finished" in run(lake).output
    assert "stays  young: finished only on" in run(lake).output
    assert any("young" in folder for folder in json_old(lake, "1h")) is False
    age(lake, outcome_key("young"), 7200)
    assert any("young" in folder for folder in json_old(lake, "1h"))


def json_old(lake: Lake, older: str) -> list[str]:
    return [each["folder"] for each in json.loads(run(lake, "--older", older, "--json").output)["old"]]


def test_the_start_of_a_living_run_stays_until_that_run_is_finished(lake: Lake) -> None:
    init = {"origin": "weights", "run": "old", "step": 10, "weights_sha256": "0" * 64}
    planned(lake, run="child", init=init)
    assert can_go(lake) == ["runs/old/checkpoints/step-00000015"]
    assert "stays  old: a living run began with step-00000010" in run(lake).output
    finish(lake, "child")
    assert "runs/old/checkpoints/step-00000010" in can_go(lake)


def test_a_deletion_that_is_killed_leaves_no_half_that_looks_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    delete, calls = Lake.delete, 0

    def dies(self: Lake, keys: list[str]) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        delete(self, keys)

    first = retention.Old(run="old", folder="runs/old/checkpoints/step-00000010", committed=True, objects=3, size=30)
    monkeypatch.setattr(Lake, "delete", dies)
    with pytest.raises(KeyboardInterrupt):
        retention.delete(lake, first)
    monkeypatch.undo()
    assert not lake.exists(f"{first.folder}/manifest.json")
    assert first.folder in can_go(lake)
    run(lake, "--delete")
    assert not list(lake.objects(first.folder))
