"""Each expectation has a survey that only it catches; surveys without fault pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import yaml
from facts_like import facts_like
from generated_volumes import (
    SHAPE,
    Tampered,
    changed,
    clean_survey,
    gained,
    publish,
    under_water,
    with_agc,
)

from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.manifest import Finding, Manifest
from ingestion.preflight.geometry import BIN_SIZES
from ingestion.preflight.inspection import inspect
from ingestion.source import open_source
from ingestion.spec import SurveySpec
from ingestion.synthetic import BASINS, Basin, SyntheticSurvey, make_survey, write_segy
from validation.checks import examine
from validation.drift import drift
from validation.expectations import Session
from validation.headers import header_parts, headers
from validation.rules import Suites, load
from validation.tally import Tally
from validation.volume import PublishedVolume

CODES = {rule.code: rule for table in load().tables.values() for rule in table.expectations}
TRACE_BYTES = 240 + 4 * SHAPE[2]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """A lake with one published survey without fault; copy before changing it."""
    folder = tmp_path_factory.mktemp("clean")
    _, manifest = publish(folder, clean_survey())
    return folder / "lake", manifest


# Surveys that ingestion takes as they are ------------------------------------------------------------------------


def coordinates_missing() -> SyntheticSurvey:
    nowhere = np.zeros(SHAPE[:2])
    return changed(x_IX=nowhere, y_IX=nowhere)


def _laid_out(inline_step: tuple[float, float], crossline_step: tuple[float, float]) -> SyntheticSurvey:
    i, x = np.meshgrid(np.arange(SHAPE[0]), np.arange(SHAPE[1]), indexing="ij")
    east, north = (300_000 + i * inline_step[0] + x * crossline_step[0], 400_000 + i * inline_step[1])
    return changed(x_IX=east, y_IX=north + x * crossline_step[1])


def bins_elongated() -> SyntheticSurvey:
    return _laid_out((0, 150), (12.5, 0))


def grid_not_orthogonal() -> SyntheticSurvey:
    return _laid_out((0, 25), (20, 15))


def grid_mirrored() -> SyntheticSurvey:
    return _laid_out((0, 25), (-25, 0))


def survey_sparse() -> SyntheticSurvey:
    i, x = np.meshgrid(np.arange(SHAPE[0]), np.arange(SHAPE[1]), indexing="ij")
    band = clean_survey().live_IX & (abs(i - x) < 3)
    return changed(live_IX=band, recorded_IX=band)


def line_gain() -> SyntheticSurvey:
    amplitude = clean_survey().amplitude_IXZ.copy()
    amplitude[10] *= 64
    return changed(amplitude_IXZ=amplitude)


def normalisation_implausible() -> SyntheticSurvey:
    survey = clean_survey()
    amplitude = survey.amplitude_IXZ.copy()
    burst = np.float32(1e5) * np.sin(2 * np.pi * np.arange(12) / 8) * np.hanning(12)
    for i, live_X in enumerate(survey.live_IX):  # one on every inline, so that no line stands out
        if live_X.any():
            amplitude[i, np.flatnonzero(live_X)[live_X.sum() // 2], 20:32] += burst
    return changed(amplitude_IXZ=amplitude)


def amplitudes_not_centred() -> SyntheticSurvey:
    survey = clean_survey()
    return changed(amplitude_IXZ=np.where(survey.live_IX[:, :, None], survey.amplitude_IXZ + 2, 0).astype(np.float32))


def amplitudes_clipped() -> SyntheticSurvey:
    return changed(amplitude_IXZ=np.clip(clean_survey().amplitude_IXZ, -1.5, 1.5))


def mostly_zero() -> SyntheticSurvey:
    amplitude = clean_survey().amplitude_IXZ.copy()
    amplitude[:, :, :30] = 0
    return changed(amplitude_IXZ=amplitude)


def traces_repeated() -> SyntheticSurvey:
    survey = clean_survey()
    amplitude = survey.amplitude_IXZ.copy()
    both = survey.live_IX[10] & survey.live_IX[11] & survey.live_IX[12]
    amplitude[11:13, both] = amplitude[10, both]
    return changed(amplitude_IXZ=amplitude)


def band_implausible() -> SyntheticSurvey:
    alternating = np.where(np.arange(SHAPE[2]) % 2, -1, 1).astype(np.float32)
    return changed(amplitude_IXZ=clean_survey().amplitude_IXZ * alternating)


def no_lateral_continuity() -> SyntheticSurvey:
    survey = clean_survey()
    amplitude = survey.amplitude_IXZ.copy()
    shifts = np.random.default_rng(0).integers(0, SHAPE[2], survey.live_IX.sum())
    traces = amplitude[survey.live_IX]
    amplitude[survey.live_IX] = np.stack([np.roll(trace, n) for trace, n in zip(traces, shifts, strict=True)])
    return changed(amplitude_IXZ=amplitude)


def gain_flat() -> SyntheticSurvey:
    return with_agc(63)


def gain_decays() -> SyntheticSurvey:
    return gained(np.exp(-np.arange(480) / 80))


def gain_step() -> SyntheticSurvey:
    return gained(np.where(abs(np.arange(480) - 240) < 80, 15, 1))


def policy_interval_time() -> SyntheticSurvey:
    return changed(sample_interval_ms=10)


def policy_bin_short() -> SyntheticSurvey:
    return _laid_out((0, 1.5), (1.5, 0))


def policy_bin_long() -> SyntheticSurvey:
    return _laid_out((0, 250), (250, 0))


INGESTED: dict[str, Callable[[], SyntheticSurvey]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        coordinates_missing,
        bins_elongated,
        grid_not_orthogonal,
        grid_mirrored,
        survey_sparse,
        line_gain,
        normalisation_implausible,
        amplitudes_not_centred,
        amplitudes_clipped,
        mostly_zero,
        traces_repeated,
        band_implausible,
        no_lateral_continuity,
        gain_flat,
        gain_decays,
        gain_step,
        policy_interval_time,
        policy_bin_short,
        policy_bin_long,
    )
}


@pytest.mark.parametrize("code", INGESTED)
def test_only_this_expectation_catches_the_generated_survey(code: str, tmp_path: Path) -> None:
    lake, manifest = publish(tmp_path, INGESTED[code]())
    _expect_only(code, lake, manifest)


SIZES = {  # sides of a bin, whether ingestion and validation doubt them, and what the policy says of them
    (0.3, 0.4): (True, ["policy-bin-short"]),
    (0.3, 0.6): (False, ["policy-bin-short"]),
    (25.0, 100.0): (False, []),
    (120.0, 600.0): (False, ["policy-bin-long"]),
    (600.0, 2500.0): (True, ["policy-bin-long"]),
}


@pytest.mark.parametrize("size", SIZES)
def test_ingestion_and_validation_doubt_the_same_bins(size: tuple[float, float], tmp_path: Path) -> None:
    """Naming the unit ends the doubt in both; whether a data set may mix such bins is asked all the same."""
    doubted, asked = SIZES[size]
    lake, manifest = publish(tmp_path, _laid_out((0, size[0]), (size[1], 0)), SurveySpec(coordinate_unit="m"))
    file = open_source(str(tmp_path / "incoming" / "survey.sgy"))
    assert [finding.code for finding in inspect([file], SurveySpec()).findings] == ["bin-size-implausible"] * doubted

    def codes(spec: dict[str, object]) -> list[str]:
        judged = manifest.model_copy(update={"spec": spec})
        return [finding.code for finding in examine(lake, judged, Session(load(), judged))[0]]

    assert codes(manifest.spec) == asked
    assert codes(manifest.spec | {"coordinate_unit": None}) == ["bin-size-implausible"] * doubted + asked


def test_bins_have_the_limits_of_ingestion() -> None:
    arguments = CODES["bin-size-implausible"].arguments
    assert (arguments["min_value"], arguments["max_value"]) == BIN_SIZES


def test_only_the_crs_catches_eastings_beyond_its_zone(tmp_path: Path) -> None:
    survey = clean_survey()
    far = changed(x_IX=survey.x_IX + 3_000_000)
    lake, manifest = publish(tmp_path, far, SurveySpec(crs="EPSG:32631"))
    _expect_only("coordinates-outside-crs", lake, manifest)


@pytest.mark.parametrize(("phase", "polarity"), [(180, "normal"), (0, "reverse"), (160, "normal")])
def test_a_polarity_other_than_declared_is_said(phase: float, polarity: Literal["normal"], tmp_path: Path) -> None:
    lake, manifest = publish(tmp_path, under_water(phase), SurveySpec(polarity=polarity))
    finding = _expect_only("polarity-differs", lake, manifest)
    assert f"declared {polarity}" in finding.found


@pytest.mark.parametrize("polarity", ["normal", "unknown"])
def test_a_rotated_wavelet_is_said(polarity: Literal["normal"], tmp_path: Path) -> None:
    lake, manifest = publish(tmp_path, under_water(90), SurveySpec(polarity=polarity))
    _expect_only("phase-rotated", lake, manifest)


@pytest.mark.parametrize(("phase", "polarity"), [(0, "normal"), (180, "reverse"), (180, "unknown"), (25, "normal")])
def test_a_wavelet_as_declared_is_silent(phase: float, polarity: Literal["normal"], tmp_path: Path) -> None:
    lake, manifest = publish(tmp_path, under_water(phase), SurveySpec(polarity=polarity))
    assert examine(lake, manifest, Session(load(), manifest))[0] == []


def test_only_the_policy_catches_long_intervals_in_depth(tmp_path: Path) -> None:
    lake, manifest = publish(tmp_path, clean_survey(), SurveySpec(domain="depth", sample_interval=30))
    _expect_only("policy-interval-depth", lake, manifest)


def test_a_policy_of_one_domain_holds_back_the_other(tmp_path: Path) -> None:
    lake, manifest = publish(tmp_path, clean_survey(), SurveySpec(domain="depth", sample_interval=5))
    assert examine(lake, manifest, Session(load(), manifest))[0] == []
    suites = yaml.safe_load(load().model_dump_json())
    suites["tables"]["policy"]["expectations"][0]["arguments"]["value_set"] = ["time"]
    [finding], _ = examine(lake, manifest, Session(Suites.model_validate(suites), manifest))
    assert (finding.code, finding.severity, finding.found) == ("policy-domain", "hold", "samples are in depth")


def test_a_survey_of_the_same_ground_is_named(tmp_path: Path) -> None:
    lake, first = publish(tmp_path, clean_survey())
    again = tmp_path / "reprocessed.sgy"
    write_segy(changed(amplitude_IXZ=clean_survey().amplitude_IXZ * 2), again)
    manifest = ingest(str(again), lake).manifest
    assert manifest is not None
    finding = _expect_only("overlaps-known-survey", lake, manifest)
    assert f"{first.survey} covers 100% of this one" in finding.found


@pytest.mark.parametrize(
    ("code", "change"),
    {
        "drift-amplitudes": {"quantiles": {"5": -3.0, "25": -2.0, "50": 0.0, "75": 2.0, "95": 3.0}},
        "drift-tails": {"kurtosis": 30.0},
        "drift-spectrum": {"spectrum": [0.0] * 20 + [1.0] + [0.0] * 3, "centre": 102.5},
        "drift-bin-size": {"bins": (90.0, 80.0)},
        "drift-interval": {"interval": 0.5},
        "drift-extent": {"extent": 9000.0},
    }.items(),
)
def test_only_this_expectation_catches_the_drift(
    code: str, change: dict[str, Any], clean: tuple[Path, Manifest]
) -> None:
    frozen = [facts_like(f"known-{n}", interval=4.0 + n / 10) for n in range(load().limits.surveys_to_compare)]
    odd = facts_like("odd", **change)
    session = Session(load(), clean[1])
    [finding] = session.check("drift", drift(odd, frozen, len(frozen)))
    assert (finding.code, finding.severity) == (code, "warn")
    assert "known-" in finding.found
    assert "{" not in finding.found


def test_only_the_trace_id_catches_other_kinds_of_traces(tmp_path: Path) -> None:
    def hydrophones(content: bytearray) -> None:
        for trace in range(5):
            start = 3600 + trace * TRACE_BYTES + 28
            content[start : start + 2] = (11).to_bytes(2, "big")

    lake, manifest = publish(tmp_path, clean_survey(), patch=hydrophones)
    _expect_only("trace-id-unusual", lake, manifest)


# Volumes that were damaged, or written wrongly, after or by ingestion -------------------------------------------------


def object_damaged(volume: Tampered) -> None:
    volume.sign()
    chunk = max((p for p in volume.store.rglob("*") if p.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)


def object_unlisted(volume: Tampered) -> None:
    volume.sign()
    (volume.store / "amplitude" / "c" / "7").write_bytes(b"left over")


def _live_header(volume: Tampered, name: str, value: int) -> None:
    live = np.argwhere(volume.array("trace_mask")[...])[40]

    def change(headers: np.ndarray) -> None:
        headers[name][tuple(live)] = value

    volume.edit("headers", change)
    volume.sign()


def live_mask_differs(volume: Tampered) -> None:
    volume.update(live_traces=volume.manifest.live_traces + 1)


def live_trace_without_coordinates(volume: Tampered) -> None:
    live = tuple(np.argwhere(volume.array("trace_mask")[...])[40])

    def change(cdp_x: np.ndarray) -> None:
        cdp_x[live] = np.nan

    volume.edit("cdp_x", change)
    volume.sign()


def coordinates_off_grid(volume: Tampered) -> None:
    x, y = volume.manifest.geometry.origin
    volume.update_part("geometry", origin=(x + 30, y))


def outline_differs(volume: Tampered) -> None:
    polygon = [(x, min(y, volume.manifest.geometry.origin[1])) for x, y in volume.manifest.geometry.polygon]
    volume.update_part("geometry", polygon=polygon)


def non_finite_in_live_traces(volume: Tampered) -> None:
    i, x = np.argwhere(volume.array("trace_mask")[...])[40]

    def change(amplitude: np.ndarray) -> None:
        amplitude[i, x, 5] = np.inf

    volume.edit("amplitude", change)
    volume.sign()


def samples_in_dead_traces(volume: Tampered) -> None:
    i, x = np.argwhere(~volume.array("trace_mask")[...].astype(bool))[0]

    def change(amplitude: np.ndarray) -> None:
        amplitude[i, x] = 1.0

    volume.edit("amplitude", change)
    volume.sign()


def statistics_differ(volume: Tampered) -> None:
    volume.update_part("statistics", std=volume.manifest.statistics.std * 1.001)


DAMAGED: dict[str, Callable[[Tampered], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        object_damaged,
        object_unlisted,
        live_mask_differs,
        live_trace_without_coordinates,
        coordinates_off_grid,
        outline_differs,
        non_finite_in_live_traces,
        samples_in_dead_traces,
        statistics_differ,
    )
} | {
    "header-inline-differs": lambda volume: _live_header(volume, "inline", 7),
    "header-crossline-differs": lambda volume: _live_header(volume, "crossline", 7),
    "header-coordinates-differ": lambda volume: _live_header(volume, "cdp_x", 1234),
    "dead-trace-is-live": lambda volume: _live_header(volume, "trace_id_code", 2),
    "header-samples-differ": lambda volume: _live_header(volume, "samples_per_trace", 47),
    "header-interval-differs": lambda volume: _live_header(volume, "sample_interval", 2000),
    "header-start-differs": lambda volume: _live_header(volume, "delay_recording_time", 8),
}


@pytest.mark.parametrize("code", DAMAGED)
def test_only_this_expectation_catches_the_damaged_volume(
    code: str, clean: tuple[Path, Manifest], tmp_path: Path
) -> None:
    volume = Tampered.copy(*clean, tmp_path / "lake")
    DAMAGED[code](volume)
    _expect_only(code, volume.lake(), volume.manifest)


def test_a_missing_object_is_told_like_a_damaged_one(clean: tuple[Path, Manifest], tmp_path: Path) -> None:
    volume = Tampered.copy(*clean, tmp_path / "lake")
    (volume.store / "trace_mask" / "zarr.json").unlink()
    finding = _expect_only("object-damaged", volume.lake(), volume.manifest)
    assert finding.examples == ["key trace_mask/zarr.json"]


def test_every_hold_says_what_would_release_it() -> None:
    assert {code for code, rule in CODES.items() if rule.release} == {
        code for code, rule in CODES.items() if rule.severity == "hold"
    }


def test_every_expectation_has_its_survey() -> None:
    elsewhere = {
        "bin-size-implausible",
        "coordinates-outside-crs",
        "trace-id-unusual",
        "phase-rotated",
        "polarity-differs",
    }
    elsewhere |= {"policy-domain", "policy-interval-depth", "overlaps-known-survey"}
    drifts = {rule.code for rule in load().tables["drift"].expectations}
    assert {*INGESTED, *DAMAGED, *elsewhere, *drifts} == set(CODES)


def _expect_only(code: str, lake: Lake, manifest: Manifest) -> Finding:
    findings, _ = examine(lake, manifest, Session(load(), manifest))
    assert [finding.code for finding in findings] == [code]
    assert findings[0].severity == CODES[code].severity
    assert findings[0].found
    assert "{" not in findings[0].found
    return findings[0]


def test_counted_by_line_the_findings_are_the_same(clean: tuple[Path, Manifest], tmp_path: Path) -> None:
    def spoilt(headers: np.ndarray) -> None:
        headers["inline"][3:, 5:] += 1
        headers["crossline"][7, 9:12] = -3
        headers["cdp_x"][9:, 11] += 800
        headers["trace_id_code"][20:24] = 2
        headers["trace_id_code"][24:] = 9
        headers["samples_per_trace"][5, 8:30:2] = 47
        headers["sample_interval"][:, 20] = 2000
        headers["delay_recording_time"][12, 9:30] = 8

    volume = Tampered.copy(*clean, tmp_path / "lake")
    volume.edit("headers", spoilt)
    published = PublishedVolume(volume.lake(), volume.manifest)
    session, tally = Session(load(), volume.manifest), Tally(load().tables["headers"])
    for part in header_parts(published):
        tally.add(part)
    by_line = session.check_counts("headers", tally)
    assert by_line == Session(load(), volume.manifest).check("headers", headers(published))
    assert {finding.code for finding in by_line} == {rule.code for rule in load().tables["headers"].expectations}
    assert by_line[0].examples[0] == "inline 205, crossline 807"


def test_a_large_survey_is_counted_by_line(
    clean: tuple[Path, Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = Tampered.copy(*clean, tmp_path / "lake")
    _live_header(volume, "inline", 7)
    few = load().limits.model_copy(update={"rows_at_most": 100})
    monkeypatch.setattr("validation.checks.headers", None)  # rows are not made
    [finding], _ = examine(volume.lake(), volume.manifest, Session(load().model_copy(update={"limits": few}), clean[1]))
    assert finding.code == "header-inline-differs"


@pytest.mark.parametrize("basin", BASINS.values(), ids=lambda basin: basin.name)
def test_a_survey_without_fault_passes(basin: Basin, tmp_path: Path) -> None:
    lake, manifest = publish(tmp_path, make_survey(basin, 11, (24, 28, 512)))
    assert examine(lake, manifest, Session(load(), manifest))[0] == []


def test_line_numbers_are_read_where_the_spec_says(tmp_path: Path) -> None:
    def moved(content: bytearray) -> None:
        for start in range(3600, len(content), TRACE_BYTES):
            lines = content[start + 188 : start + 196]
            content[start + 188 : start + 196] = bytes(8)
            content[start + 8 : start + 12], content[start + 20 : start + 24] = lines[:4], lines[4:]

    lake, manifest = publish(tmp_path, clean_survey(), SurveySpec(inline_byte=9, crossline_byte=21), moved)
    assert examine(lake, manifest, Session(load(), manifest))[0] == []
