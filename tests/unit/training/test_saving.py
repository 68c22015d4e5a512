"""A checkpoint is written beside training, holds the moment it was begun at, and fails or is committed for all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import GenericError
from planned import one_process, plan
from saved import assert_equal, build, draw, save, states

from ingestion.lake import Lake
from seismic_model.parallel.mesh import Mesh
from seismic_model.training import checkpoint, saving
from seismic_model.training.checkpoint import CheckpointError, checkpoint_folder
from seismic_model.training.resume import restore
from seismic_model.training.saving import Saver, parts_of


@pytest.fixture(scope="module")
def mesh() -> Iterator[Mesh]:
    with one_process() as mesh:
        yield mesh


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Until it is set, no file of a checkpoint gets to the lake."""
    gate, write = Event(), Lake.write

    def held(lake: Lake, key: str, data: object) -> None:
        if key.endswith(".safetensors"):
            assert gate.wait(60)
        write(lake, key, data)

    monkeypatch.setattr(Lake, "write", held)
    return gate


def settle(saver: Saver) -> None:
    """Wait until this process has done its part of the stage under way."""
    while saver.progress()[0]:
        time.sleep(0.005)


def test_training_goes_on_while_the_state_of_the_step_is_written(lake: Lake, mesh: Mesh, gate: Event) -> None:
    config = plan(lake)
    strategy = build(config, mesh, seed=1)
    before = states(strategy)
    with closing(Saver(lake, config, strategy)) as saver:
        saver.begin(1)
        draw(strategy, config, seed=2)  # what further steps do
        saver.proceed(saver.progress())
        assert checkpoint.latest(lake, config.run) is None
        gate.set()
        settle(saver)
        assert checkpoint.latest(lake, config.run) is None  # not before all processes have agreed
        saver.proceed(saver.progress())
        settle(saver)
        saver.proceed(saver.progress())
        assert checkpoint.latest(lake, config.run) is not None
        saver.finish()
    assert restore(lake, config, strategy) == 1
    assert strategy.applied_steps == 1
    assert_equal(strategy, before)


def test_one_save_waits_for_the_one_before(lake: Lake, mesh: Mesh, gate: Event) -> None:
    config = plan(lake)
    with closing(Saver(lake, config, build(config, mesh))) as saver:
        saver.begin(1)
        gate.set()
        saver.begin(2)
        assert [manifest.step for manifest in checkpoint.committed(lake, config.run)] == [1]
        saver.finish()
    assert [manifest.step for manifest in checkpoint.committed(lake, config.run)] == [1, 2]


def test_a_save_that_is_not_finished_leaves_no_checkpoint(lake: Lake, mesh: Mesh, gate: Event) -> None:
    config = plan(lake)
    with closing(Saver(lake, config, build(config, mesh))) as saver:
        saver.begin(1)
        gate.set()
    assert checkpoint.latest(lake, config.run) is None


def test_a_failed_upload_is_told_at_the_next_agreement(lake: Lake, mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_lake: Lake, _key: str, _data: object) -> None:
        raise GenericError("507 no space left\n\nDebug source: …")

    config = plan(lake)
    with closing(Saver(lake, config, build(config, mesh))) as saver:
        monkeypatch.setattr(Lake, "write", full)
        saver.begin(3)
        settle(saver)
        with pytest.raises(CheckpointError, match=r"of step 3 was not written: process 0: 507 no space left$"):
            saver.proceed(saver.progress())


def test_a_checkpoint_whose_files_vanish_is_never_committed(lake: Lake, mesh: Mesh) -> None:
    config = plan(lake)
    with closing(Saver(lake, config, build(config, mesh))) as saver:
        saver.begin(1)
        settle(saver)
        files = [entry.key for entry in lake.objects(checkpoint_folder(config.run, 1))]
        lake.delete([min(files)])
        with pytest.raises(CheckpointError, match=r"lost model-00001.*before it was committed"):
            saver.finish()
    assert checkpoint.latest(lake, config.run) is None


def test_parts_are_no_larger_than_need_be_and_all_come_back(
    lake: Lake, mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "_PART_VALUES", 1000)
    config = plan(lake)
    strategy = build(config, mesh, seed=1)
    before, largest = states(strategy), max(shape.numel() for shape in strategy.shapes.values())
    save(lake, config, strategy, 1)
    manifest = checkpoint.committed_at(lake, config.run, 1)
    assert len(manifest.parts) > 5
    for part in manifest.parts:
        tensors = checkpoint.read_file(lake, manifest, part["model"])
        assert len(tensors) == 1 or sum(tensor.numel() for tensor in tensors.values()) <= 1000 < largest
    draw(strategy, config, seed=2)
    restore(lake, config, strategy)
    assert_equal(strategy, before)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 9))
def test_parameters_are_shared_out_whole_in_order_and_evenly(sizes: list[int], world: int) -> None:
    parts = parts_of({str(n): size for n, size in enumerate(sizes)}, world)
    assert [int(name) for part in parts for name in part.names] == list(range(len(sizes)))
    owners = [part.owner for part in parts]
    assert owners == sorted(set(owners))
    assert 0 <= owners[0] <= owners[-1] < world
    for part in parts:
        assert sum(sizes[int(name)] for name in part.names) <= sum(sizes) / world + max(sizes)


def test_a_file_of_any_tensors_is_read_by_safetensors(lake: Lake) -> None:
    from safetensors.torch import load

    tensors = {
        "odd name.\u00e9": torch.arange(6.0).reshape(2, 3).T,
        "double": torch.rand(3, dtype=torch.float64),
        "one": torch.tensor([1.0]),
    }
    lake.write("x", saving._safetensors(tensors))
    found = load(lake.read("x"))
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
