"""A checkpoint exists when its manifest does, holds what was saved, and is refused when anything in it changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from planned import one_process, plan
from saved import assert_equal, build, save, states

from ingestion.lake import Lake
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.parallel.mesh import Mesh
from seismic_model.training import checkpoint
from seismic_model.training.checkpoint import CheckpointError, checkpoint_folder, weights_digest
from seismic_model.training.resume import restore
from seismic_model.training.retention import protect


@pytest.fixture(scope="module")
def mesh() -> Iterator[Mesh]:
    with one_process() as mesh:
        yield mesh


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_what_is_saved_comes_back_to_the_last_bit(lake: Lake, mesh: Mesh, ema_decay: float | None) -> None:
    config = plan(lake, ema_decay=ema_decay)
    saved, loaded = build(config, mesh, seed=5), build(config, mesh, seed=6)
    save(lake, config, saved, step=7)
    assert restore(lake, config, loaded) == 7
    assert loaded.applied_steps == 5
    assert_equal(loaded, states(saved))
    manifest = checkpoint.latest(lake, config.run)
    assert manifest is not None
    assert (manifest.step, manifest.samples, manifest.config) == (7, 28, config)
    weights = checkpoint.load_weights(lake, config.run, 7)
    assert weights_digest(weights) == manifest.weights_sha256
    MaskedAutoencoder(config.model).load_state_dict(weights)


def test_averaged_weights_are_the_product_and_what_a_later_run_starts_from(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake, "averaging", ema_decay=0.9)
    strategy = build(config, mesh, seed=1)
    save(lake, config, strategy, step=1)
    weights = checkpoint.load_weights(lake, "averaging", 1)
    digest = checkpoint.committed_at(lake, "averaging", 1).weights_sha256
    assert weights_digest(weights) == digest
    for name, state in states(strategy).items():
        assert torch.equal(weights[name], state["ema"])
    init = {"origin": "weights", "run": "averaging", "step": 1, "weights_sha256": digest}
    for run, ema_decay in (("plain", None), ("averaging-on", 0.9)):
        config = plan(lake, run, init=init, ema_decay=ema_decay)
        child = build(config, mesh, seed=2)
        assert restore(lake, config, child) == 0
        for name, state in states(child).items():
            assert all(torch.equal(state[part], weights[name]) for part in ("weight", "ema") if part in state)


def test_only_the_newest_are_kept_and_remains_of_killed_saves_go(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake, checkpoints_kept=2)
    strategy = build(config, mesh)
    remains = [f"{checkpoint_folder(config.run, step)}/model-00001-of-00008.safetensors" for step in (2, 3)]
    for key in remains:
        lake.write(key, b"half")
    assert checkpoint.latest(lake, config.run) is None
    for step in (1, 3, 4):
        save(lake, config, strategy, step)
    assert [manifest.step for manifest in checkpoint.committed(lake, config.run)] == [3, 4]
    left = {entry.key.split("/")[3] for entry in lake.objects(f"runs/{config.run}/checkpoints")}
    assert left == {"step-00000003", "step-00000004"}
    assert not any(lake.exists(key) for key in remains)


def test_a_checkpoint_in_use_elsewhere_stays_whole(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake, checkpoints_kept=1)
    for step in (1, 2, 3):
        strategy = build(config, mesh, seed=step)
        save(lake, config, strategy, step)
        if step == 1:
            protect(lake, checkpoint.committed_at(lake, config.run, 1), "it is the champion")
    assert [manifest.step for manifest in checkpoint.committed(lake, config.run)] == [1, 3]
    assert checkpoint.load_weights(lake, config.run, 1)


def test_a_checkpoint_that_another_process_is_writing_is_left_alone(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake)
    under_way = f"{checkpoint_folder(config.run, 2)}/model-00001-of-00001.safetensors"
    lake.write(under_way, b"being written")
    save(lake, config, build(config, mesh), step=1)
    assert lake.exists(under_way)


def test_a_newer_folder_without_a_manifest_does_not_count(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake)
    save(lake, config, build(config, mesh), step=1)
    lake.write(f"{checkpoint_folder(config.run, 2)}/model-00001-of-00001.safetensors", b"half")
    manifest = checkpoint.latest(lake, config.run)
    assert manifest is not None
    assert manifest.step == 1


def test_a_step_committed_by_someone_else_is_neither_overwritten_nor_damaged(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake)
    save(lake, config, build(config, mesh), step=1)
    with pytest.raises(CheckpointError, match="two trainings share one run name"):
        save(lake, config, build(config, mesh, seed=1), step=1)
    assert restore(lake, config, build(config, mesh)) == 1


def test_all_processes_go_on_from_the_checkpoint_that_the_first_one_saw(
    lake: Lake, mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = plan(lake)
    for step in (1, 2):
        save(lake, config, build(config, mesh, seed=step), step)
    second = replace(mesh, dp=2, dp_rank=1)
    monkeypatch.setattr(Mesh, "total", lambda _mesh, value: value + 2)  # process 0 saw step 1
    found = checkpoint.latest_for_all(lake, config.run, second)
    assert found is not None
    assert found.step == 1


@pytest.mark.parametrize("kind", ["model", "optimizer"])
@pytest.mark.parametrize("damage", ["flip", "cut", "lose"])
def test_a_damaged_shard_is_refused_and_named(lake: Lake, mesh: Mesh, kind: str, damage: str) -> None:
    config = plan(lake)
    save(lake, config, build(config, mesh), step=1)
    [file] = [name for name in checkpoint.committed(lake, config.run)[0].files if name.startswith(kind)]
    key = f"{checkpoint_folder(config.run, 1)}/{file}"
    stored = lake.read(key)
    if damage == "lose":
        lake.delete([key])
    else:
        lake.write(key, stored[:-1] + bytes([stored[-1] ^ 1]) if damage == "flip" else stored[:-1])
    with pytest.raises(CheckpointError, match=rf"{file} (has|is lost).*delete the manifest\.json beside it"):
        restore(lake, config, build(config, mesh))


def test_an_unreadable_manifest_is_refused(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake)
    lake.write(f"{checkpoint_folder(config.run, 1)}/manifest.json", b"{}")
    with pytest.raises(CheckpointError, match="is no checkpoint manifest of this version"):
        restore(lake, config, build(config, mesh))


def test_a_missing_step_is_refused_with_those_there_are(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake)
    save(lake, config, build(config, mesh), step=1)
    with pytest.raises(CheckpointError, match="no committed checkpoint at step 2; there are: 1"):
        checkpoint.load_weights(lake, config.run, 2)


def test_a_run_may_change_its_layout_but_not_what_it_trains(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake)
    save(lake, config, build(config, mesh), step=1)
    elsewhere = plan(lake, cp=2, accumulation=2, strategy="zero2", checkpoint_every=5)
    assert restore(lake, elsewhere, build(config, mesh)) == 1
    with pytest.raises(CheckpointError, match=r"learning_rate is 0\.5, was 0\.003.*a run name of its own"):
        restore(lake, plan(lake, learning_rate=0.5), build(config, mesh))


def test_a_run_starts_from_the_weights_it_names_and_no_others(lake: Lake, mesh: Mesh) -> None:
    champion = plan(lake, "champion")
    save(lake, champion, build(champion, mesh, seed=3), step=4)
    weights = checkpoint.load_weights(lake, "champion", 4)
    digest = checkpoint.committed(lake, "champion")[0].weights_sha256
    init = {"origin": "weights", "run": "champion", "step": 4, "weights_sha256": digest}
    child = build(plan(lake, "child"), mesh)
    assert restore(lake, plan(lake, "child", init=init), child) == 0
    assert child.applied_steps == 0
    for name, state in states(child).items():
        assert torch.equal(state["weight"], weights[name])
        assert not state["exp_avg"].any()
        assert not state["exp_avg_sq"].any()
    with pytest.raises(CheckpointError, match="the config expects 000"):
        restore(lake, plan(lake, "child", init=init | {"weights_sha256": "0" * 64}), child)


def test_weights_of_another_model_are_refused(lake: Lake, mesh: Mesh) -> None:
    small = plan(lake, "small")
    save(lake, small, build(small, mesh), step=1)
    digest = checkpoint.committed(lake, "small")[0].weights_sha256
    for name, change in (("wide", {"width": 48}), ("shallow", {"depth": 1}), ("flat", {"patch": (2, 4, 8)})):
        other = plan(
            lake,
            name,
            model=small.model.model_copy(update=change),
            init={"origin": "weights", "run": "small", "step": 1, "weights_sha256": digest},
        )
        with pytest.raises(CheckpointError, match=rf"run small trained another model: {next(iter(change))} is"):
            restore(lake, other, build(other, mesh))


def test_the_digest_of_weights_sees_names_shapes_types_and_bytes_only() -> None:
    weights = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}
    digest = weights_digest(weights)
    assert weights_digest({"b": weights["b"].clone(), "a": weights["a"].T.contiguous().T}) == digest
    for changed in (
        {"a": weights["a"], "c": weights["b"]},
        {"a": weights["a"].reshape(3, 2), "b": weights["b"]},
        {"a": weights["a"], "b": weights["b"].double()},
        {"a": weights["a"] + 1e-6, "b": weights["b"]},
    ):
        assert weights_digest(changed) != digest


def test_copies_beside_the_checkpoints_are_neither_taken_nor_deleted(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake, checkpoints_kept=1)
    strategy = build(config, mesh, seed=1)
    save(lake, config, strategy, step=3)
    copies = []
    for entry in list(lake.objects(checkpoint_folder(config.run, 3))):
        copies += [entry.key.replace("step-00000003", name) for name in ("backup/step-00000003", "step-00000003.good")]
        for copy in copies[-2:]:
            lake.write(copy, lake.read(entry.key))
    save(lake, config, strategy, step=6)
    assert [manifest.step for manifest in checkpoint.committed(lake, config.run)] == [6]
    assert all(lake.exists(copy) for copy in copies)


def test_a_manifest_in_the_folder_of_another_step_is_refused(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake)
    save(lake, config, build(config, mesh, seed=1), step=3)
    manifest = lake.read(f"{checkpoint_folder(config.run, 3)}/manifest.json")
    lake.write(f"{checkpoint_folder(config.run, 4)}/manifest.json", manifest)
    with pytest.raises(CheckpointError, match=r"is the manifest of .*step-00000003; move that copy"):
        checkpoint.latest(lake, config.run)


def test_a_manifest_without_the_optimiser_is_refused(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake)
    save(lake, config, build(config, mesh, seed=1), step=3)
    key = f"{checkpoint_folder(config.run, 3)}/manifest.json"
    stored = json.loads(lake.read(key))
    stored["files"] = {name: file for name, file in stored["files"].items() if name.startswith("model")}
    lake.write(key, json.dumps(stored).encode())
    with pytest.raises(CheckpointError, match="lacks its model or its optimizer file"):
        checkpoint.latest(lake, config.run)
