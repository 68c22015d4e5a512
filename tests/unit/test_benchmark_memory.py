"""The counted peak is the one found by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.memory import peak_memory, tensor_bytes

MIB = 2**20
COUNT = MIB // 4  # float32 values


def test_tensors_kept_for_backward_and_made_in_it_count() -> None:
    x = torch.randn(COUNT, requires_grad=True)
    with peak_memory() as memory:
        y = x.exp()  # kept, 1 MiB
        z = y.sin()  # 2 MiB
        z.backward(torch.ones_like(z))  # 3 MiB; then cos(y) and its product with the gradient: 5 MiB
    assert 5 * MIB <= memory.peak_bytes < 5.01 * MIB
    assert 3 * MIB <= memory.left_bytes < 3.01 * MIB  # y, z and the gradient of x


def test_what_is_given_back_in_between_does_not_add_up() -> None:
    with peak_memory() as memory:
        for _ in range(10):
            torch.ones(COUNT)
    assert memory.peak_bytes == MIB
    assert memory.left_bytes == 0


def test_scratch_space_of_an_operator_counts() -> None:
    q = torch.randn(1, 1, 512, 64)
    with peak_memory() as memory:
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert memory.peak_bytes > q.nbytes + 4 * 512  # output and log-sum-exp


def test_what_was_there_before_does_not_count() -> None:
    held: list[Tensor] = [torch.ones(COUNT)]
    with peak_memory() as memory:
        held.clear()
        torch.ones(2 * COUNT)
    assert memory.peak_bytes == 2 * MIB


def test_storages_are_summed_once() -> None:
    x = torch.zeros(3, COUNT)
    assert tensor_bytes([x, x[0], x.T]) == 3 * MIB
    assert tensor_bytes([x, torch.zeros(COUNT)]) == 4 * MIB
