"""A winner on a real MLflow server with its artifacts on S3: registered, loaded elsewhere, reviewed, succeeded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from click.testing import CliRunner
from mlflow_server import serve_mlflow
from registered import PNG, Candidate, candidate

from ingestion.lake import Lake
from seismic_model.cli import main
from seismic_model.model.mae import MaskedAutoencoder, filled_in
from seismic_model.model.masking import Masking, Shard, TokenLayout, patchify, unpatchify
from seismic_model.registry.audit import entries
from seismic_model.registry.versions import Champion, champion, connect
from seismic_model.training.checkpoint import load_weights

PARAMS = {"centre": 12.5, "scale": 250.0, "clip": 3.0, "seed": 7}

CONSUMER = """
import json, sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__ + repr(finder)]
import mlflow, numpy as np
for project in ("seismic_model", "ingestion", "validation", "flows"):
    try:
        __import__(project)
    except ModuleNotFoundError:
        continue
    raise SystemExit(project + " is still installed, so this proves nothing")
model = mlflow.pyfunc.load_model("models:/seismic-vit-mae@challenger")
found = model.predict(np.load("volume.npy"), params=json.loads(sys.argv[1]))
np.savez("found.npz", **found)
"""


@pytest.fixture(scope="module")
def server(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_mlflow(tmp_path_factory.mktemp("mlflow"), f"{s3}/mlflow") as uri:
        yield uri


def volume(shape: tuple[int, int, int]) -> npt.NDArray[np.float32]:
    values = np.random.default_rng(5).standard_normal(shape).astype(np.float32) * 300
    values[1, 2] = np.nan  # a dead trace
    return values


def reconstruct(made: Candidate, values_IXZ: npt.NDArray[np.float32], window: int) -> tuple[object, object]:
    """One window by the training code: raw amplitudes, and what was hidden."""
    model = MaskedAutoencoder(made.config.model)
    model.load_state_dict(load_weights(made.lake, made.checkpoint.run, made.checkpoint.step))
    layout = TokenLayout(made.config.window, made.config.model.patch)
    shard = Shard.of(layout, Masking(made.config.keep_ratio, 7))
    masks = shard.draw(0, [window])
    values = torch.from_numpy(values_IXZ)[None]
    patches, live = (
        patchify(each, layout, shard.tokens)
        for each in (((values - 12.5) / 250).clamp(-3, 3).nan_to_num(), values.isfinite())
    )
    with torch.inference_mode():
        filled = filled_in(patches, masks, model(patches, live, masks, shard).prediction_BMP)
    hidden = torch.zeros(1, layout.tokens, 64, dtype=torch.bool)
    hidden[0, masks.decoded_BM[0]] = True
    amplitude = unpatchify(filled, layout, shard.tokens)[0] * 250 + 12.5
    return amplitude.numpy(), unpatchify(hidden, layout, shard.tokens)[0].numpy()


def test_from_a_winner_to_a_champion_that_the_next_week_finds(
    server: str, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    assert champion() is None
    made = candidate(lake)
    number = made.register(server)
    assert made.register(server) == number == "1"

    values = volume((16, 8, 32))
    np.save(tmp_path / "volume.npy", values)
    subprocess.run(
        [sys.executable, "-c", CONSUMER, json.dumps(PARAMS)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    found = np.load(tmp_path / "found.npz")
    windows = [(i, z) for i in (0, 8) for z in (0, 16)]
    for window, (i, z) in enumerate(windows):
        box = np.s_[i : i + 8, :, z : z + 16]
        amplitude, hidden = reconstruct(made, values[box], window)
        np.testing.assert_array_equal(found["amplitude"][box], amplitude)
        np.testing.assert_array_equal(found["hidden"][box], hidden)

    client = connect()
    version = client.get_model_version_by_alias("seismic-vit-mae", "challenger")
    assert version.tags["review.status"] == "pending"
    assert version.tags["sfm.dataset_sha256"] == made.config.dataset_sha256
    folder = "review/first-step-00000005"
    picture = client.download_artifacts(version.run_id, f"{folder}/pictures/north-section.png", str(tmp_path))
    assert Path(picture).read_bytes() == PNG
    stored = client.download_artifacts(version.run_id, f"{folder}/evaluation.json", str(tmp_path))
    assert Path(stored).read_bytes() == made.evaluation.to_bytes()
    assert not [path for path in files(client, version.run_id, folder) if path.endswith((".pkl", ".pickle", ".pt"))]

    approved = CliRunner().invoke(main, ["review", "approve", "--by", "ann"])
    assert approved.exit_code == 0, approved.output
    assert champion() == Champion("first", 5, made.checkpoint.weights_sha256, "1")
    assert made.register(server) == "1"  # decided: left as it is
    assert [(entry.action, entry.by) for entry in entries(lake)] == [("register", "run first"), ("approve", "ann")]
    listed = json.loads(CliRunner().invoke(main, ["review", "list", "--json"]).stdout)
    assert [(row["version"], row["status"], row["aliases"]) for row in listed] == [("1", "approved", ["champion"])]


def files(client: object, run_id: str, folder: str) -> list[str]:
    found = []
    for entry in client.list_artifacts(run_id, folder):  # type: ignore[attr-defined]
        found += files(client, run_id, entry.path) if entry.is_dir else [entry.path]
    return found
