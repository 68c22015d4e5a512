"""What the ingestion publishes is what the reader reads, from SEG-Y to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.synthetic import BASINS, make_survey, write_segy
from seismic_model.data.store import SurveyVolume


def test_an_ingested_survey_reads_back_as_it_was_made(lake: Lake, tmp_path: Path) -> None:
    survey = make_survey(BASINS["deltaic"], seed=1, shape=(40, 36, 64))
    write_segy(survey, tmp_path / "made.sgy")
    manifest = ingest((tmp_path / "made.sgy").as_uri(), lake).manifest
    assert manifest is not None

    volume = SurveyVolume(lake, manifest)
    lines = np.ix_(  # edges without a trace are not part of the grid
        np.searchsorted(survey.inlines, manifest.inline.values()),
        np.searchsorted(survey.crosslines, manifest.crossline.values()),
    )
    live_IX, amplitude_IXZ = survey.live_IX[lines], survey.amplitude_IXZ[lines]
    assert np.array_equal(volume.live_IX, live_IX)
    whole = [edge for count in manifest.shape for edge in (0, count)]
    expected = np.where(live_IX[:, :, None], amplitude_IXZ, np.nan)
    assert np.array_equal(volume.read(*whole), expected, equal_nan=True)

    values, live = volume.normalised(*whole)
    inside = live & (np.abs(values) < manifest.normalisation.clip)
    restored = values.astype(np.float64) * manifest.normalisation.scale + manifest.normalisation.centre
    np.testing.assert_allclose(restored[inside], expected[inside], rtol=1e-5, atol=1e-5 * manifest.normalisation.scale)
    assert inside.sum() > 0.99 * live.sum()
