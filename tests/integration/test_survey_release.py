"""``survey release`` as a data manager types it, on a real object store."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from segy_bytes import draft

from flows.settings import Settings
from flows.survey_command import main
from flows.surveys import find_work
from flows.week import Request
from ingestion.arrivals import ingest_arrival
from ingestion.catalog import digests
from ingestion.discover import discover
from ingestion.ingest import IngestResult, ingest
from ingestion.lake import Lake
from ingestion.manifest import quarantine_folder, verdict_key
from ingestion.quarantine import load_report, reports
from ingestion.synthetic import BASINS, SyntheticSurvey, make_survey, write_segy
from validation import checks
from validation.checks import examine, validate
from validation.releases import load_request, record_request
from validation.verdict import load_verdict

BY = ("--by", "Ana Ruiz", "--reason", "a noise test, wanted as it is")
Take = Callable[..., IngestResult]


def _release(lake: Lake, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["release", *arguments, "--lake", lake.uri])


def _survey(*, shuffled: bool = False, loud: bool = False) -> SyntheticSurvey:
    survey = make_survey(BASINS["salt_flank"], 5, (24, 26, 40))
    amplitude = survey.amplitude_IXZ.copy()
    if shuffled:
        amplitude[survey.live_IX] = np.random.default_rng(1).permutation(amplitude[survey.live_IX])
    if loud:
        amplitude[7] *= 100
    return dataclasses.replace(survey, amplitude_IXZ=amplitude)


def _held(lake: Lake, folder: Path, name: str = "flank", **how: bool) -> tuple[str, str]:
    """A published survey that validation holds back: its name and digest."""
    path = folder / f"{name}.sgy"
    write_segy(_survey(**how), path)
    result = ingest(str(path), lake)
    assert result.digest is not None
    assert validate(lake, result.survey, result.digest).status == "held"
    return result.survey, result.digest


def _request(lake: Lake) -> Request:
    fields: dict[str, Any] = {"lake": lake.uri, "week": "2026-W49", "surveys": [], "size": "tiny", "launcher": "local"}
    settings = Settings.model_construct()
    return Request.model_construct(**fields, seed=0, force=False, settings=settings)


def test_what_a_person_accepts_passes_and_names_who_and_why(lake: Lake, tmp_path: Path) -> None:
    survey, digest = _held(lake, tmp_path, "flank & dome", shuffled=True)
    command = load_report(lake, survey, digest).ways[-1].command
    assert command.startswith(f"survey release {survey} --lake {lake.uri} --accept no-lateral-continuity")
    result = _release(lake, "flank & dome", "--accept", "no-lateral-continuity", *BY)
    assert result.exit_code == 0, result.output
    assert "released; the next data set takes it" in result.output
    verdict = load_verdict(lake, survey, digest)
    assert verdict is not None
    assert verdict.status == "passed"
    [finding] = verdict.findings
    assert finding.severity == "warn"
    assert "accepted by Ana Ruiz on " in finding.found
    assert "a noise test, wanted as it is" in finding.found
    assert not list(lake.objects(quarantine_folder(survey, digest)))
    assert find_work(_request(lake)) == []
    again = _release(lake, survey, *BY)
    assert again.exit_code == 1
    assert f"nothing of survey {survey} is held back: {digest[:12]} has passed" in again.output


def test_a_release_given_while_validation_reads_is_not_missed(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey, digest = _held(lake, tmp_path, shuffled=True)

    def slowly(*arguments: Any) -> Any:
        found = examine(*arguments)
        record_request(lake, survey, digest, ["no-lateral-continuity"], "Ana Ruiz", "meanwhile")
        return found

    monkeypatch.setattr("validation.checks.examine", slowly)
    assert validate(lake, survey, digest).status == "passed"


def test_a_release_given_while_the_report_is_written_is_not_missed(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey, digest = _held(lake, tmp_path, shuffled=True)
    hold_back = checks._hold_back

    def slowly(*arguments: Any, **named: Any) -> None:
        hold_back(*arguments, **named)
        record_request(lake, survey, digest, ["no-lateral-continuity"], "Ana Ruiz", "meanwhile")

    monkeypatch.setattr(checks, "_hold_back", slowly)
    verdict = validate(lake, survey, digest)
    assert verdict.status == "passed"
    assert load_verdict(lake, survey, digest) == verdict
    assert not list(lake.objects(quarantine_folder(survey, digest)))
    assert find_work(_request(lake)) == []


def test_what_was_not_accepted_still_holds(lake: Lake, tmp_path: Path) -> None:
    survey, digest = _held(lake, tmp_path, shuffled=True, loud=True)
    first = _release(lake, survey, "--accept", "line-gain", "--json", *BY)
    assert first.exit_code == 1
    told = json.loads(first.stdout)
    assert told["status"] == "held"
    assert {f["code"]: f["severity"] for f in told["findings"]} == {
        "line-gain": "warn",
        "no-lateral-continuity": "hold",
    }
    assert told["report"].endswith(f"{digest}/report.html")
    second = _release(lake, survey, "--accept", "no-lateral-continuity", "--by", "Bo", "--reason", "seen")
    assert second.exit_code == 0, second.output
    verdict = load_verdict(lake, survey, digest)
    assert verdict is not None
    assert ["Ana Ruiz" in verdict.findings[0].found, "Bo" in verdict.findings[1].found] == [True, True]


def test_a_damaged_volume_is_accepted_by_nobody(lake: Lake, tmp_path: Path) -> None:
    write_segy(_survey(), tmp_path / "flank.sgy")
    manifest = ingest(str(tmp_path / "flank.sgy"), lake).manifest
    assert manifest is not None
    chunk = max(manifest.volume.keys.items(), key=lambda item: item[1].size)[0]
    key = f"{manifest.folder}/volume.mdio/{chunk}"
    whole = lake.read(key)
    lake.write(key, whole[:-1] + bytes([whole[-1] ^ 255]))
    assert validate(lake, "flank", manifest.digest).status == "held"
    refused = _release(lake, "flank", "--accept", "object-damaged", *BY)
    assert refused.exit_code == 1
    assert "object-damaged cannot be accepted" in refused.output
    assert "restore the objects" in refused.output
    assert load_request(lake, "flank", manifest.digest) is None
    record_request(lake, "flank", manifest.digest, ["object-damaged"], "a script", "past the command")
    assert validate(lake, "flank", manifest.digest).status == "held"
    lake.write(key, whole)
    released = _release(lake, "flank", *BY)
    assert released.exit_code == 0, released.output
    verdict = load_verdict(lake, "flank", manifest.digest)
    assert verdict is not None
    assert (verdict.status, verdict.findings) == ("passed", [])


def test_a_request_that_nobody_answered_is_work_of_the_week(lake: Lake, tmp_path: Path) -> None:
    survey, digest = _held(lake, tmp_path, shuffled=True)
    assert find_work(_request(lake)) == []
    record_request(lake, survey, digest, [], "Ana", "killed before it was judged")
    [work] = find_work(_request(lake))
    assert (work.survey, work.digest) == (survey, digest)
    validate(lake, survey, digest)  # the same verdict, but given after the request
    assert find_work(_request(lake)) == []


def _elsewhere(lake: Lake) -> str:
    """A file whose line numbers lie at bytes 9 and 21, dropped and held back by ingestion; the survey's name."""
    made = _survey()
    live = np.argwhere(made.live_IX)
    file = draft((24, 26, 40)).take(live[:, 0] * 26 + live[:, 1])
    file.samples = made.amplitude_IXZ[made.live_IX]
    file.headers["at_9"], file.headers["at_21"] = file.headers["inline"].copy(), file.headers["crossline"].copy()
    file.headers["inline"], file.headers["crossline"] = np.zeros_like(live[:, 0]), np.zeros_like(live[:, 0])
    lake.write("incoming/Block A.sgy", file.to_bytes())
    [arrival] = discover(lake)
    result = ingest_arrival(lake, arrival)
    assert result.status == "held"
    return result.survey


