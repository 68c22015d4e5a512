"""A published survey, written back as SEG-Y, looked at again for bit rot, and read by ``mdio`` itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from segy_bytes import Draft, draft

from ingestion.catalog import surveys
from ingestion.cli import main
from ingestion.ingest import IngestResult, ingest
from ingestion.lake import Lake
from ingestion.manifest import Manifest, Verdict, verdict_key
from ingestion.spec import SurveySpec
from ingestion.volume.export import export
from ingestion.withdrawal import record


def quiet(_what: str, _done: int, _total: int) -> None:
    return


def published(folder: Path, data: bytes, spec: SurveySpec | None = None) -> IngestResult:
    (folder / "line.sgy").write_bytes(data)
    result = ingest(str(folder / "line.sgy"), Lake(str(folder / "lake")), spec)
    assert result.status == "published", result.findings
    return result


def exported(folder: Path, data: bytes, spec: SurveySpec | None = None) -> tuple[bytes, bool]:
    manifest = published(folder, data, spec).manifest
    assert manifest is not None
    [file] = export(Lake(str(folder / "lake")), manifest, folder / "out", quiet)
    return Path(file.path).read_bytes(), file.same_as_source


def whole_numbers(made: Draft, code: int) -> Draft:
    """``made`` in a format, with samples that it holds exactly."""
    limit = {8: 127, 3: 32767}.get(code, 4096)
    made.samples = np.clip(np.round(made.samples), -limit, limit).astype(np.float32)
    made.code = code
    return made


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_the_bytes_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever geometry, order of traces, scalar, interval, delay, format, and whatever lies around the traces."""
    shape = (data.draw(st.integers(2, 6)), data.draw(st.integers(2, 7)), data.draw(st.integers(2, 40)))
    made = draft(
        shape,
        inlines=(data.draw(st.integers(-500, 500)), data.draw(st.sampled_from([1, 2, -3]))),
        crosslines=(data.draw(st.integers(-500, 500)), data.draw(st.sampled_from([1, 4, -1]))),
        scalar=data.draw(st.sampled_from([-1000, -100, -10, 1])),
        seed=data.draw(st.integers(0, 9)),
        order=data.draw(st.sampled_from("<>")),
        interval=data.draw(st.sampled_from([500, 2500, 4000])),
        ascii_text=data.draw(st.booleans()),
        text="C 1 L\xe4nge, \xa0 und mehr",
    )
    made = whole_numbers(made, data.draw(st.sampled_from([1, 2, 3, 5, 8])))
    made.headers["delay"] = np.full(len(made), data.draw(st.sampled_from([0, 1000, -8])))
    order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(len(made))
    made.take(order if data.draw(st.booleans()) else np.arange(len(made)))
    source = bytearray(made.to_bytes())
    header = np.random.default_rng(1).integers(0, 256, 8, np.uint8)  # bytes that no standard assigns
    trace_bytes = (len(source) - 3600) // len(made)
    source[3600 + trace_bytes + 232 : 3600 + trace_bytes + 240] = header.tobytes()
    got, same = exported(tmp_path_factory.mktemp("export"), bytes(source))
    assert got == source
    assert same


def test_extended_headers_and_a_trailer_come_back(tmp_path: Path) -> None:
    made = draft(revision=b"\x02\x00", extended=2, extended_texts=["one", "((SEG: EndText))"])
    made.binary = {329: ("i", 1)}
    made.trailer = bytes(range(200)) * 16
    got, same = exported(tmp_path, made.to_bytes())
    assert got == made.to_bytes()
    assert same


def test_traces_that_no_volume_holds_are_zero_and_said(tmp_path: Path) -> None:
    made = draft()
    made.headers["trace_id"][5] = 2  # dead, with samples
    got, same = exported(tmp_path, made.to_bytes(), SurveySpec(drop_traces=[9]))
    assert not same
    trace_bytes = (len(got) - 3600) // len(made)
    traces = np.frombuffer(got[3600:], np.uint8).reshape(len(made), trace_bytes)
    source = np.frombuffer(made.to_bytes()[3600:], np.uint8).reshape(len(made), trace_bytes)
    assert not traces[5, 240:].any()
    assert (traces[5, :240] == source[5, :240]).all()
    assert not traces[8].any()
    others = np.delete(np.arange(len(made)), [5, 8])
    assert (traces[others] == source[others]).all()


def test_several_files_come_back_each(tmp_path: Path) -> None:
    whole = draft((6, 5, 12))
    parts = {"a.sgy": draft((6, 5, 12)).take(slice(0, 12)), "b.sgy": whole.take(slice(12, 30))}
    for name, part in parts.items():
        (tmp_path / name).write_bytes(part.to_bytes())
    lake = Lake(str(tmp_path / "lake"))
    result = ingest([str(tmp_path / name) for name in parts], lake, SurveySpec(files=list(parts)))
    assert result.manifest is not None
    files = export(lake, result.manifest, tmp_path / "out", quiet)
    assert [file.same_as_source for file in files] == [True, True]
    assert all((tmp_path / "out" / name).read_bytes() == part.to_bytes() for name, part in parts.items())


