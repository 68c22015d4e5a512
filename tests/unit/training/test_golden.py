"""The losses of the tiny model are those of earlier versions: only a change that is meant to compute something else
may change them. Such a change renews the file, and says so:

    RENEW_GOLDEN=1 python -m pytest tests/unit/training/test_golden.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from planned import one_process, plan

from ingestion.lake import Lake
from seismic_model.config import MODEL_SIZES
from seismic_model.data.dataset import load_dataset
from seismic_model.training.loop import train
from seismic_model.training.metrics import read_metrics

FILE = Path(__file__).with_name("golden_losses.json")
TINY = MODEL_SIZES["tiny"]
KINDS: dict[str, dict[str, Any]] = {
    "self": {"model": TINY.model_copy(update={"decoder": "self"}), "decode_share": 1},
    "cross": {
        "model": TINY.model_copy(update={"decoder": "cross", "registers": 2}),
        "decode_share": 0.5,
        "activation_checkpointing": "selective",
        "accumulation": 2,
    },
}


def losses(folder: Path, **changes: Any) -> list[float]:
    config = plan(Lake(str(folder)), steps=8, **changes)
    with one_process() as mesh:
        train(config, Lake(config.lake), load_dataset(Lake(config.lake), config.dataset), mesh)
    entries = read_metrics(Lake(config.lake), config.run)
    assert [entry["step"] for entry in entries] == list(range(1, 9))
    return [entry["loss"] for entry in entries]


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_those_of_earlier_versions(tmp_path: Path, kind: str) -> None:
    accurate = losses(tmp_path / "float64", precision="float64", **KINDS[kind])
    if "RENEW_GOLDEN" in os.environ:
        stored = json.loads(FILE.read_text()) if FILE.exists() else {}
        FILE.write_text(json.dumps(stored | {kind: accurate}, indent=2) + "\n")
    golden = json.loads(FILE.read_text())[kind]
    assert accurate == pytest.approx(golden, rel=1e-9)
    assert losses(tmp_path / "float32", precision="float32", **KINDS[kind]) == pytest.approx(golden, rel=1e-4)
    assert golden[-1] < golden[0]
