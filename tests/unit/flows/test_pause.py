"""A paused lake starts no training, says who paused it, and lets go on what runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked import asked
from planned import plan as planned

from flows.launchers import State, Status
from flows.launchers.local import LocalLauncher
from flows.pause import pause, paused, resume
from flows.steps import decide
from ingestion.lake import Lake

RUN, DATASET = "2026-w48-tiny-s0", "datasets/2026-W48.json"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path))
    planned(lake)
    return lake


def decided(lake: Lake) -> tuple[str | None, str]:
    return decide(asked(lake, week="2026-W48"), DATASET, "")


def test_nothing_is_trained_until_it_is_resumed(lake: Lake) -> None:
    pause(lake, "ann\x1b[2J", "cluster\nis moved")
    run, why = decided(lake)
    assert run is None
    assert "training is paused by ann\\x1b[2J since 20" in why
    assert "cluster\\nis moved; `week resume` ends that" in why
    ended = resume(lake)
    assert ended is not None
    assert ended.by == "ann\x1b[2J"
    assert decided(lake) == (RUN, "")
    assert resume(lake) is None


def test_the_first_pause_stands(lake: Lake) -> None:
    pause(lake, "ann", "maintenance")
    assert pause(lake, "bob", "oh").by == "ann"
    found = paused(lake)
    assert found is not None
    assert found.reason == "maintenance"


@pytest.mark.parametrize(
    ("state", "goes_on"), [(State.RUNNING, True), (State.PENDING, True), (State.FAILED, False), (None, False)]
)
def test_what_runs_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch, state: State | None, goes_on: bool) -> None:
    pause(lake, "ann", "maintenance")
    keys = []

    def find(_launcher: LocalLauncher, key: str) -> Status | None:
        keys.append(key)
        return state and Status(state, None, "")

    monkeypatch.setattr(LocalLauncher, "find", find)
    assert (decided(lake)[0] == RUN) == goes_on
    assert keys == [f"{lake.uri}/runs/{RUN}"]
