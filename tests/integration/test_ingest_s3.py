"""Ingest onto a real S3 server: real surveys or their likes, MDIO readers, and kill -9 at any moment."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import mdio
import numpy as np
import pytest
import segyio
from segy_bytes import Draft, draft

import ingestion.ingest
from ingestion.arrivals import ingest_arrival
from ingestion.catalog import load_manifest, surveys
from ingestion.discover import discover
from ingestion.ingest import IngestResult, ingest
from ingestion.lake import Lake, LakeError
from ingestion.manifest import Manifest
from ingestion.quarantine import load_report


def f3_like(order: str = ">", **changes: Any) -> Draft:
    made = draft((23, 18, 75), inlines=(111, 1), crosslines=(875, 1), scalar=-10, bins=(25, 25), order=order, **changes)
    made.samples = made.samples.round()
    made.headers["delay"] = np.full(len(made), 4)
    return made


def cropped_f3(order: str = ">") -> bytes:
    made = f3_like(order, code=3)
    made.headers["count"] = np.full(len(made), 462)
    return made.to_bytes()


def f3_with_holes() -> bytes:
    made = f3_like(code=1, revision=b"\x00\x00")
    i, x = made.headers["inline"] - 111, made.headers["crossline"] - 875
    return made.take((i + x < 24) & ((i > 4) | (x > 2)) | ((i == 22) & (x == 0)) | ((i == 0) & (x == 17))).to_bytes()


def missing_traces() -> bytes:
    made = draft((75, 71, 26), inlines=(11352, 2), crosslines=(2442, 2), scalar=1, bins=(12.5, 12.5))
    made.headers["coordinate_unit"] = np.full(len(made), 3)
    return made.take(
        (made.headers["sequence"] * 2654435761 % 1000 > 70) | (made.headers["crossline"] < 2446)
    ).to_bytes()


def dead_traces() -> bytes:
    made = draft((30, 41, 4), inlines=(1021, 1), crosslines=(960, 1))
    dead = made.headers["sequence"] % 15 < 8
    made.headers["trace_id"][dead] = 2
    made.samples[dead] = 0
    made.headers["delay"] = np.full(len(made), 1000)
    return made.to_bytes()


def scalar_zero() -> bytes:
    made = draft((5, 5, 50), inlines=(1, 1), crosslines=(20, 1), scalar=0, code=1, revision=b"\x00\x00")
    made.headers |= {"x": np.zeros(25, int), "y": np.zeros(25, int)}
    return made.to_bytes()


def prestack() -> bytes:
    made = draft((4, 3, 10), code=1).take(np.repeat(np.arange(12), 2))
    made.headers["offset"] = np.tile([1, 2], 12)
    return made.to_bytes()


def line_of_gathers() -> bytes:
    made = draft((4, 120, 60))
    made.headers |= {"at_9": made.headers["inline"], "at_21": made.headers["crossline"]}
    made.headers["offset"] = np.tile(np.arange(-3237, -3237 + 25 * 120, 25), 4)
    made.headers |= {name: np.zeros(480, int) for name in ("inline", "crossline", "x", "y")}
    return made.to_bytes()


def long_traces() -> bytes:
    made = draft((1, 3, 60_000), revision=b"\x00\x00", code=1)
    made.headers["delay"] = np.array([0, 16448, 16512])
    made.headers["inline"] = np.array([0, 1_077_939_431, 1_082_137_947])
    made.headers["crossline"] = np.array([0, 1_077_939_501, 1_082_138_017])
    return made.to_bytes()


def truncated() -> bytes:
    return draft().to_bytes()[:-188]


def no_traces() -> bytes:
    return draft().to_bytes()[:3600]


Facts = dict[str, Any]
PUBLISHED: dict[str, tuple[Callable[[], bytes], Facts]] = {
    "f3_crop.sgy": (cropped_f3, {"shape": (23, 18, 75), "first": 4}),
    "f3_crop_little_endian.sgy": (lambda: cropped_f3("<"), {"shape": (23, 18, 75), "first": 4}),
    "int16_little_endian.sgy": (lambda: cropped_f3("<"), {"shape": (23, 18, 75), "first": 4}),
    "f3_crop_dead_traces.sgy": (f3_with_holes, {"shape": (23, 18, 75), "first": 4, "live": 239}),
    "missing_traces_75x71x26.sgy": (missing_traces, {"shape": (75, 71, 26), "first": 0, "live": 4938}),
    "dead_traces_t0_1000ms.sgy": (dead_traces, {"shape": (30, 41, 4), "first": 1000, "live": 574}),
    "scalar_zero_5x5x50.sgy": (scalar_zero, {"shape": (5, 5, 50), "first": 0, "note": "read as 1"}),
}
HELD: dict[str, tuple[Callable[[], bytes], dict[str, str]]] = {  # code: what the finding must say
    "prestack_offsets_4x3x2.sgy": (prestack, {"prestack": "1, 2"}),
    "viking_line_no_inline_crossline.sgy": (line_of_gathers, {"no-3d-grid": "120 different offsets"}),
    "samples_60000.sgy": (long_traces, {"delay-differs": "2 of 3", "grid-sparse": "for 3 traces"}),
    "truncated.sgy": (truncated, {"truncated": " bytes"}),
    "no_traces.sgy": (no_traces, {"no-traces": "headers only"}),
}
MORE_CODES = {  # of the real files, beside those that must say something
    "samples_60000.sgy": {"sample-count-differs", "sample-interval-differs", "times-scalar-unknown"},
}


def survey_file(name: str, made: Callable[[], bytes], folder: Path) -> tuple[Path, bool]:
    """The real file when SURVEYS_DIR has it, else one of its kind; and whether it is real."""
    real = os.environ.get("SURVEYS_DIR")
    if real:
        return Path(real) / name, True
    (folder / name).write_bytes(made())
    return folder / name, False


def volume_of(lake: Lake, manifest: Manifest) -> Any:
    return mdio.open_mdio(f"{lake.uri}/{manifest.folder}/volume.mdio")


def check_against_segyio(path: Path, volume: Any, little: bool) -> None:
    """Every live trace as segyio reads it, everything else NaN."""
    with segyio.open(path, ignore_geometry=True, endian="little" if little else "big") as file:
        traces = file.trace.raw[:]
        inlines, crosslines = (file.attributes(byte)[:] for byte in (189, 193))
        dead = (file.attributes(29)[:] == 2) | ~traces.any(axis=1)
    expected = np.full(volume["amplitude"].shape, np.nan, np.float32)
    i, x = (
        np.searchsorted(volume[name].values, lines) for name, lines in (("inline", inlines), ("crossline", crosslines))
    )
    expected[i[~dead], x[~dead]] = traces[~dead]
    np.testing.assert_allclose(volume["amplitude"].values, expected, rtol=0, atol=0, equal_nan=True)
    assert np.array_equal(volume["trace_mask"].values, np.isfinite(expected[..., 0]))


@pytest.mark.parametrize("name", PUBLISHED)
def test_good_surveys_are_published(name: str, lake: Lake, tmp_path: Path) -> None:
    made, facts = PUBLISHED[name]
    path, real = survey_file(name, made, tmp_path)
    result = ingest(str(path), lake)
    assert result.status == "published", result.findings
    assert result.findings == []
    manifest = load_manifest(lake, result.survey, str(result.digest))
    assert manifest.shape == facts["shape"]
    volume = volume_of(lake, manifest)
    assert volume["time"].values.tolist() == [facts["first"] + 4 * k for k in range(facts["shape"][2])]
    check_against_segyio(path, volume, "little" in name)
    assert manifest.live_traces == volume["trace_mask"].values.sum()
    if real and "live" in facts:
        assert manifest.live_traces == facts["live"]
    assert facts.get("note", "") in " ".join(manifest.notes)


@pytest.mark.parametrize("name", HELD)
def test_bad_surveys_are_held_back_with_reasons(name: str, lake: Lake, tmp_path: Path) -> None:
    made, said = HELD[name]
    path, real = survey_file(name, made, tmp_path)
    result = ingest(str(path), lake)
    assert result.status == "held"
    report = load_report(lake, result.survey, str(result.digest))
    found = {finding.code: finding.found for finding in report.findings}
    assert set(said) <= set(found)
    if real:
        assert set(found) == said.keys() | MORE_CODES.get(name, set())
    assert all(text in found[code] for code, text in said.items())
    assert "negative" not in str(found)
    assert surveys(lake) == []


def test_a_folder_of_arrivals_on_s3(lake: Lake) -> None:
    for name, data in {"good one.sgy": draft().to_bytes(), "né $(x).sgy": truncated()}.items():
        lake.write(f"incoming/{name}", data)
    results = [ingest_arrival(lake, arrival) for arrival in discover(lake)]
    assert sorted(result.status for result in results) == ["held", "published"]
    assert discover(lake) == []
    [manifest] = surveys(lake)
    assert manifest.sources[0].original_name == "good one.sgy"


def test_a_key_that_cannot_be_read_holds_back_no_other(lake: Lake) -> None:
    lake.write("incoming/good.sgy", draft().to_bytes())
    bucket, _, prefix = lake.uri.removeprefix("s3://").partition("/")
    for name in ("a\nb.sgy", "", "notes\t.txt"):
        boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/incoming/{name}", Body=b"x")
    found = discover(lake)
    results = [ingest_arrival(lake, arrival) for arrival in found]
    assert {a.original_name: r.status for a, r in zip(found, results, strict=True)} == {
        "good": "published",
        "a\\nb.sgy": "held",
    }
    assert discover(lake) == []


@pytest.mark.parametrize("room", [True, False])
def test_a_file_is_downloaded_once_where_a_copy_has_room(
    room: bool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = draft((120, 80, 100)).to_bytes()
    lake.write("big.sgy", data)
    asked, buffer = [0], Lake.buffer

    def counted(self: Lake, key: str, start: int, length: int) -> memoryview:
        asked[0] += length if key == "big.sgy" else 0
        return buffer(self, key, start, length)

    monkeypatch.setattr(Lake, "buffer", counted)
    if not room:
        usage = shutil.disk_usage(scratch := tempfile.gettempdir())
        little = usage._replace(free=len(data) * 3 // 2)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: little if folder == scratch else usage)
    result = ingest(lake.uri_of("big.sgy"), lake)
    assert result.status == "published"
    first = 1024 * 1024  # looked at before the samples
    assert asked[0] <= len(data) + first if room else asked[0] > 1.9 * len(data)


def test_a_file_on_s3_that_is_replaced_meanwhile_is_left_for_the_next_run(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write("a.sgy", draft().to_bytes())
    write = ingestion.ingest.write_volume

    def replaced(*arguments: Any) -> Any:
        lake.write("a.sgy", draft(seed=9).to_bytes())
        return write(*arguments)

    monkeypatch.setattr(ingestion.ingest, "write_volume", replaced)
    assert ingest(lake.uri_of("a.sgy"), lake).status == "uploading"
    assert surveys(lake) == []


def test_a_bucket_that_is_not_there_is_said(lake: Lake) -> None:
    lake.check()
    with pytest.raises(LakeError, match="check the bucket"):
        Lake("s3://no-such-bucket/p").check()


def start(path: Path, lake: Lake) -> subprocess.Popen[bytes]:
    command = Path(sys.executable).with_name("survey")
    return subprocess.Popen([command, "ingest", path, "--lake", lake.uri], stdout=subprocess.DEVNULL)


def check_whole(lake: Lake, result: IngestResult, made: Draft, shape: tuple[int, int, int]) -> None:
    assert result.manifest is not None
    prefix = f"{result.manifest.folder}/volume.mdio/"
    stored = {entry.key.removeprefix(prefix): lake.read(entry.key) for entry in lake.objects(prefix)}
    assert {key: hashlib.sha256(data).hexdigest() for key, data in stored.items()} == {
        key: entry.sha256 for key, entry in result.manifest.volume.keys.items()
    }
    assert np.array_equal(volume_of(lake, result.manifest)["amplitude"].values, made.samples.reshape(shape))


def test_a_killed_ingest_is_invisible_and_the_next_one_completes(lake: Lake, tmp_path: Path) -> None:
    shape = (130, 130, 40)
    made = draft(shape, code=1)
    path = tmp_path / "killed.sgy"
    path.write_bytes(made.to_bytes())
    moments = random.Random(7)
    for round_number in range(3):
        here = Lake(f"{lake.uri}/{round_number}")
        child = start(path, here)
        while child.poll() is None and not any(here.objects("surveys")):
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 1.0))
        child.kill()
        child.wait()
        whole = [manifest.survey for manifest in surveys(here)]  # never half a survey
        result = ingest(str(path), here)
        assert result.status == ("unchanged" if whole else "published")
        check_whole(here, result, made, shape)


_AT_ONCE = """
import sys, time
from pathlib import Path
import ingestion.ingest as module
from ingestion.catalog import surveys
from ingestion.lake import Lake