def test_files_called_alike_do_not_overwrite_each_other(tmp_path: Path) -> None:
    parts = [draft((6, 5, 12)).take(slice(0, 12)), draft((6, 5, 12)).take(slice(12, 30))]
    for name, part in zip("ab", parts, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "line.sgy").write_bytes(part.to_bytes())
    lake = Lake(str(tmp_path / "lake"))
    result = ingest([str(tmp_path / name / "line.sgy") for name in "ab"], lake)
    assert result.manifest is not None
    files = export(lake, result.manifest, tmp_path / "out", quiet)
    assert [Path(file.path).name for file in files] == ["1-line.sgy", "2-line.sgy"]
    assert [Path(file.path).read_bytes() for file in files] == [part.to_bytes() for part in parts]


def test_an_integer_that_was_rounded_up_does_not_change_its_sign(tmp_path: Path) -> None:
    made = whole_numbers(draft(), 3)
    made.code = 2
    source = bytearray(made.to_bytes())
    source[3840:3844] = (2**31 - 1).to_bytes(4, "big")  # float32 holds 2**31 in its place
    got, _ = exported(tmp_path, bytes(source))
    assert got == source


def survey(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [argument.replace("@", str(folder)) for argument in arguments])


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    published(tmp_path, draft().to_bytes())
    arguments = ("export", "line", "--lake", "@/lake", "--output", "@/out")
    assert "the same bytes as its source" in survey(tmp_path, *arguments).stdout
    again = survey(tmp_path, *arguments)
    assert again.exit_code == 1
    assert "exists and is not overwritten" in again.stderr


def test_two_at_once_into_one_folder_do_not_mix(tmp_path: Path) -> None:
    one = draft(seed=1)
    other = draft(seed=2)
    first, second = (published(tmp_path, made.to_bytes()).manifest for made in (one, other))
    lake, out = Lake(str(tmp_path / "lake")), tmp_path / "out"
    assert first is not None
    assert second is not None

    def meanwhile(what: str, _done: int, _total: int) -> None:
        if what == "exporting" and not (out / "line.sgy").exists():
            assert export(lake, second, out, quiet)[0].same_as_source

    with pytest.raises(FileExistsError, match="is not overwritten"):
        export(lake, first, out, meanwhile)
    assert [path.name for path in out.iterdir()] == ["line.sgy"]
    assert (out / "line.sgy").read_bytes() == other.to_bytes()


def test_a_killed_export_hinders_no_other(tmp_path: Path) -> None:
    manifest = published(tmp_path, draft().to_bytes()).manifest
    assert manifest is not None
    killed = (
        "import os, sys; from pathlib import Path; from ingestion.catalog import surveys; "
        "from ingestion.lake import Lake; from ingestion.volume.export import export; lake = Lake(sys.argv[1]); "
        "export(lake, surveys(lake)[0], Path(sys.argv[2]), lambda *_: os.kill(os.getpid(), 9))"
    )
    for _ in range(2):
        call = [sys.executable, "-c", killed, str(tmp_path / "lake"), str(tmp_path / "out")]
        assert subprocess.run(call, check=False).returncode == -9
    left = list((tmp_path / "out").iterdir())
    assert [path.suffix for path in left] == [".part", ".part"]
    [file] = export(Lake(str(tmp_path / "lake")), manifest, tmp_path / "out", quiet)
    assert file.same_as_source
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".part", ".sgy"}


@pytest.mark.parametrize("spoiled", ["changed", "lost", "unlisted"])
def test_bit_rot_is_found(tmp_path: Path, spoiled: str) -> None:
    published(tmp_path, draft().to_bytes())
    assert survey(tmp_path, "verify", "--lake", "@/lake").exit_code == 0
    lake = Lake(str(tmp_path / "lake"))
    [manifest] = surveys(lake)
    key = "amplitude/c/0/0/0"
    path = f"{manifest.folder}/volume.mdio/{key}"
    if spoiled == "changed":
        data = bytearray(lake.read(path))
        data[-1] ^= 1
        lake.write(path, bytes(data))
    elif spoiled == "lost":
        lake.delete([path])
    else:
        lake.write(path.replace("0/0/0", "7/0/0"), b"x")
        key = "amplitude/c/7/0/0"
    found = survey(tmp_path, "verify", "line", "--lake", "@/lake", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)[0][spoiled] == [key]
    assert f"{spoiled}: {key}" in survey(tmp_path, "verify", "--lake", "@/lake").stdout


def test_an_unreadable_manifest_is_no_whole_lake(tmp_path: Path) -> None:
    manifest = published(tmp_path, draft().to_bytes()).manifest
    assert manifest is not None
    Lake(str(tmp_path / "lake")).write(f"{manifest.folder}/manifest.json", b"{")
    found = survey(tmp_path, "verify", "--lake", "@/lake")
    assert found.exit_code == 1
    assert "not verified" in found.stderr


