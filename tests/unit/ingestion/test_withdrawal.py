"""A survey that may not be used any more: what holds, and what does not happen to it meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from segy_bytes import draft

from ingestion.arrivals import ingest_arrival
from ingestion.catalog import surveys
from ingestion.discover import discover
from ingestion.ingest import IngestResult, ingest
from ingestion.lake import Lake
from ingestion.withdrawal import all_events, events, record, withdrawal, withdrawn_finding

OLD, NEW = "1" * 64, "2" * 64


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def withdraw(lake: Lake, digest: str | None = None, survey: str = "line") -> None:
    record(lake, "withdraw", survey, digest, by="ann", reason="licence ended")


def restore(lake: Lake, digest: str | None = None) -> None:
    record(lake, "restore", "line", digest, by="bob", reason="licence renewed")


def withdrawn(lake: Lake) -> list[bool]:
    """The old version, the new one, one that is yet to come."""
    return [withdrawal(events(lake, "line"), digest) is not None for digest in (OLD, NEW, None)]


def test_the_last_word_about_a_version_holds(lake: Lake) -> None:
    assert withdrawn(lake) == [False, False, False]
    withdraw(lake)
    assert withdrawn(lake) == [True, True, True]
    restore(lake, OLD)
    assert withdrawn(lake) == [False, True, True]
    restore(lake)
    assert withdrawn(lake) == [False, False, False]
    withdraw(lake, NEW)
    assert withdrawn(lake) == [False, True, False]
    withdraw(lake)
    assert withdrawn(lake) == [True, True, True]
    assert [event.by for event in events(lake, "line")] == ["ann", "bob", "bob", "ann", "ann"]
    assert list(all_events(lake)) == ["line"]


def test_events_of_one_moment_are_all_kept_in_order(lake: Lake) -> None:
    for _ in range(3):
        withdraw(lake)
        restore(lake)
    log = events(lake, "line")
    assert [event.action for event in log] == ["withdraw", "restore"] * 3
    assert len({event.at for event in log}) == 6


def test_a_record_that_cannot_be_read_counts_as_a_withdrawal(lake: Lake) -> None:
    restore(lake)
    [entry] = lake.objects("withdrawals")
    lake.write(entry.key, lake.read(entry.key)[:30])
    found = withdrawn_finding(lake, "line", NEW)
    assert found is not None
    assert "cannot be read" in found.found
    assert withdrawn_finding(lake, "other", NEW) is None
    restore(lake)
    assert withdrawn_finding(lake, "line", NEW) is None


def run(lake: Lake, folder: Path, seed: int = 0, name: str = "line.sgy") -> IngestResult:
    (folder / name).write_bytes(draft(seed=seed).to_bytes())
    return ingest(str(folder / name), lake)


@pytest.mark.parametrize(("name", "seed"), [("line.sgy", 0), ("line.sgy", 7), ("copy.sgy", 0)])
def test_a_withdrawn_survey_is_not_taken_in_again_in_silence(lake: Lake, tmp_path: Path, name: str, seed: int) -> None:
    run(lake, tmp_path)
    before = {entry.key for entry in lake.objects("surveys")}
    withdraw(lake)
    result = run(lake, tmp_path, seed, name)
    assert (result.status, result.survey, [f.code for f in result.findings]) == ("held", "line", ["withdrawn"])
    assert "by ann: licence ended" in result.findings[0].found
    assert "survey restore line" in result.findings[0].release
    assert {entry.key for entry in lake.objects("surveys")} == before
    assert surveys(lake) == []
    restore(lake)
    assert run(lake, tmp_path, seed, name).status == ("published" if seed else "unchanged")


def test_one_version_withdrawn_leaves_the_others(lake: Lake, tmp_path: Path) -> None:
    old, new = run(lake, tmp_path), run(lake, tmp_path, seed=7)
    withdraw(lake, new.digest)
    assert [manifest.digest for manifest in surveys(lake)] == [old.digest]
    assert run(lake, tmp_path, seed=7).findings[0].code == "withdrawn"
    assert run(lake, tmp_path, seed=8).status == "published"


def test_a_new_version_waits_in_incoming_until_the_withdrawal_ends(lake: Lake) -> None:
    lake.write("incoming/line.sgy", draft().to_bytes())
    lake.write("incoming/other.sgy", draft(seed=3).to_bytes())
    waiting = discover(lake)
    withdraw(lake)
    assert [arrival.survey for arrival in discover(lake)] == ["other"]
    [result] = [ingest_arrival(lake, arrival) for arrival in waiting if arrival.survey == "line"]  # found before
    assert result.findings[0].code == "withdrawn"
    restore(lake)
    assert discover(lake) == waiting
    assert [ingest_arrival(lake, arrival).status for arrival in waiting] == ["published", "published"]