source, lake, barrier, me = sys.argv[1:]
write = module.write_volume

def after_all_have_looked(*arguments):
    Path(barrier, me).touch()
    while len(list(Path(barrier).iterdir())) < 3 or (me == "late" and not surveys(Lake(lake))):
        time.sleep(0.01)
    return write(*arguments)

module.write_volume = after_all_have_looked
print(module.ingest(source, Lake(lake), name="one").model_dump_json())
"""


@pytest.mark.parametrize("scheme", ["s3", "file"])
def test_several_ingests_at_once_end_in_one_survey(lake: Lake, tmp_path: Path, scheme: str) -> None:
    """All convert the same bytes, from copies of different age, into the same keys: two together, one afterwards."""
    here = lake if scheme == "s3" else Lake(f"file://{tmp_path}/lake")
    shape = (70, 70, 40)
    made = draft(shape)
    (tmp_path / "barrier").mkdir()
    children = []
    for age, name in enumerate(("first", "second", "late")):
        path = tmp_path / f"{name}.sgy"
        path.write_bytes(made.to_bytes())
        os.utime(path, (10**9 + age, 10**9 + age))
        command = [sys.executable, "-c", _AT_ONCE, path, here.uri, tmp_path / "barrier", name]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    results = [IngestResult.model_validate_json(child.communicate(timeout=200)[0]) for child in children]
    assert sorted(result.status for result in results) == ["published", "unchanged", "unchanged"]
    assert results[0].manifest == results[1].manifest == results[2].manifest
    assert [manifest.digest for manifest in surveys(here)] == [results[0].digest]
    check_whole(here, results[0], made, shape)