def test_a_mended_spec_takes_the_files_in_again(lake: Lake, tmp_path: Path) -> None:
    survey = _elsewhere(lake)
    [report] = reports(lake)
    assert [way.command for way in report.ways] == [
        f"survey release {survey} --lake {lake.uri} --spec SPEC.yaml --by YOUR-NAME --reason 'WHY'"
    ]
    spec = tmp_path / "mended.yaml"
    spec.write_text("inline_byte: 9\ncrossline_byte: 17\n")
    wrong = _release(lake, survey, "--spec", str(spec), *BY)
    assert wrong.exit_code == 1
    assert "still held back" in wrong.output
    assert digests(lake, survey) == []
    spec.write_text("inline_byte: 9\ncrossline_byte: 21\n")
    right = _release(lake, "Block A", "--spec", str(spec), *BY)
    assert right.exit_code == 0, right.output
    [manifest] = digests(lake, survey)
    verdict = load_verdict(lake, survey, manifest.digest)
    assert verdict is not None
    assert verdict.status == "passed"
    request = load_request(lake, survey, manifest.digest)
    assert request is not None
    assert (request.by, request.accept) == ("Ana Ruiz", [])
    assert lake.exists(verdict_key(survey, manifest.digest))
    nothing = _release(lake, survey, *BY)
    assert "is held back" in nothing.output
    assert nothing.exit_code == 1


def test_slips_are_told_and_write_nothing(lake: Lake, tmp_path: Path) -> None:
    survey = _elsewhere(lake)
    held = ", ".join(f.code for f in reports(lake)[0].findings if f.severity == "hold")
    before = {entry.key for entry in lake.objects()}
    bad = tmp_path / "bad.yaml"
    bad.write_text("inline_bite: 9\n")
    slips = {
        ("nowhere", *BY): "no survey 'nowhere'",
        (survey, *BY): f"held back before it was converted ({held})",
        (survey, "--accept", "no-such-code", *BY): f"unknown code 'no-such-code'; {survey} is held back for {held}",
        (survey, "--accept", held.split(", ")[0], *BY): "cannot be accepted",
        (survey, "--accept", "survey-sparse", *BY): "only a warning",
        (survey, "--accept", "line-gain", *BY): "line-gain was not found",
        (survey, "--spec", str(bad), *BY): "inline_bite",
        (survey, "--spec", str(tmp_path / "none.yaml"), *BY): "does not exist",
    }
    for arguments, message in slips.items():
        result = _release(lake, *arguments)
        assert result.exit_code == 1, arguments
        assert message in result.output.replace("\n", " "), arguments
    assert {entry.key for entry in lake.objects()} == before


def test_files_that_have_gone_are_told(lake: Lake, tmp_path: Path) -> None:
    survey = _elsewhere(lake)
    lake.delete(["incoming/Block A.sgy"])
    spec = tmp_path / "mended.yaml"
    spec.write_text("inline_byte: 9\ncrossline_byte: 21\n")
    result = _release(lake, survey, "--spec", str(spec), *BY)
    assert result.exit_code == 1
    assert "Block A.sgy does not exist, though the report names it" in result.output
    with pytest.raises(FileNotFoundError):
        lake.read("incoming/Block A.sgy")
