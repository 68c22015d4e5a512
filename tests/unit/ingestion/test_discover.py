"""What waits in incoming/: found once, whole, with its spec."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from segy_bytes import draft

from ingestion.arrivals import ingest_arrival
from ingestion.discover import discover
from ingestion.lake import Lake, LakeError


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def drop(lake: Lake, **files: bytes | str) -> None:
    for name, data in files.items():
        path = name.replace("__", ".").replace("_in_", "/")
        lake.write(f"incoming/{path}", data if isinstance(data, bytes) else data.encode())


def test_new_files_are_found_once(lake: Lake) -> None:
    assert discover(lake) == []
    drop(lake, good__sgy=draft().to_bytes(), bad__SEGY=b"junk", notes__txt="x", late__sgy__part=b"x")
    found = discover(lake)
    assert [(a.original_name, a.keys, a.spec_key) for a in found] == [
        ("bad", ["incoming/bad.SEGY"], None),
        ("good", ["incoming/good.sgy"], None),
    ]
    assert [ingest_arrival(lake, arrival).status for arrival in found] == ["held", "published"]
    assert discover(lake) == []
    assert discover(lake, include_known=True) == found


def test_a_changed_file_or_spec_is_found_again(lake: Lake) -> None:
    drop(lake, a__sgy=draft().to_bytes()[:-1])
    ingest_arrival(lake, discover(lake)[0])
    drop(lake, a__sgy=draft().to_bytes())
    assert ingest_arrival(lake, discover(lake)[0]).status == "published"
    drop(lake, a__yaml="domain: depth")
    arrival = discover(lake)[0]
    assert arrival.spec_key == "incoming/a.yaml"
    result = ingest_arrival(lake, arrival)
    assert result.status == "published"
    assert result.manifest is not None
    assert result.manifest.domain == "depth"
    assert discover(lake) == []


def test_a_survey_of_several_files_waits_for_all(lake: Lake) -> None:
    spec = "name: Both\nfiles: [p1.sgy, p2.sgy]\n"
    drop(lake, both__yaml=spec, p1__sgy=draft().take(slice(21)).to_bytes())
    assert discover(lake) == []
    drop(lake, p2__sgy=draft().take(slice(21, None)).to_bytes())
    [arrival] = discover(lake)
    assert arrival.keys == ["incoming/p1.sgy", "incoming/p2.sgy"]
    result = ingest_arrival(lake, arrival)
    assert result.status == "published"
    assert result.manifest is not None
    assert result.manifest.live_traces == 42


def test_an_unreadable_spec_holds_its_survey_back(lake: Lake) -> None:
    drop(lake, a__sgy=draft().to_bytes(), a__yaml="inline_bite: 9")
    result = ingest_arrival(lake, discover(lake)[0])
    assert (result.status, [f.code for f in result.findings]) == ("held", ["spec-invalid"])
    assert "inline_bite" in result.findings[0].found
    assert discover(lake) == []
    drop(lake, a__yaml="inline_byte: 189")
    assert ingest_arrival(lake, discover(lake)[0]).status == "published"


def test_files_wait_where_an_unreadable_spec_may_be_about_them(lake: Lake) -> None:
    drop(lake, p1__sgy=draft().to_bytes(), both__yaml="files: [p1.sgy", other_in_b__sgy=b"x")
    found = {arrival.original_name: arrival for arrival in discover(lake)}
    assert set(found) == {"both", "b"}
    assert ingest_arrival(lake, found["both"]).findings[0].code == "spec-invalid"


def test_two_new_files_of_one_name_are_both_held_back(lake: Lake) -> None:
    drop(lake, north_in_a__sgy=draft().to_bytes(), south_in_a__sgy=draft(seed=1).to_bytes())
    results = [ingest_arrival(lake, arrival) for arrival in discover(lake)]
    assert [[f.code for f in result.findings] for result in results] == [["name-given-twice"]] * 2
    lake.delete(["incoming/south/a.sgy"])
    [arrival] = discover(lake)
    assert ingest_arrival(lake, arrival).status == "published"


@pytest.mark.parametrize("name", [b"b\n.sgy", b"b\x1b[31m.sgy", b"b\xff.sgy"])
def test_a_name_that_no_store_can_hold_is_held_back_alone(lake: Lake, tmp_path: Path, name: bytes) -> None:
    drop(lake, a__sgy=draft().to_bytes(), notes__txt="x")
    for odd in (name, b"Icon\r"):
        (tmp_path / "incoming" / os.fsdecode(odd)).write_bytes(b"x")
    results = {arrival.original_name: ingest_arrival(lake, arrival) for arrival in discover(lake)}
    held = results.pop(next(shown for shown in results if shown != "a"))
    assert [result.status for result in results.values()] == ["published"]
    assert (held.status, [f.code for f in held.findings]) == ("held", ["name-unusable"])
    assert held.findings[0].found.isprintable()
    assert discover(lake) == []
    with pytest.raises(LakeError, match="rename or remove"):
        list(lake.objects("incoming"))


@pytest.mark.parametrize("text", [b"name: 20201345", b"inline_byte: !!int x", b"a: !!bool x", b"#" * 10**6])
def test_an_odd_spec_stops_no_other_survey(lake: Lake, text: bytes) -> None:
    drop(lake, a__sgy=draft().to_bytes(), b__sgy=draft(seed=1).to_bytes(), a__yaml=text)
    results = [ingest_arrival(lake, arrival) for arrival in discover(lake)]
    assert [result.status for result in results] == ["held", "published"]
    assert [f.code for f in results[0].findings] == ["spec-invalid"]


def test_two_files_beside_one_spec_are_not_merged(lake: Lake) -> None:
    drop(lake, a__sgy=draft().take(slice(21)).to_bytes(), a__segy=draft().take(slice(21, None)).to_bytes())
    drop(lake, a__yaml="domain: depth")
    results = [ingest_arrival(lake, arrival) for arrival in discover(lake)]
    assert [[f.code for f in result.findings] for result in results] == [["name-given-twice"]] * 2
