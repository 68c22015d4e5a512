"""FLOPs are those of the model, and knowing them costs no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seismic_model.config import MODEL_SIZES
from seismic_model.planner import flops_per_sample
from seismic_model.planner.flops import tokens_of

LARGE = (1536, 1536, 2048)


def test_the_published_windows_have_the_published_tokens() -> None:
    huge = MODEL_SIZES["huge"]
    assert tokens_of(huge, (640, 640, 1024), 0.25).whole == 102_400
    assert tokens_of(huge, LARGE, 0.25).whole == 1_179_648


def test_a_large_crop_costs_what_was_worked_out_by_hand() -> None:
    """24 N W² + 4 N² W a block forward, three times that with backward; embedding and head are below 1 %."""
    visible, whole = 294_912, 1_179_648
    encoder = 32 * (24 * visible * 1280**2 + 4 * visible**2 * 1280)
    decoder = 8 * (24 * whole * 512**2 + 4 * whole**2 * 512)
    huge = MODEL_SIZES["huge"].model_copy(update={"decoder": "self", "registers": 0})
    assert flops_per_sample(huge, LARGE, 0.25, 1.0) == pytest.approx(3 * (encoder + decoder), rel=0.01)


def test_a_window_that_the_patch_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="not a positive multiple"):
        flops_per_sample(MODEL_SIZES["huge"], (100, 64, 64), 0.25, 1.0)


def test_the_arithmetic_needs_no_torch() -> None:
    code = "import sys, seismic_model.planner, seismic_model.planner.flops; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
