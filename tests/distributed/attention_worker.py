"""What the processes of ``test_attention`` do: attention over one layout, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from seismic_model.parallel.attention import attention_over
from seismic_model.parallel.mesh import Mesh, arrange

Parts = list[NDArray[np.float64]]  # output, gradients of q, k, v


@dataclass(frozen=True)
class Case:
    """Attention of one crop, spread over as many ranks as there are lengths."""

    q_lengths: tuple[int, ...]
    kv_lengths: tuple[int, ...]
    ulysses: int
    batch: int = 1
    heads: int = 4
    width: int = 6
    dtype: str = "float64"
    scale: float = 1.0  # of the queries: large ones make attention sharp
    seed: int = 0

    @property
    def torch_dtype(self) -> torch.dtype:
        return {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}[self.dtype]

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All of q, k, v and the gradient of the output, (B, H, N, D), the same in every process.

        Their memory is laid out as a model's projections leave it: q and k head by head, v and the gradient token
        by token.
        """
        generator = torch.Generator().manual_seed(self.seed)
        q, k, v, grad = (
            torch.randn(self.batch, n, self.heads, self.width, dtype=torch.float64, generator=generator)
            for n in (sum(self.q_lengths), sum(self.kv_lengths), sum(self.kv_lengths), sum(self.q_lengths))
        )
        q, k, v, grad = (x.to(self.torch_dtype).transpose(1, 2) for x in (q * self.scale, k, v, grad))
        return q.contiguous(), k.contiguous(), v, grad


@cache
def mesh_of(cp: int, ulysses: int) -> Mesh:
    return arrange(cp, ulysses, torch.device("cpu"))


def attend(case: Case) -> Parts | None:
    """Own part of output and gradients; None in processes that are not of the first context-parallel group."""
    mesh = mesh_of(len(case.q_lengths), case.ulysses)
    if mesh.dp_rank:
        return None
    q, k, v, grad = (
        x.split(lengths, dim=2)[mesh.cp_rank].detach()
        for x, lengths in zip(
            case.tensors(), (case.q_lengths, case.kv_lengths, case.kv_lengths, case.q_lengths), strict=True
        )
    )
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = attention_over(mesh)(*leaves, case.q_lengths, case.kv_lengths)
    assert out.dtype == case.torch_dtype
    out.backward(grad)
    return [x.double().numpy() for x in (out.detach(), *(leaf.grad for leaf in leaves))]


def refusal(case: Case) -> str | None:
    """What attention says against the case, in the processes of the first context-parallel group."""
    mesh = mesh_of(len(case.q_lengths), case.ulysses)
    if mesh.dp_rank:
        return None
    x = torch.zeros(1, case.heads, case.q_lengths[mesh.cp_rank], case.width)
    try:
        attention_over(mesh)(x, x, x, case.q_lengths, case.kv_lengths)
    except ValueError as error:
        return str(error)
    return "not refused"


def members(cp: int, ulysses: int) -> tuple[tuple[int, int], list[int], list[int]]:
    """(dp_rank, cp_rank), and the ranks of own ring and of those that exchange heads."""
    mesh = mesh_of(cp, ulysses)
    ring, heads = (dist.get_process_group_ranks(group) for group in (mesh.ring_group, mesh.ulysses_group))
    return (mesh.dp_rank, mesh.cp_rank), ring, heads
