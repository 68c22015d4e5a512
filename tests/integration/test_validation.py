"""Validation on a real object store: verdict, quarantine, release, Data Docs, and being killed on the way."""

from __future__ import annotations

import dataclasses
import hashlib
import html
import io
import re
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.manifest import Manifest, Verdict, quarantine_folder, verdict_key
from ingestion.quarantine import load_report, report_key
from ingestion.synthetic import BASINS, SyntheticSurvey, make_survey, write_segy
from validation.checks import validate
from validation.data_docs import data_docs
from validation.facts import load_facts
from validation.pictures import survey_pictures
from validation.verdict import load_verdict


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


class DyingLake(Lake):
    """A lake whose user dies before its n-th write."""

    def __init__(self, uri: str, writes: int) -> None:
        super().__init__(uri)
        self.writes_left = writes

    def write(self, key: str, data: bytes | Path) -> None:
        if self.writes_left == 0:
            raise Killed(key)
        self.writes_left -= 1
        super().write(key, data)


def _clean() -> SyntheticSurvey:
    return make_survey(BASINS["salt_flank"], 5, (40, 44, 64))


def _shuffled() -> SyntheticSurvey:
    survey = _clean()
    traces = np.random.default_rng(1).permutation(survey.amplitude_IXZ[survey.live_IX])
    amplitude = survey.amplitude_IXZ.copy()
    amplitude[survey.live_IX] = traces
    return dataclasses.replace(survey, amplitude_IXZ=amplitude)


def _publish(lake: Lake, survey: SyntheticSurvey, folder: Path, name: str = "flank & dome") -> Manifest:
    path = folder / f"{name}.sgy"
    write_segy(survey, path)
    manifest = ingest(str(path), lake).manifest
    assert manifest is not None
    return manifest


def _contents(lake: Lake) -> dict[str, str]:
    """Digest of every object."""
    return {entry.key: hashlib.sha256(lake.read(entry.key)).hexdigest() for entry in lake.objects()}


def test_a_good_survey_passes_and_the_verdict_stays(lake: Lake, tmp_path: Path) -> None:
    manifest = _publish(lake, _clean(), tmp_path)
    assert load_verdict(lake, manifest.survey, manifest.digest) is None
    verdict = validate(lake, manifest.survey, manifest.digest)
    assert (verdict.status, verdict.findings) == ("passed", [])
    stored = lake.read(verdict_key(manifest.survey, manifest.digest))
    assert Verdict.model_validate_json(stored) == verdict
    before = _contents(lake)
    assert validate(lake, manifest.survey, manifest.digest) == verdict
    assert _contents(lake) == before
    assert not list(lake.objects("quarantine"))
    facts = load_facts(lake, manifest.survey, manifest.digest)
    assert facts is not None
    assert facts.live_traces == manifest.live_traces


def test_a_bad_survey_is_held_back_with_reasons_and_pictures(lake: Lake, tmp_path: Path) -> None:
    manifest = _publish(lake, _shuffled(), tmp_path)
    verdict = validate(lake, manifest.survey, manifest.digest)
    assert verdict.status == "held"
    assert [finding.code for finding in verdict.findings] == ["no-lateral-continuity"]
    report = load_report(lake, manifest.survey, manifest.digest)
    assert report.held_by == "validation"
    assert report.findings == verdict.findings
    assert report.original_name == "flank & dome.sgy"
    page = lake.read(f"{quarantine_folder(manifest.survey, manifest.digest)}/report.html").decode()
    assert "flank &amp; dome" in page
    assert page.count("data:image/png;base64,") == 7
    assert "name the right <code>inline_byte</code>" in page
    assert report.acceptable == ["no-lateral-continuity"]
    for way in report.ways:
        assert way.command.startswith(f"survey release {manifest.survey} --lake {lake.uri} ")
        assert html.escape(way.command) in re.sub("</?span>", "", page)
    assert "--accept no-lateral-continuity" in report.ways[-1].command


