"""The survey maker: seeded, geologically ordered, and written as SEG-Y that another reader understands."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import segyio
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ingestion.synthetic import BASINS, Basin, SyntheticSurvey, make_survey, write_segy

SMALL = (40, 48, 64)
each_basin = pytest.mark.parametrize("basin", BASINS.values(), ids=lambda basin: basin.name)


def _same(a: SyntheticSurvey, b: SyntheticSurvey) -> bool:
    return all(
        np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(SyntheticSurvey)
    )


@each_basin
def test_seed_decides_everything(basin: Basin) -> None:
    first = make_survey(basin, 7, SMALL)
    assert _same(first, make_survey(basin, 7, SMALL))
    assert not np.array_equal(first.amplitude_IXZ, make_survey(basin, 8, SMALL).amplitude_IXZ)


@each_basin
def test_live_bins_carry_the_basins_amplitude_and_have_irregular_edges(basin: Basin) -> None:
    survey = make_survey(basin, 3, (96, 96, 64))
    live = survey.amplitude_IXZ[survey.live_IX]
    assert np.sqrt(np.mean(live.astype(float) ** 2)) == pytest.approx(basin.amplitude, rel=1e-3)
    assert (np.abs(live).max(axis=1) > 0).all()
    assert not survey.amplitude_IXZ[~survey.live_IX].any()
    assert not survey.fault_IXZ[~survey.recorded_IX].any()
    assert 0.75 < survey.recorded_IX.mean() < 0.95
    assert len({tuple(np.flatnonzero(row)[[0, -1]]) for row in survey.recorded_IX if row.any()}) > 4  # edges wander
    assert 0 < (survey.recorded_IX & ~survey.live_IX).sum() < 0.02 * survey.recorded_IX.sum()


def test_basins_differ_in_band_as_their_geology_says() -> None:
    centroids = {}
    for basin in BASINS.values():
        survey = make_survey(basin, 1, (48, 48, 128))
        power = (np.abs(np.fft.rfft(survey.amplitude_IXZ[survey.live_IX], axis=1)) ** 2).mean(axis=0)
        hertz = np.fft.rfftfreq(128, basin.sample_interval_ms / 1000)
        centroids[basin.name] = (power * hertz).sum() / power.sum()
        assert centroids[basin.name] == pytest.approx(basin.frequency, rel=0.35)
    assert centroids["carbonate_shelf"] > 1.3 * centroids["deltaic"] > 1.3 * centroids["salt_flank"]


def _amplitude_spectrum(survey: SyntheticSurvey, samples: slice) -> np.ndarray:
    traces = survey.amplitude_IXZ[survey.live_IX][:, samples]
    return np.sqrt((np.abs(np.fft.rfft(traces * np.hanning(traces.shape[1]), axis=1)) ** 2).mean(axis=0))


def test_high_frequencies_fade_with_travel_time_as_q_says() -> None:
    lossy = dataclasses.replace(BASINS["faulted_rift"], quality=40.0, noise=0.0)
    lossless = dataclasses.replace(lossy, quality=1e9)
    window = slice(128, 256)
    faded, whole = (_amplitude_spectrum(make_survey(basin, 2, (32, 32, 256)), window) for basin in (lossy, lossless))
    hertz = np.fft.rfftfreq(128, lossy.sample_interval_ms / 1000)
    band = (hertz > 8) & (hertz < 45)
    slope = np.polyfit(hertz[band], np.log(faded / whole)[band], 1)[0]
    seconds = 192 * lossy.sample_interval_ms / 1000
    assert slope == pytest.approx(-np.pi * seconds / lossy.quality, rel=0.15)


def test_fault_labels_lie_where_layers_break() -> None:
    vertical = dataclasses.replace(
        BASINS["faulted_rift"], noise=0.0, fault_strike=(88.0, 92.0), fault_dip=(84.0, 86.0), fault_listric=0.0
    )
    survey = make_survey(vertical, 2, (96, 64, 96))
    left, right = survey.amplitude_IXZ[:-1], survey.amplitude_IXZ[1:]
    live = (survey.live_IX[:-1] & survey.live_IX[1:])[:, :, None]
    labelled = (survey.fault_IXZ[:-1] | survey.fault_IXZ[1:]) & live
    whole = live & ~labelled
    assert labelled.sum() > 1000
    jump = np.abs(left - right)
    assert jump[labelled].mean() > 3 * jump[whole].mean()


def _span(survey: SyntheticSurvey) -> tuple[np.ndarray, np.ndarray]:
    corners = np.ix_([0, -1], [0, -1])
    points = np.stack([survey.x_IX[corners].ravel(), survey.y_IX[corners].ravel()])
    return points.min(axis=1), points.max(axis=1)


def test_basins_lie_apart_and_seeds_of_one_basin_side_by_side() -> None:
    for one, other in itertools.combinations(BASINS.values(), 2):
        assert np.hypot(*np.subtract(one.corner, other.corner)) > 100_000
    basin = BASINS["carbonate_shelf"]  # azimuth 0, so blocks are boxes in easting and northing
    boxes = [_span(make_survey(basin, seed, (32, 32, 8))) for seed in range(10)]
    for (low_a, high_a), (low_b, high_b) in itertools.combinations(boxes, 2):
        assert (high_a < low_b).any() or (high_b < low_a).any()
    gaps = [np.linalg.norm(boxes[seed + 1][0] - boxes[seed][0]) for seed in range(7)]
    assert max(gaps) < 60 * basin.inline_bin


def test_azimuth_and_bins_give_the_coordinates() -> None:
    survey = make_survey(dataclasses.replace(BASINS["deep_water"], azimuth=90.0), 0, SMALL, origin=(1000.0, 2000.0))
    assert (survey.x_IX[0, 0], survey.y_IX[0, 0]) == (1000, 2000)
    assert (survey.x_IX[2, 0], survey.y_IX[2, 0]) == (1000 + 2 * 18.75, 2000)  # east
    assert (survey.x_IX[0, 3], survey.y_IX[0, 3]) == (1000, 2000 - 3 * 12.5)  # crosslines to the right: south


@pytest.mark.parametrize("sample_format", ["ibm", "ieee"])
@pytest.mark.parametrize("endian", ["big", "little"])
@pytest.mark.parametrize("name", ["deep_water", "deltaic"])
def test_segyio_reads_what_was_written(
    tmp_path: Path, sample_format: Literal["ibm", "ieee"], endian: Literal["big", "little"], name: str
) -> None:
    survey = make_survey(BASINS[name], 4, SMALL)
    path = tmp_path / "survey.sgy"
    write_segy(survey, path, sample_format, endian)
    i, x = np.nonzero(survey.recorded_IX)
    with segyio.open(path, strict=False, endian=endian) as file:
        assert np.array_equal(file.trace.raw[:], survey.amplitude_IXZ[i, x])
        assert np.array_equal(file.samples, survey.delay_ms + survey.sample_interval_ms * np.arange(SMALL[2]))
        field = segyio.TraceField
        assert np.array_equal(file.attributes(field.INLINE_3D)[:], survey.inlines[i])
        assert np.array_equal(file.attributes(field.CROSSLINE_3D)[:], survey.crosslines[x])
        assert np.allclose(file.attributes(field.CDP_X)[:] / 100, survey.x_IX[i, x], atol=1e-9)
        assert np.allclose(file.attributes(field.CDP_Y)[:] / 100, survey.y_IX[i, x], atol=1e-9)
        assert set(file.attributes(field.SourceGroupScalar)[:]) == {-100}
        assert np.array_equal(file.attributes(field.TraceIdentificationCode)[:] == 1, survey.live_IX[i, x])
        assert file.bin[segyio.BinField.SEGYRevision] in (1, 0x100)  # segyio releases differ
        assert file.bin[segyio.BinField.Format] == {"ibm": 1, "ieee": 5}[sample_format]
        assert f"BASIN {name.upper()}".encode() in bytes(file.text[0])


@pytest.fixture(scope="module")
def template() -> SyntheticSurvey:
    return make_survey(BASINS["deltaic"], 0, (8, 8, 16))


@given(
    values=hnp.arrays(
        np.float32, 16, elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False, allow_nan=False)
    )
)
def test_ibm_floats_are_the_nearest_ones(
    values: np.ndarray, template: SyntheticSurvey, tmp_path_factory: pytest.TempPathFactory
) -> None:
    amplitude = np.broadcast_to(values, template.amplitude_IXZ.shape)
    path = tmp_path_factory.mktemp("ibm") / "survey.sgy"
    write_segy(dataclasses.replace(template, amplitude_IXZ=amplitude), path)
    with segyio.open(path, strict=False) as file:
        read = file.trace.raw[0]
    tiny = np.abs(values) < 1e-36  # segyio flushes what float32 holds only as subnormal
    assert np.allclose(read[~tiny], values[~tiny], rtol=2.0**-21, atol=0)


@pytest.mark.parametrize(("seed", "shape"), [(-1, (16, 16, 16)), (0, (16, 4, 16))])
def test_unusable_arguments_are_named(seed: int, shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="expected a seed of at least 0 and at least 8"):
        make_survey(BASINS["deltaic"], seed, shape)
