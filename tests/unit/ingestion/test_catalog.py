"""What is published, when some of it cannot be read, clocks differ, or many look at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from published import CREATED, manifest_of
from segy_bytes import draft

from ingestion import catalog, withdrawal
from ingestion.catalog import digests, load_manifest, surveys, versions
from ingestion.ingest import ingest
from ingestion.lake import Lake, LakeError
from ingestion.manifest import manifest_key
from ingestion.quarantine import quarantine, report_key, reports
from ingestion.source import hold

DAMAGE: dict[str, Any] = {
    "truncated": lambda whole: whole[:-100],
    "cut in its first line": lambda whole: whole[:20],
    "empty": lambda whole: b"",
    "garbage": lambda whole: b"\xff\x00 not JSON" * 9,
    "newer": lambda whole: whole.replace(b'"schema_version": 1', b'"schema_version": 2'),
    "of another survey": lambda whole: whole.replace(b'"survey": "bad"', b'"survey": "west"'),
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def put(lake: Lake, survey: str, version: int = 1) -> str:
    digest = f"{version:x}" * 64
    manifest = manifest_of(survey, (4, 4, 4), digest=digest, version=version)
    lake.write(manifest_key(survey, digest), manifest.to_bytes())
    return digest


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_manifest_that_cannot_be_read_hides_no_other(
    lake: Lake, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    for survey in ("bad", "good"):
        put(lake, survey)
    key = manifest_key("bad", "1" * 64)
    lake.write(key, DAMAGE[damage](lake.read(key)))
    assert [manifest.survey for manifest in surveys(lake)] == ["good"]
    assert "surveys/bad" in caplog.text
    assert "ingest the survey again" in caplog.text
    assert digests(lake, "bad") == []
    with pytest.raises(LakeError, match=r"surveys/bad.*is (no|the) manifest"):
        load_manifest(lake, "bad", "1" * 64)


def test_a_newest_version_that_cannot_be_read_leaves_the_one_before(lake: Lake) -> None:
    put(lake, "north")
    newest = put(lake, "north", 2)
    lake.write(manifest_key("north", newest), lake.read(manifest_key("north", newest))[:-9])
    assert [manifest.digest for manifest in surveys(lake)] == ["1" * 64]
    assert [version.digest for version in versions(lake, "north")] == [newest, "1" * 64]


def test_old_versions_are_not_read_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in (3, 1, 2):
        put(lake, "north", version)
    read: list[str] = []
    whole = lake.read
    monkeypatch.setattr(lake, "read", lambda key: (read.append(key), whole(key))[1])
    assert [manifest.digest for manifest in surveys(lake)] == ["3" * 64]
    assert read == [manifest_key("north", "3" * 64)]


def test_a_folder_without_a_manifest_is_no_survey(lake: Lake) -> None:
    lake.write(f"surveys/north/{'1' * 64}/volume.mdio/zarr.json", b"{}")
    assert (surveys(lake), digests(lake, "north"), versions(lake, "north")) == ([], [], [])


def test_many_surveys_come_by_name_and_are_counted(lake: Lake) -> None:
    names = [f"s{number:02}" for number in range(40)]
    for name in reversed(names):
        put(lake, name)
    said: list[tuple[int, int]] = []
    found = catalog.each_survey(lake, lambda survey, _: survey, lambda done, total: said.append((done, total)))
    assert found == names
    assert said == [(done, 40) for done in range(1, 41)]


def test_a_new_version_is_the_newest_whatever_the_clocks_say(tmp_path: Path, lake: Lake) -> None:
    source = tmp_path / "line.sgy"
    source.write_bytes(draft().to_bytes())
    first = ingest(str(source), lake).manifest
    assert first is not None
    ahead = first.model_copy(update={"created": datetime.now(UTC) + timedelta(days=400)})
    lake.write(manifest_key("line", first.digest), ahead.to_bytes())  # by a machine whose clock is ahead
    source.write_bytes(draft(seed=5).to_bytes())
    second = ingest(str(source), lake)
    assert second.manifest is not None
    assert second.manifest.created > ahead.created
    assert [manifest.digest for manifest in surveys(lake)] == [second.digest]


def test_an_old_version_dropped_again_changes_nothing_and_says_so(tmp_path: Path, lake: Lake) -> None:
    source = tmp_path / "line.sgy"
    first, second = draft().to_bytes(), draft(seed=5).to_bytes()
    results = []
    for content in (first, second, first):
        source.write_bytes(content)
        results.append(ingest(str(source), lake))
    again = results[2]
    assert (again.status, [(f.code, f.severity) for f in again.findings]) == ("unchanged", [("older-version", "warn")])
    assert str(results[1].digest)[:12] in again.findings[0].found
    assert f"survey restore line --digest {str(results[0].digest)[:12]}" in again.findings[0].found
    assert [manifest.digest for manifest in surveys(lake)] == [results[1].digest]
    withdrawal.record(lake, "restore", "line", results[0].digest, by="ann", reason="the new one is worse")
    assert [manifest.digest for manifest in surveys(lake)] == [results[0].digest]
    assert ingest(str(source), lake).findings == []
    source.write_bytes(draft(seed=6).to_bytes())
    third = ingest(str(source), lake)  # what is new after that supersedes it
    assert [manifest.digest for manifest in surveys(lake)] == [third.digest]


def test_versions_of_one_moment_have_one_order(lake: Lake) -> None:
    for digest in ("a" * 64, "b" * 64):
        manifest = manifest_of("north", (4, 4, 4), digest=digest)
        lake.write(manifest_key("north", digest), manifest.to_bytes())
    assert [version.digest[0] for version in versions(lake, "north")] == ["b", "a"]
    assert versions(lake, "north")[0].since == CREATED + timedelta(days=1)


def test_a_report_that_cannot_be_read_hides_no_other(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    for survey in ("bad", "good"):
        quarantine(lake, survey, "1" * 64, [hold("no-traces", "", "", "")])
    lake.write(report_key("bad", "1" * 64), b"{")
    assert [report.survey for report in reports(lake)] == ["good"]
    assert "quarantine/bad" in caplog.text
