"""What is measured is true, and what is compared is told apart; nothing here needs Great Expectations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from facts_like import facts_like
from generated_volumes import changed, clean_survey, long_survey, publish, under_water, with_agc

from ingestion.lake import Lake
from ingestion.manifest import Manifest, manifest_key
from ingestion.spec import SurveySpec
from validation.amplitudes import measure
from validation.drift import drift, frozen_facts
from validation.facts import Facts, bin_sizes, facts_key, facts_of
from validation.overlap import neighbours, overlap
from validation.traces import first_event_phase, gain_variation
from validation.volume import PublishedVolume


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Manifest]:
    return publish(tmp_path_factory.mktemp("facts"), long_survey())


def test_the_facts_are_those_of_the_samples(published: tuple[Lake, Manifest]) -> None:
    facts = facts_of(published[1], measure(PublishedVolume(*published)))
    survey = long_survey()
    traces_NZ = survey.amplitude_IXZ[survey.live_IX].astype(np.float64)
    scaling = published[1].normalisation
    normal = np.clip((traces_NZ - scaling.centre) / scaling.scale, -scaling.clip, scaling.clip).ravel()
    standard = (normal - normal.mean()) / normal.std()
    assert facts.skewness == pytest.approx(np.mean(standard**3), rel=1e-6)
    assert facts.kurtosis == pytest.approx(np.mean(standard**4), rel=1e-6)
    assert (facts.interval, facts.start, facts.extent) == (4.0, 0.0, 479 * 4.0)
    assert facts.bins == pytest.approx((25, 25), abs=0.001)
    assert facts.spectrum is not None
    assert sum(facts.spectrum) == pytest.approx(1)
    spectrum = np.square(np.abs(np.fft.rfft(traces_NZ - traces_NZ.mean(axis=1, keepdims=True), axis=1))).sum(axis=0)
    frequencies = np.linspace(0, 125, len(spectrum))
    assert facts.spectrum[6] == pytest.approx(
        spectrum[(frequencies >= 30) & (frequencies < 35)].sum() / spectrum.sum(), abs=0.02
    )
    assert facts.centre == pytest.approx(np.average(frequencies, weights=spectrum), rel=1e-6)
    assert 22 < (facts.dominant or 0) < 38  # a Ricker wavelet of 30 Hz, attenuated
    assert Facts.model_validate_json(facts.to_bytes()) == facts


def test_small_blocks_give_the_same_facts(published: tuple[Lake, Manifest], monkeypatch: pytest.MonkeyPatch) -> None:
    volume = PublishedVolume(*published)
    at_once = facts_of(published[1], measure(volume))
    monkeypatch.setattr("validation.volume._READ_BYTES", 4 * 128 * 480 * 5)
    monkeypatch.setattr("validation.volume._BLOCK_SAMPLES", 128 * 480 * 3)
    shapes = {block.amplitude_IXZ.shape[0] for block in volume.blocks()}
    assert shapes == {1, 2, 3}  # 4, 4 and 2 lines read, 3 at once handed on
    piecewise = facts_of(published[1], measure(volume))
    assert _rounded(piecewise) == _rounded(at_once)


def test_of_long_traces_fewer_are_kept(published: tuple[Lake, Manifest], monkeypatch: pytest.MonkeyPatch) -> None:
    lake, manifest = published
    monkeypatch.setattr("validation.amplitudes._KEPT_SAMPLES", 10 * manifest.sample.count + 1)
    assert 5 <= len(measure(PublishedVolume(lake, manifest)).kept_NZ) <= 10


def _rounded(facts: Facts) -> object:
    return json.loads(facts.model_dump_json(), parse_float=lambda text: f"{float(text):.9g}")


def test_repeated_traces_are_counted_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survey = clean_survey()
    amplitude = survey.amplitude_IXZ.copy()
    both = survey.live_IX[10] & survey.live_IX[25]
    amplitude[25, both] = amplitude[10, both]
    monkeypatch.setattr("validation.volume._BLOCK_SAMPLES", 1)
    found = measure(PublishedVolume(*publish(tmp_path, changed(amplitude_IXZ=amplitude))))
    assert found.repeated_share == pytest.approx(both.sum() / survey.live_IX.sum())


def test_depth_is_measured_in_metres(tmp_path: Path) -> None:
    spec = SurveySpec(domain="depth", depth_unit="ft", sample_interval=10, first_sample=100)
    lake, manifest = publish(tmp_path, long_survey(), spec)
    facts = facts_of(manifest, measure(PublishedVolume(lake, manifest)))
    assert (facts.interval, facts.start) == pytest.approx((3.048, 30.48))
    assert facts.frequency_unit == "cycles/km"
    assert facts.centre_over_nyquist is not None
    assert facts.centre == pytest.approx(facts.centre_over_nyquist * 1000 / 3.048 / 2)


@pytest.mark.parametrize("gate", [25, 63, 125])  # 100 to 500 ms
def test_automatic_gain_control_evens_out_the_traces(gate: int) -> None:
    survey = long_survey()
    after = with_agc(gate).amplitude_IXZ[survey.live_IX]
    assert (gain_variation(survey.amplitude_IXZ[survey.live_IX], 8.7) or 0) > 0.25
    assert (gain_variation(after, 8.7) or 1) < 0.2


@pytest.mark.parametrize("phase", [0, 60, 90, -90, 135])
def test_the_phase_of_the_water_bottom_is_measured(phase: float) -> None:
    survey = under_water(phase)
    measured = first_event_phase(survey.amplitude_IXZ[survey.live_IX], 8.7)
    assert measured == pytest.approx(phase, abs=25)


def test_without_a_quiet_top_no_phase_is_guessed() -> None:
    survey = long_survey()
    assert first_event_phase(survey.amplitude_IXZ[survey.live_IX], 8.7) is None


def test_drift_is_measured_to_the_nearest_survey() -> None:
    frozen = [facts_like("wide", bins=(50, 50)), facts_like("fine", bins=(12.5, 12.5)), facts_like("other")]
    row = drift(facts_like("new", bins=(37.5, 37.5)), frozen, 3).iloc[0]
    assert row["bin_size"] == pytest.approx(50 / 37.5)
    assert (row["bin_size_nearest"], row["bin_size_low"], row["bin_size_high"]) == ("wide", 12.5, 50)
    assert row["spectrum"] == 0
    assert row["tails"] == 1


def test_with_few_surveys_frozen_nothing_is_said() -> None:
    frozen = [facts_like(f"known-{n}") for n in range(4)]
    in_depth = facts_like("deep", domain="depth", frequency_unit="cycles/km", interval=5.0)
    assert drift(facts_like("odd", interval=0.1), frozen, 5).isna().all(axis=None)
    row = drift(facts_like("odd", interval=0.1, kurtosis=50), [*frozen, in_depth], 5).iloc[0]
    assert row["interval"] is None  # milliseconds say nothing beside metres
    assert row["tails"] > 10


def test_the_newest_data_set_is_compared_with(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    for name in ("old", "known", "unmeasured", "itself"):
        if name != "unmeasured":
            lake.write(facts_key(name, "0" * 64), facts_like(name).to_bytes())
    for week, names in {
        "2026-W49": ["old"],
        "2027-W02": ["known", "unmeasured", "itself"],
        "2027-W03-0a1b2c3d": ["old"],
    }.items():
        entries = [{"survey": name, "digest": "0" * 64, "weight": 1.0} for name in names]
        lake.write(f"datasets/{week}.json", json.dumps({"week": week, "surveys": entries}).encode())
    assert [facts.survey for facts in frozen_facts(lake, but="itself")] == ["known"]


def _moved(manifest: Manifest, name: str, share: float, crs: str | None = None) -> Manifest:
    """``manifest`` as another survey, moved along the inlines by ``share`` of its length."""
    grid = manifest.geometry
    shift = np.array(grid.inline_vector) * manifest.inline.count * share
    polygon = [(x + float(shift[0]), y + float(shift[1])) for x, y in grid.polygon]
    moved = grid.model_copy(update={"polygon": polygon, "origin": (grid.origin[0] + 1, grid.origin[1]), "crs": crs})
    return manifest.model_copy(update={"survey": name, "geometry": moved})


def test_overlap_is_the_share_of_this_survey(published: tuple[Lake, Manifest], tmp_path: Path) -> None:
    lake, manifest = Lake(str(tmp_path)), published[1]
    for known in (
        manifest,  # itself
        _moved(manifest, "same-ground", 0),
        _moved(manifest, "half", 0.5),
        _moved(manifest, "beside", 1.2),
        _moved(manifest, "elsewhere", 0, crs="EPSG:32631"),
    ):
        lake.write(manifest_key(known.survey, known.digest), known.to_bytes())
    frame = overlap(manifest, neighbours(lake, manifest))
    assert list(frame["survey"]) == ["same-ground", "half"]
    assert frame["share"].iloc[0] == 1
    assert frame["share"].iloc[1] == pytest.approx(0.47, abs=0.08)  # edges wander


def test_without_coordinates_nothing_overlaps(tmp_path: Path) -> None:
    nowhere = np.zeros(clean_survey().live_IX.shape)
    lake, manifest = publish(tmp_path, changed(x_IX=nowhere, y_IX=nowhere))
    other = manifest.model_copy(update={"survey": "other"})
    lake.write(manifest_key(other.survey, other.digest), other.to_bytes())
    assert bin_sizes(manifest) is None
    assert neighbours(lake, manifest) == []
    assert overlap(manifest, [])["survey"].isna().all()
