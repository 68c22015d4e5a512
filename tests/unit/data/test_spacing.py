"""Voxels of a survey beside the reference, axis by axis and in the survey's own domain."""

from __future__ import annotations

import pytest
from published import manifest_of

from seismic_model.config import ReferenceSpacing
from seismic_model.data.spacing import relative_spacing

REFERENCE = ReferenceSpacing(inline_m=25, crossline_m=50, time_ms=4, depth_m=10)
TURNED = manifest_of("turned", (8, 8, 8), inline_vector=(30.0, 40.0), crossline_vector=(-20.0, 15.0))


def test_each_axis_is_held_against_its_own_reference() -> None:
    assert relative_spacing(TURNED, REFERENCE) == pytest.approx((50 / 25, 25 / 50, 1.0))
    half = TURNED.model_copy(update={"sample": TURNED.sample.model_copy(update={"step": 2})})
    assert relative_spacing(half, REFERENCE)[2] == pytest.approx(0.5)


@pytest.mark.parametrize(("unit", "metres"), [("m", 5.0), ("ft", 1.524)])
def test_depth_is_held_against_metres(unit: str, metres: float) -> None:
    sample = TURNED.sample.model_copy(update={"step": 5, "unit": unit})
    deep = TURNED.model_copy(update={"domain": "depth", "sample": sample})
    assert relative_spacing(deep, REFERENCE)[2] == pytest.approx(metres / 10)


def test_without_a_reference_all_voxels_are_alike() -> None:
    assert relative_spacing(TURNED, None) == (1.0, 1.0, 1.0)
