"""Features of a window that several processes share are those of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from features_worker import SIZES, encoder, features
from safetensors.torch import load_file

from seismic_model.model.vit import full_attention

WORKER = Path(__file__).parent / "features_worker.py"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    done = subprocess.run(
        [sys.executable, str(WORKER), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("processes", SIZES)
def test_features_do_not_depend_on_how_many_share_the_window(shared: Path, processes: int) -> None:
    whole = features(encoder(), 0, 1, full_attention)
    parts = [load_file(shared / f"{processes}-{rank}.safetensors") for rank in range(processes)]
    found = torch.cat([part["features"] for part in parts], dim=1)
    torch.testing.assert_close(found, whole["features"], rtol=0, atol=1e-12)
    gradient = sum(part["gradient"] for part in parts)
    torch.testing.assert_close(gradient, whole["gradient"], rtol=1e-10, atol=1e-12)