def test_a_damaged_chunk_is_held_until_it_is_restored(lake: Lake, tmp_path: Path) -> None:
    manifest = _publish(lake, _clean(), tmp_path)
    passed = validate(lake, manifest.survey, manifest.digest)
    chunk = max(manifest.volume.keys.items(), key=lambda item: item[1].size)[0]
    key = f"{manifest.folder}/volume.mdio/{chunk}"
    whole = lake.read(key)
    lake.write(key, whole[:-1] + bytes([whole[-1] ^ 255]))

    held = validate(lake, manifest.survey, manifest.digest)
    assert (held.status, [finding.code for finding in held.findings]) == ("held", ["object-damaged"])
    assert held.findings[0].examples == [f"key {chunk}"]
    assert load_facts(lake, manifest.survey, manifest.digest) is not None  # of when it was whole
    assert "--accept" not in " ".join(way.command for way in load_report(lake, manifest.survey, manifest.digest).ways)
    assert lake.exists(report_key(manifest.survey, manifest.digest))

    lake.write(key, whole)
    released = validate(lake, manifest.survey, manifest.digest)
    assert (released.status, released.findings) == (passed.status, passed.findings)
    assert not list(lake.objects(quarantine_folder(manifest.survey, manifest.digest)))


@pytest.mark.parametrize("writes", [7, 19, 20, 21])
def test_killed_before_a_write_it_is_finished_by_the_next_run(lake: Lake, tmp_path: Path, writes: int) -> None:
    manifest = _publish(lake, _shuffled(), tmp_path)
    with pytest.raises(Killed):
        validate(DyingLake(lake.uri, writes), manifest.survey, manifest.digest)
    assert load_verdict(lake, manifest.survey, manifest.digest) is None  # it comes last
    verdict = validate(lake, manifest.survey, manifest.digest)
    assert verdict.status == "held"
    assert load_verdict(lake, manifest.survey, manifest.digest) == verdict
    assert load_report(lake, manifest.survey, manifest.digest).findings == verdict.findings


def test_a_survey_that_is_not_published_has_no_verdict(lake: Lake) -> None:
    with pytest.raises(FileNotFoundError):
        validate(lake, "nowhere", "0" * 64)
    assert not list(lake.objects())


def test_an_older_suites_verdict_is_replaced(lake: Lake, tmp_path: Path) -> None:
    manifest = _publish(lake, _clean(), tmp_path)
    verdict = validate(lake, manifest.survey, manifest.digest)
    older = verdict.model_copy(update={"suite_version": 10_000})
    lake.write(verdict_key(manifest.survey, manifest.digest), older.to_bytes())
    assert validate(lake, manifest.survey, manifest.digest).suite_version == verdict.suite_version
    stored = load_verdict(lake, manifest.survey, manifest.digest)
    assert stored is not None
    assert stored.suite_version == verdict.suite_version


def test_data_docs_open_without_a_network(lake: Lake, tmp_path: Path) -> None:
    good = _publish(lake, _clean(), tmp_path, "good")
    bad = _publish(lake, _shuffled(), tmp_path, "bad <script>")
    for manifest in (good, bad):
        validate(lake, manifest.survey, manifest.digest)
    index = data_docs(lake, tmp_path / "docs")
    text = index.read_text()
    assert "2 surveys were converted and validated, 1 of them are held back" in text
    assert '<span class="held">no-lateral-continuity</span> (hold): neighbouring traces' in text
    assert "<script" not in text
    links = re.findall(r'href="([^"]+)"', text)
    assert len(links) == 2 * 9
    for link in links:
        page = (index.parent / link).read_text()
        assert not re.search(r"(src|href)=\"https?:|<script|url\('?http", page)
        inner = re.findall(r'href="([^"#]+\.html)[^"]*"', page)
        assert inner
        assert all(((index.parent / link).parent / target).resolve().is_file() for target in inner)


def test_pictures_show_the_survey(lake: Lake, tmp_path: Path) -> None:
    manifest = _publish(lake, _clean(), tmp_path)
    pictures = survey_pictures(lake, manifest)
    assert [caption.split(" ")[0] for caption in pictures] == [
        *("Inline", "Crossline", "Slice", "Amplitude", "Spectrum", "Live", "Location")
    ]
    for png in pictures.values():
        pixels = matplotlib.image.imread(io.BytesIO(png), format="png")
        assert pixels.shape[0] > 300
        assert pixels.shape[1] > 500
        assert pixels.std() > 0.05  # not an empty page
    assert pictures == survey_pictures(lake, manifest)
