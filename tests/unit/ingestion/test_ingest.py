"""Ingest as an act: once, atomically, under any name, and never anything that is not what the SEG-Y holds."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from segy_bytes import draft

import ingestion.ingest
from ingestion.catalog import load_manifest, surveys
from ingestion.ingest import IngestResult, ingest
from ingestion.lake import Lake
from ingestion.quarantine import load_report
from ingestion.spec import SurveySpec
from ingestion.volume.conversion import VerificationError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "line.sgy").write_bytes(draft().to_bytes())
    return tmp_path


def run(folder: Path, file: str = "line.sgy", **spec: Any) -> IngestResult:
    return ingest(str(folder / file), Lake(str(folder / "lake")), SurveySpec(**spec))


def codes(result: IngestResult) -> list[str]:
    return [finding.code for finding in result.findings]


def objects(folder: Path) -> dict[str, bytes]:
    lake = folder / "lake"
    return {str(p.relative_to(lake)): p.read_bytes() for p in lake.rglob("*") if p.is_file()}


def test_a_second_ingest_changes_nothing(folder: Path) -> None:
    first, before = run(folder), objects(folder)
    second = run(folder)
    assert (first.status, second.status) == ("published", "unchanged")
    assert second.manifest == first.manifest
    assert objects(folder) == before


def test_the_manifest_names_every_object_by_digest(folder: Path) -> None:
    manifest = run(folder).manifest
    assert manifest is not None
    volume = folder / "lake" / manifest.folder / "volume.mdio"
    stored = {str(p.relative_to(volume)): p.read_bytes() for p in volume.rglob("*") if p.is_file()}
    assert {key: (len(data), hashlib.sha256(data).hexdigest()) for key, data in stored.items()} == {
        key: (entry.size, entry.sha256) for key, entry in manifest.volume.keys.items()
    }
    source = (folder / "line.sgy").read_bytes()
    assert manifest.sources[0].sha256 == hashlib.sha256(source).hexdigest()
    assert manifest.sources[0].original_name == "line.sgy"


def test_equal_input_gives_equal_bytes_on_another_lake(folder: Path) -> None:
    first = run(folder).manifest
    other = ingest(str(folder / "line.sgy"), Lake(str(folder / "other"))).manifest
    assert first is not None
    assert other is not None
    assert first.volume == other.volume
    assert first.digest == other.digest


def test_the_same_bytes_under_another_name_are_known(folder: Path) -> None:
    run(folder)
    (folder / "copy.sgy").write_bytes((folder / "line.sgy").read_bytes())
    again = run(folder, "copy.sgy")
    assert (again.status, again.survey, codes(again)) == ("unchanged", "line", ["known-under-another-name"])
    assert [manifest.survey for manifest in surveys(Lake(str(folder / "lake")))] == ["line"]


def test_the_same_bytes_under_another_name_and_spec_are_held_back(folder: Path) -> None:
    run(folder)
    (folder / "copy.sgy").write_bytes((folder / "line.sgy").read_bytes())
    again = run(folder, "copy.sgy", domain="depth")
    assert (again.status, codes(again)) == ("held", ["known-under-another-name"])
    assert run(folder, "copy.sgy", name="line", domain="depth").status == "published"


def test_a_new_version_supersedes(folder: Path) -> None:
    run(folder)
    (folder / "line.sgy").write_bytes(draft(seed=5).to_bytes())
    second = run(folder)
    assert second.status == "published"
    assert [manifest.digest for manifest in surveys(Lake(str(folder / "lake")))] == [second.digest]


def test_a_held_survey_leaves_a_report_and_nothing_else(folder: Path) -> None:
    (folder / "line.sgy").write_bytes(draft().to_bytes()[:-1])
    result = run(folder)
    assert result.status == "held"
    assert all(key.startswith("quarantine/line/") for key in objects(folder))
    report = load_report(Lake(str(folder / "lake")), "line", str(result.digest))
    assert [finding.code for finding in report.findings] == ["truncated"]
    assert report.sources == [str(folder / "line.sgy")]


@pytest.mark.parametrize(
    "name",
    ["a b.sgy", "$(touch pwned).sgy", 'it\'s "q".sgy', "Blåvand.sgy", "..sgy", "a%20b.sgy", "x;y&z.sgy", "<b>.sgy"],
)
@pytest.mark.parametrize("whole", [True, False])
def test_any_name_is_safe_and_kept(name: str, whole: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(draft().to_bytes() if whole else b"")
    result = run(tmp_path, name)
    assert result.status == ("published" if whole else "held")
    assert {path.name for path in tmp_path.iterdir()} == {name, "lake"}
    page = next((data for key, data in objects(tmp_path).items() if key.endswith("report.html")), b"")
    assert b"<b>" not in page
    if result.manifest is not None:
        assert result.manifest.sources[0].original_name == name


@pytest.mark.parametrize("moment", ["inspect", "write_volume", "verify_volume"])
@pytest.mark.parametrize("change", ["replaced", "shorter", "gone"])
def test_a_file_that_changes_meanwhile_is_left_for_the_next_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, moment: str, change: str
) -> None:
    path, act = folder / "line.sgy", getattr(ingestion.ingest, moment)

    def changed(*arguments: Any) -> Any:
        if change == "replaced":
            path.write_bytes(draft(seed=9).to_bytes())
        elif change == "shorter":
            os.truncate(path, 4000)
        else:
            path.unlink()
        return act(*arguments)

    monkeypatch.setattr(ingestion.ingest, moment, changed)
    result = run(folder)
    assert (result.status, codes(result)) == ("uploading", ["still-uploading"])
    assert surveys(Lake(str(folder / "lake"))) == []
    monkeypatch.undo()
    path.write_bytes(draft().to_bytes())
    assert run(folder).status == "published"


def test_a_file_that_still_grows_is_not_called_truncated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, path, look = draft().to_bytes(), folder / "line.sgy", ingestion.ingest.inspect
    path.write_bytes(whole[:9000])

    def grown(*arguments: Any) -> Any:
        found = look(*arguments)
        path.write_bytes(whole)
        return found

    monkeypatch.setattr(ingestion.ingest, "inspect", grown)
    assert run(folder).status == "uploading"
    assert not list((folder / "lake").rglob("report.json"))


def two_files(folder: Path, first: dict[str, Any], second: dict[str, Any], **spec: Any) -> IngestResult:
    parts = {"a.sgy": draft(**first).take(slice(0, 14)), "b.sgy": draft(**second).take(slice(14, 42))}
    for name, part in parts.items():
        (folder / name).write_bytes(part.to_bytes())
    return ingest([str(folder / name) for name in parts], Lake(str(folder / "lake")), SurveySpec(**spec))


def test_a_file_in_metres_and_one_in_feet_are_not_one_survey(tmp_path: Path) -> None:
    metres, feet = ({"binary": {55: ("H", code)}} for code in (1, 2))
    result = two_files(tmp_path, metres, feet)
    assert codes(result) == ["files-differ"]
    assert "1 files in metres, 1 in feet" in result.findings[0].found
    assert two_files(tmp_path, metres, feet, coordinate_unit="ft").status == "published"
    assert two_files(tmp_path, metres, metres).status == "published"


def test_the_text_of_every_file_is_searched_for_depth(tmp_path: Path) -> None:
    assert codes(two_files(tmp_path, {}, {"text": "C 1 PSDM stack"})) == ["domain-unclear"]


def test_a_listed_file_that_is_missing_is_waited_for(folder: Path) -> None:
    result = run(folder, files=["line.sgy", "rest.sgy"])
    assert result.status == "uploading"
    assert "rest.sgy" in result.findings[0].found


@pytest.mark.parametrize("damage", ["sample", "lost chunk", "cut chunk", "mask"])
def test_what_is_not_as_in_the_segy_is_never_published(
    damage: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ingestion.ingest.write_volume

    def damaged(survey: Any, lake: Lake, prefix: str, *rest: Any) -> Any:
        import zarr
        from zarr.storage import StorePath

        statistics = write(survey, lake, prefix, *rest)
        if damage == "lost chunk":
            lake.delete([f"{prefix}/amplitude/c/0/0/0"])
        elif damage == "cut chunk":
            lake.write(f"{prefix}/amplitude/c/0/0/0", lake.read(f"{prefix}/amplitude/c/0/0/0")[:-9])
        else:
            name, place = ("amplitude", (2, 3, 4)) if damage == "sample" else ("trace_mask", (2, 3))
            array = zarr.open_array(StorePath(lake.zarr_store(prefix), name), mode="r+")
            array[place] = 1.0 if damage == "sample" else False
        return statistics

    monkeypatch.setattr(ingestion.ingest, "write_volume", damaged)
    with pytest.raises(VerificationError, match="run the ingest again"):
        run(folder)
    assert surveys(Lake(str(folder / "lake"))) == []
    monkeypatch.undo()
    assert run(folder).status == "published"


def test_of_two_ingests_at_once_one_publishes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = ingestion.ingest.verify_volume

    def slower(*arguments: Any) -> Any:
        monkeypatch.setattr(ingestion.ingest, "verify_volume", verify)
        assert run(folder).status == "published"
        return verify(*arguments)

    monkeypatch.setattr(ingestion.ingest, "verify_volume", slower)
    result = run(folder)
    assert result.status == "unchanged"
    assert result.manifest == load_manifest(Lake(str(folder / "lake")), "line", str(result.digest))


def test_clipping_is_warned_of(folder: Path) -> None:
    made = draft(code=3)
    made.samples = (made.samples * 200).clip(-32767, 32767).round()
    (folder / "line.sgy").write_bytes(made.to_bytes())
    result = run(folder)
    assert result.status == "published"
    assert [(f.code, f.severity) for f in result.findings] == [("clipped", "warn")]
    assert "32767" in result.findings[0].found


def test_missing_files_are_an_error_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.sgy"):
        run(tmp_path, "nothing.sgy")
    with pytest.raises(FileNotFoundError):
        ingest(str(tmp_path / "no" / "folder" / "a.sgy"), Lake(str(tmp_path / "lake")))
    assert not (tmp_path / "no").exists()


def test_text_and_binary_header_are_kept(folder: Path) -> None:
    import base64

    import mdio

    manifest = run(folder).manifest
    assert manifest is not None
    header = mdio.open_mdio(str(folder / "lake" / manifest.folder / "volume.mdio"))["segy_file_header"].attrs
    source = (folder / "line.sgy").read_bytes()
    assert header["textHeader"].startswith("C 1 A MADE SURVEY")
    assert base64.b64decode(header["rawTextHeader"]) == source[:3200]
    assert base64.b64decode(header["rawBinaryHeader"]) == source[3200:3600]
    assert json.loads((folder / "lake" / manifest.folder / "manifest.json").read_bytes())["source_format"] == "big ieee"


def test_bytes_are_known_under_their_name_although_a_kill_came_before_the_index(folder: Path) -> None:
    assert run(folder).status == "published"
    for path in (folder / "lake" / "index" / "sources").iterdir():  # written after the manifest
        path.unlink()
    assert run(folder).status == "unchanged"
    (folder / "other.sgy").write_bytes((folder / "line.sgy").read_bytes())
    again = run(folder, "other.sgy")
    assert (again.status, codes(again)) == ("unchanged", ["known-under-another-name"])
    assert [manifest.survey for manifest in surveys(Lake(str(folder / "lake")))] == ["line"]
