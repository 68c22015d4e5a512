"""Joining and leaving the process group, and a ring of one process."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from seismic_model.model.vit import full_attention
from seismic_model.parallel.attention import attention_over
from seismic_model.parallel.mesh import MeshError, open_mesh
from seismic_model.parallel.ring_attention import ring_attention


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torchrun would set for a single process, at a free port."""
    for name, value in {
        "RANK": 0,
        "WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 0,
    }.items():
        monkeypatch.setenv(name, str(value))


def test_without_torchrun_the_missing_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MeshError, match=r"RANK, WORLD_SIZE, LOCAL_RANK not set; .* torchrun"), open_mesh(1):
        pass


def test_processes_that_do_not_divide_into_groups_are_refused(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(MeshError, match="3 processes cannot form groups of cp=2"), open_mesh(2):
        pass
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(MeshError, match="cp=4 cannot be split into groups of ulysses=3"), open_mesh(4, 3):
        pass
    assert not dist.is_initialized()


def test_the_process_group_is_left_even_after_an_error(alone: None) -> None:
    with open_mesh(1) as mesh:
        assert (mesh.world, mesh.rank, mesh.dp, mesh.cp) == (1, 0, 1, 1)
    with pytest.raises(ZeroDivisionError), open_mesh(1):
        1 / 0  # noqa: B018
    assert not dist.is_initialized()


def test_total_leaves_the_value_alone(alone: None) -> None:
    value = torch.tensor([3, 4])
    with open_mesh(1) as mesh:
        total = mesh.total(value)
    total += 1
    assert value.tolist() == [3, 4]


def test_a_ring_of_one_is_plain_attention(alone: None) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 7, 6, dtype=torch.float64, generator=generator) for _ in range(3))
    with open_mesh(1) as mesh:
        out = ring_attention(q, k[:, :, :5], v[:, :, :5], (5,), mesh.ring_group, mesh.waiting)
        torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k[:, :, :5], v[:, :, :5]))
        strided = q.transpose(2, 3).contiguous().transpose(2, 3)  # kernels take a last axis of stride 1 for granted
        out = ring_attention(strided, k, v, (7,), mesh.ring_group, mesh.waiting)
        torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v))
        with pytest.raises(ValueError, match="of 2 ranks; the group has 1"):
            ring_attention(q, k, v, (7, 7), mesh.ring_group, mesh.waiting)
        assert attention_over(mesh) is full_attention
