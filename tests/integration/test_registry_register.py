"""What is registered and what is refused, on an SQLite registry without a server."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient
from registered import Candidate, candidate, decision_on

from ingestion.lake import Lake
from seismic_model.registry import register as registering
from seismic_model.registry.versions import RegistryError, aliases, versions
from seismic_model.training.checkpoint import load_weights
from seismic_model.training.retention import forget

PARAMS = {"centre": 0.0, "scale": 1.0, "clip": 5.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="module")
def uri(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


@pytest.fixture(scope="module")
def first(folder: Path, uri: str) -> Candidate:
    made = candidate(Lake(str(folder / "lake")), "first", seed=1)
    made.register(uri)
    return made


@pytest.fixture(scope="module")
def second(first: Candidate, uri: str) -> Candidate:
    """The next winner, for whose registering it took three starts."""
    made = candidate(first.lake, "second", seed=2, champion_run="first")
    client = MlflowClient(tracking_uri=uri)
    with pytest.MonkeyPatch.context() as patch:
        for killed_in in ("create_model_version", "set_registered_model_alias"):
            patch.setattr(registering, "connect", lambda _, method=killed_in: Killable(client, method))
            with pytest.raises(KilledError):
                made.register(uri)
    made.register(uri)
    return made


class KilledError(Exception):
    pass


class Killable:
    """A client whose process is killed in one of its methods."""

    def __init__(self, client: MlflowClient, method: str) -> None:
        self._client, self._method = client, method

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            raise KilledError
        return getattr(self._client, name)


def test_a_killed_registration_given_again_makes_one_version(uri: str, second: Candidate) -> None:
    client = MlflowClient(tracking_uri=uri)
    newest, oldest = versions(client)
    assert (newest.tags["sfm.run"], newest.tags["review.status"]) == ("second", "pending")
    assert (oldest.tags["sfm.run"], oldest.tags["review.status"]) == ("first", "superseded")
    assert aliases(client) == {"challenger": "2"}
    second.register(uri)
    assert len(versions(client)) == 2


def test_two_registrations_in_the_same_moment_make_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, made = f"sqlite:///{tmp_path / 'mlflow.db'}", candidate(Lake(str(tmp_path / "lake")))
    client = MlflowClient(tracking_uri=uri)

    class Slower:
        """A client of a start that is overtaken just before it makes its version."""

        def __getattr__(self, name: str) -> Any:
            if name == "create_model_version":
                monkeypatch.setattr(registering, "connect", lambda _: client)
                assert made.register(uri) == "1"
            return getattr(client, name)

    monkeypatch.setattr(registering, "connect", lambda _: Slower())
    assert made.register(uri) == "1"
    assert [str(version.version) for version in versions(client)] == ["1"]
    assert aliases(client) == {"challenger": "1"}


def test_a_registered_checkpoint_stays_whatever_its_run_does_later(first: Candidate) -> None:
    """The week after starts from it, and is compared with it."""
    kept_one = first.config.model_copy(update={"checkpoints_kept": 1})
    later = first.checkpoint.model_copy(update={"step": first.checkpoint.step + 1, "config": kept_one})
    first.lake.write(f"{later.folder}/manifest.json", later.to_bytes())
    forget(first.lake, later)
    assert load_weights(first.lake, first.checkpoint.run, first.checkpoint.step)


def test_artifacts_lie_beside_the_sqlite_file(uri: str, first: Candidate, folder: Path) -> None:
    source = versions(MlflowClient(tracking_uri=uri))[-1].source
    assert source is not None
    assert source.startswith((folder / "artifacts").as_uri())


def test_the_description_holds_what_a_reviewer_asks(uri: str, second: Candidate) -> None:
    text = versions(MlflowClient(tracking_uri=uri))[0].description
    for part in (
        "**Week 2026-W48**, run `second`, step 5: mean error over surveys **0.5000** against 0.6250 of champion first",
        "| north | 0.5000 | 0.6250 champion | 20.0% (10.0% to 30.0%) | 0.875 |",
        "licence of the data: CC0-1.0",
        f"north@{second.dataset.surveys[0].digest[:12]}",
        second.checkpoint.weights_sha256,
    ):
        assert part in text


def test_two_versions_work_side_by_side_and_leave_the_project_alone(
    uri: str, first: Candidate, second: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    before = {name: module for name, module in sys.modules.items() if name.startswith(("seismic_model", "ingestion"))}
    assert "seismic_model.registry.register" in before
    one, two = (mlflow.pyfunc.load_model(f"models:/seismic-vit-mae/{number}") for number in (1, 2))
    after = {name: module for name, module in sys.modules.items() if name.startswith(("seismic_model", "ingestion"))}
    assert after == before
    volume = np.random.default_rng(0).standard_normal((8, 8, 16)).astype(np.float32)
    found = [model.predict(volume, params=PARAMS)["amplitude"] for model in (one, two, one)]
    np.testing.assert_array_equal(found[0], found[2])
    assert not np.array_equal(found[0], found[1])
    other_mask = one.predict(volume, params=PARAMS | {"seed": 3})["hidden"]
    assert not np.array_equal(other_mask, one.predict(volume, params=PARAMS)["hidden"])


def test_a_model_says_what_it_needs(uri: str, first: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    model = mlflow.pyfunc.load_model("models:/seismic-vit-mae/1")
    volume = np.zeros((8, 8, 16), dtype=np.float32)
    with pytest.raises(ValueError, match=r"centre, scale > 0 and clip > 0 of `normalisation`"):
        model.predict(volume)
    with pytest.raises(ValueError, match=r"'scale': 0\.0.* of which scale cannot be used"):
        model.predict(volume, params=PARAMS | {"scale": 0.0})
    with pytest.raises(ValueError, match="seed is -1"):
        model.predict(volume, params=PARAMS | {"seed": -1})
    with pytest.raises(ValueError, match=r"spacing is \[1\.0, 1\.0, 0\.5\], but this model counts patches of any size"):
        model.predict(volume, params=PARAMS | {"spacing": np.array([1.0, 1.0, 0.5])})
    with pytest.raises(ValueError, match=r"shape \(8, 8, 17\); expected .* multiple of \(8, 8, 16\)"):
        model.predict(np.zeros((8, 8, 17), dtype=np.float32), params=PARAMS)


def test_damaged_weights_are_not_loaded(uri: str, first: Candidate, tmp_path: Path) -> None:
    client = MlflowClient(tracking_uri=uri)
    run_id = versions(client)[-1].run_id
    copy = client.download_artifacts(str(run_id), "review/first-step-00000005/model", str(tmp_path))
    (weights,) = Path(copy).rglob("weights.safetensors")
    stored = bytearray(weights.read_bytes())
    stored[-1] ^= 1
    weights.write_bytes(stored)
    with pytest.raises(ValueError, match="they were damaged after registering"):
        mlflow.pyfunc.load_model(copy)


def test_what_does_not_belong_together_is_refused(uri: str, first: Candidate, second: Candidate) -> None:
    lost = decision_on(first.evaluation, promote=False)
    with pytest.raises(RegistryError, match="run first, step 5 lost and is not registered"):
        replace(first, decision=lost).register(uri)
    with pytest.raises(RegistryError, match="the evaluation is of run second"):
        replace(first, evaluation=second.evaluation).register(uri)
    with pytest.raises(RegistryError, match="the decision is on run second"):
        replace(first, decision=second.decision).register(uri)


def test_artifacts_that_do_not_arrive_are_no_version(
    uri: str, second: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = MlflowClient(tracking_uri=uri)
    count = len(versions(client))
    third = candidate(second.lake, "third", seed=3)

    class Lossy(Killable):
        def log_artifacts(self, run_id: str, files: str, folder: str) -> None:
            (weights,) = Path(files).rglob("weights.safetensors")
            stored = weights.read_bytes()
            weights.write_bytes(stored[:-1])
            client.log_artifacts(run_id, files, folder)
            weights.write_bytes(stored)

    monkeypatch.setattr(registering, "connect", lambda _: Lossy(client, "nothing"))
    with pytest.raises(RegistryError, match=r"1 of \d+ artifacts did not arrive whole .*weights\.safetensors"):
        third.register(uri)
    assert len(versions(client)) == count


def test_nothing_in_a_version_is_a_pickle(uri: str, first: Candidate, tmp_path: Path) -> None:
    client = MlflowClient(tracking_uri=uri)
    run_id = versions(client)[-1].run_id
    copy = Path(client.download_artifacts(str(run_id), "review/first-step-00000005", str(tmp_path)))
    by_mlflow = {"MLmodel", "registered_model_meta"}  # YAML
    suffixes = {path.suffix for path in copy.rglob("*") if path.is_file() and path.name not in by_mlflow}
    assert suffixes == {".py", ".json", ".safetensors", ".png", ".txt", ".yaml"}
    origin = json.loads(next(copy.rglob("origin.json")).read_text())
    assert origin["weights_sha256"] == first.checkpoint.weights_sha256
