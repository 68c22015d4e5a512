"""What killed ingests left behind is found and deleted; nothing else ever is."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from published import noise, publish
from segy_bytes import draft

from ingestion import sweep as sweeping
from ingestion.cli.sweep import sweep as command
from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.manifest import manifest_key
from ingestion.quarantine import quarantine
from ingestion.source import hold
from ingestion.sweep import Orphan, sweep

LATER = timedelta(days=8)
GHOST = f"surveys/ghost/{'a' * 64}"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One of everything that stays."""
    lake = Lake(str(tmp_path / "lake"))
    publish(lake, "north", noise((20, 20, 20)))
    unreadable = publish(lake, "south", noise((20, 20, 20)))
    lake.write(manifest_key("south", unreadable.digest), b"{")
    lake.write(f"{unreadable.folder}/volume.mdio/more", b"x")
    quarantine(lake, "bad", "b" * 64, [hold("no-traces", "", "", "")])
    lake.write("incoming/new.sgy", b"x")
    lake.write("surveys/notes.txt", b"x")
    lake.write("surveys/north/by-hand/notes.txt", b"x")
    return lake


def keys(lake: Lake) -> set[str]:
    return {entry.key for entry in lake.objects()}


def swept(lake: Lake, after: timedelta = LATER, delete: bool = True) -> list[Orphan]:
    return sweep(lake, datetime.now(UTC) + after, delete=delete)


def test_a_clean_lake_has_nothing_to_sweep(lake: Lake) -> None:
    before = keys(lake)
    assert swept(lake) == []
    assert keys(lake) == before


def test_all_three_kinds_are_listed_with_their_bytes_and_deleted_when_asked(lake: Lake) -> None:
    before = keys(lake)
    [published] = [key.removesuffix("/manifest.json") for key in before if "north" in key and "manifest" in key]
    for key in (f"{GHOST}/volume.mdio/zarr.json", f"{GHOST}/volume.mdio/amplitude/c/0/0/0"):
        lake.write(key, b"12345")
    lake.write(f"{published}/volume.mdio/amplitude/c/9/9/9", b"123")
    lake.write(f"quarantine/bad/{'c' * 64}/report.html", b"<html>")
    listed = swept(lake, delete=False)
    assert [(o.folder, o.kind, o.objects, o.size) for o in listed] == [
        (f"quarantine/bad/{'c' * 64}", "unfinished report", 1, 6),
        (GHOST, "never published", 2, 10),
        (published, "not in the manifest", 1, 3),
    ]
    assert len(keys(lake)) == len(before) + 4
    deleted = swept(lake)
    assert [orphan.model_copy(update={"deleted": False}) for orphan in deleted] == listed
    assert all(orphan.deleted for orphan in deleted)
    assert keys(lake) == before


def test_a_folder_is_as_old_as_its_newest_object(lake: Lake) -> None:
    lake.write(f"{GHOST}/volume.mdio/old", b"x")
    [orphan] = swept(lake, delete=False)
    assert swept(lake, timedelta(days=6)) == []
    just = datetime.fromtimestamp(orphan.newest, UTC) + sweeping.GRACE
    assert sweep(lake, just, delete=True) == []
    assert len(sweep(lake, just + timedelta(seconds=1), delete=True)) == 1


@pytest.mark.parametrize("meanwhile", ["published", "written to"])
def test_what_happens_while_it_looks_is_respected(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    (tmp_path / "line.sgy").write_bytes(draft().to_bytes())
    create = lake.create
    monkeypatch.setattr(lake, "create", lambda key, data: pytest.fail("killed") if "manifest" in key else False)
    with pytest.raises(pytest.fail.Exception, match="killed"):
        ingest(str(tmp_path / "line.sgy"), lake)  # killed just before it is published
    monkeypatch.setattr(lake, "create", create)
    before = keys(lake)
    looked = sweeping._of_digest
    first = iter([True])

    def look(lake: Lake, survey: str, digest: str) -> sweeping._Found:
        found = looked(lake, survey, digest)
        if survey == "line" and next(first, False):
            if meanwhile == "published":
                assert ingest(str(tmp_path / "line.sgy"), lake).status == "published"
            else:
                entries = [entry.__class__(entry.key, entry.size, entry.etag, 0) for entry in found[2]]
                found = (found[0], found[1], entries)  # they were old, and are written again now
        return found

    monkeypatch.setattr(sweeping, "_of_digest", look)
    assert swept(lake, LATER if meanwhile == "published" else timedelta(0)) == []
    assert before <= keys(lake)
    assert ingest(str(tmp_path / "line.sgy"), lake).status == ("unchanged" if meanwhile == "published" else "published")


def test_a_sweep_that_was_killed_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(lake)
    for number in range(5):
        lake.write(f"{GHOST}/volume.mdio/{number}", b"x")
    delete: Callable[[list[str]], None] = lake.delete

    def killed(found: list[str]) -> None:
        delete(found[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(lake, "delete", killed)
    with pytest.raises(KeyboardInterrupt):
        swept(lake)
    monkeypatch.undo()
    assert [orphan.objects for orphan in swept(lake)] == [3]
    assert keys(lake) == before


def test_what_is_published_while_it_is_deleted_keeps_the_rest(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(250):
        lake.write(f"{GHOST}/volume.mdio/{number}", b"x")
    delete: Callable[[list[str]], None] = lake.delete

    def published(found: list[str]) -> None:
        delete(found)
        lake.write(f"{GHOST}/manifest.json", b"{}")

    monkeypatch.setattr(lake, "delete", published)
    [orphan] = swept(lake)
    assert not orphan.deleted
    assert sum(GHOST in key for key in keys(lake)) == 150 + 1


def test_the_command_lists_and_refuses_a_grace_that_a_running_ingest_may_exceed(lake: Lake) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(command, ["--lake", lake.uri, *arguments])
        return result.exit_code, result.output

    lake.write(f"{GHOST}/volume.mdio/zarr.json", b"x")
    assert run() == (0, "nothing to sweep\n")
    code, said = run("--json", "--grace", "1h")
    assert (code, json.loads(said)) == (0, {"orphans": [], "bytes": 0, "deleted": False})
    for grace in ("0d", "1m", "-1d", "soon"):
        code, said = run("--delete", "--grace", grace)
        assert code == 2
        assert "at least 1h" in said


def test_a_judged_volume_whose_manifest_was_lost_is_never_deleted(lake: Lake) -> None:
    lost = publish(lake, "west", noise((20, 20, 20)))
    lake.delete([manifest_key("west", lost.digest)])
    before = keys(lake)
    assert swept(lake) == []
    assert keys(lake) == before
