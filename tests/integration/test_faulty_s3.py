"""Ingests through a server that errs: whole or not at all. ``make proof`` does many more."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_proxy import Chooser, at_random
from killed_ingest import Original, ingest_through_faults

from ingestion.lake import Lake


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    original = Original(tmp_path_factory.mktemp("original") / "killed.sgy", (20, 21, 40))
    assert original.undisturbed
    return original


def at(fault: str, method: str, ending: str, times: int = 1) -> Chooser:
    """``fault`` for the first requests of ``method`` for a key that ends so."""
    left = [times]

    def choose(asked: str, path: str, _number: int) -> str | None:
        if asked != method or not path.partition("?")[0].endswith(ending) or left[0] == 0:
            return None
        left[0] -= 1
        return fault

    return choose


def test_random_faults(original: Original, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, faults = ingest_through_faults(original, lake, at_random(1, 0.2), monkeypatch)
    assert ended == "published"
    assert faults > 5


@pytest.mark.parametrize("fault", ["lost", "lost, 500", "stalled"])
def test_the_put_of_the_manifest(fault: str, original: Original, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = at(fault, "PUT", "/manifest.json", times=2)
    assert ingest_through_faults(original, lake, choose, monkeypatch, timeout="1s") == ("published", 2)


@pytest.mark.parametrize("fault", ["cut", "reset in the answer", "stalled"])
def test_answers_that_break_off(fault: str, original: Original, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = at(fault, "GET", "/killed.sgy", times=2)
    ended, faults = ingest_through_faults(original, lake, choose, monkeypatch, timeout="1s")
    assert (ended, faults) == ("published", 2)


def test_a_server_that_never_takes_the_manifest(
    original: Original, lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    choose = at("reset in the request", "PUT", "/manifest.json", times=1000)
    assert ingest_through_faults(original, lake, choose, monkeypatch)[0] == "failed"


def test_a_key_that_another_took_is_not_ours(lake: Lake) -> None:
    assert lake.create("a", b"first")
    assert not lake.create("a", b"other")
    assert lake.read("a") == b"first"