def judged(folder: Path, manifest: Manifest) -> Manifest:
    """``manifest`` with the verdict that validation writes beside it."""
    verdict = Verdict(
        survey=manifest.survey,
        digest=manifest.digest,
        status="passed",
        findings=[],
        suite_version=1,
        created=manifest.created,
    )
    Lake(str(folder / "lake")).write(verdict_key(manifest.survey, manifest.digest), verdict.to_bytes())
    return manifest


def two_versions(folder: Path) -> tuple[Manifest, Manifest]:
    """An older one, and one with a spec."""
    found = [published(folder, draft().to_bytes(), spec).manifest for spec in (None, SurveySpec(crs="EPSG:23031"))]
    older, newer = (judged(folder, manifest) for manifest in found if manifest)
    return older, newer


@pytest.mark.parametrize("name", [(), ("line",)])
def test_a_lost_manifest_is_damage_until_it_is_back(tmp_path: Path, name: tuple[str, ...]) -> None:
    manifest = published(tmp_path, draft().to_bytes()).manifest
    assert manifest is not None
    key = f"{manifest.folder}/manifest.json"
    Lake(str(tmp_path / "lake")).delete([key])
    assert survey(tmp_path, "verify", "--lake", "@/lake").exit_code == 0  # as what a killed ingest leaves
    judged(tmp_path, manifest)
    found = survey(tmp_path, "verify", *name, "--lake", "@/lake")
    assert found.exit_code == 1
    assert "DAMAGED" in found.stdout
    assert f"restore {key}" in found.stdout
    [condition] = json.loads(survey(tmp_path, "verify", *name, "--lake", "@/lake", "--json").stdout)
    assert (condition["digest"], condition["manifest_lost"]) == (manifest.digest, True)
    published(tmp_path, draft().to_bytes())
    assert survey(tmp_path, "verify", *name, "--lake", "@/lake").exit_code == 0


def test_a_lost_manifest_hides_behind_no_other_version(tmp_path: Path) -> None:
    older, newer = two_versions(tmp_path)
    lake = Lake(str(tmp_path / "lake"))
    lake.delete([f"{newer.folder}/manifest.json"])
    found = json.loads(survey(tmp_path, "verify", "--lake", "@/lake", "--json").stdout)
    assert [(one["digest"], one["manifest_lost"]) for one in found] == [(older.digest, False), (newer.digest, True)]
    record(lake, "withdraw", "line", newer.digest, by="ann", reason="its licence ended")
    assert survey(tmp_path, "verify", "--lake", "@/lake").exit_code == 0


def test_an_older_version_is_verified_by_its_digest(tmp_path: Path) -> None:
    older, newer = two_versions(tmp_path)
    (tmp_path / "lake" / older.folder / "volume.mdio/amplitude/c/0/0/0").unlink()
    assert survey(tmp_path, "verify", "line", "--lake", "@/lake").exit_code == 0
    for beginning in (older.digest, older.digest[:12]):
        found = survey(tmp_path, "verify", "line", "--digest", beginning, "--lake", "@/lake", "--json")
        assert found.exit_code == 1
        assert [(one["digest"], one["lost"]) for one in json.loads(found.stdout)] == [
            (older.digest, ["amplitude/c/0/0/0"])
        ]
    assert survey(tmp_path, "verify", "line", "--digest", newer.digest[:12], "--lake", "@/lake").exit_code == 0


@pytest.mark.parametrize(
    ("names", "digest", "status", "said"),
    [
        ([], "0", 2, "give its NAME"),
        (["line", "other"], "0", 2, "give its NAME"),
        (["line"], "x", 1, "0 versions of survey line begin with 'x'; there are: "),
        (["line"], "", 1, "2 versions of survey line begin with ''; there are: "),
        (["else"], "0", 1, "no survey 'else'"),
    ],
)
def test_a_digest_that_names_no_version_is_told(
    tmp_path: Path, names: list[str], digest: str, status: int, said: str
) -> None:
    two_versions(tmp_path)
    found = survey(tmp_path, "verify", *names, "--digest", digest, "--lake", "@/lake")
    assert found.exit_code == status
    assert said in found.stderr


@pytest.mark.parametrize("spoiled", ["changed", "lost"])
def test_a_damaged_volume_is_not_written_as_if_it_were_whole(tmp_path: Path, spoiled: str) -> None:
    manifest = published(tmp_path, draft().to_bytes()).manifest
    assert manifest is not None
    chunk = tmp_path / "lake" / manifest.folder / "volume.mdio/amplitude/c/0/0/0"
    if spoiled == "lost":
        chunk.unlink()
    else:
        chunk.write_bytes(b"no blosc at all")
    result = survey(tmp_path, "export", "line", "--lake", "@/lake", "--output", "@/out")
    assert result.exit_code == 1
    assert "damaged in 1 object" in result.stderr
    assert not any((tmp_path / "out").iterdir())


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, _offset: int, _length: int) -> None:
        raise OSError(28, "No space left on device")

    published(tmp_path, draft().to_bytes())
    monkeypatch.setattr("os.posix_fallocate", full)
    result = survey(tmp_path, "export", "line", "--lake", "@/lake", "--output", "@/out")
    assert result.exit_code == 1
    assert "No space left" in result.stderr
    assert not any((tmp_path / "out").iterdir())
