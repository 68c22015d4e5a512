"""Exact attention over tokens spread over a ring of ranks (Liu et al. 2023, Ring Attention).

Keys and values travel round the ring while each rank attends from its own queries; partial results are merged
by their log-sum-exp. Backward goes round once more, and the gradients of keys and values travel one hop
behind them. Ranks may hold different numbers of tokens, or none. The CUDA kernels (half precision only) follow
the same steps but have not been run yet.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from seismic_model.model.vit import Attention, Lengths, full_attention
from seismic_model.parallel.mesh import Mesh

aten = torch.ops.aten

Hops = list[dist.Work]


def attention_over(mesh: Mesh) -> Attention:
    """The attention of ranks that share a crop: full for one, a ring for several."""
    if mesh.cp == 1:
        return full_attention
    return ring_attention(mesh.cp_group)


def ring_attention(group: dist.ProcessGroup) -> Attention:
    """Attention from own tokens to those of all ranks of ``group``; every rank must call it, even with no tokens."""

    def attend(q_BHND: Tensor, k_BHMD: Tensor, v_BHMD: Tensor, q_lengths: Lengths, kv_lengths: Lengths) -> Tensor:
        ring = _Ring(group, kv_lengths)
        found, expected = (q_BHND.shape[2], k_BHMD.shape[2]), (q_lengths[ring.rank], kv_lengths[ring.rank])
        if found != expected:
            raise ValueError(f"rank {ring.rank} holds {found} queries and keys; their lengths say {expected}")
        return _RingAttention.apply(q_BHND, torch.stack((k_BHMD, v_BHMD)), ring)  # type: ignore[no-any-return, no-untyped-call]

    return attend


class _Ring:
    """Hops to the next rank; a block is named by the rank that it belongs to."""

    def __init__(self, group: dist.ProcessGroup, lengths: tuple[int, ...]) -> None:
        self.group, self.lengths = group, lengths
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if len(lengths) != self.size:
            raise ValueError(f"lengths {lengths} are of {len(lengths)} ranks; the group has {self.size}")
        self.next = dist.get_global_rank(group, (self.rank + 1) % self.size)
        self.previous = dist.get_global_rank(group, (self.rank - 1) % self.size)

    def post(self, block: Tensor, owner: int) -> tuple[Tensor, Hops]:
        """Begin to pass on ``owner``'s block and to receive the one before it; blocks (2, B, H, N, D), contiguous."""
        received = block.new_empty((*block.shape[:3], self.lengths[(owner - 1) % self.size], block.shape[4]))
        hops = []
        if block.numel():
            hops.append(dist.P2POp(dist.isend, block, self.next, self.group))
        if received.numel():
            hops.append(dist.P2POp(dist.irecv, received, self.previous, self.group))
        return received, dist.batch_isend_irecv(hops) if hops else []

    def owners(self) -> list[int]:
        """Whose block is here at each hop, own block first."""
        return [(self.rank - hop) % self.size for hop in range(self.size)]


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, ring: _Ring) -> Tensor:
        accurate = torch.promote_types(q.dtype, torch.float32)
        out = torch.zeros_like(q, dtype=accurate, memory_format=torch.contiguous_format)
        lse = torch.full(q.shape[:3], -torch.inf, dtype=accurate, device=q.device)
        block, state = kv, None
        *passing, last = ring.owners()
        for owner in (*passing, last):
            following, hops = ring.post(block, owner) if owner != last else (block, [])
            if q.numel() and block.numel():
                block_out, block_lse, state = _attend(q, block[0], block[1])
                out += torch.sigmoid(block_lse - lse)[..., None] * (block_out - out)
                lse = torch.logaddexp(lse, block_lse)
            _wait(hops)
            block = following
        result = out.to(q.dtype)
        ctx.save_for_backward(q, kv, result, lse)
        ctx.ring, ctx.state = ring, state
        return result

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, None]:
        q, kv, out, lse = ctx.saved_tensors
        ring: _Ring = ctx.ring
        grad_q = torch.zeros_like(q, dtype=lse.dtype)
        block, grad_kv = kv, torch.zeros_like(kv, dtype=lse.dtype)
        gradient_hops: Hops = []
        *passing, last = ring.owners()
        for owner in (*passing, last):
            following, hops = ring.post(block, owner) if owner != last else (block, [])
            gradients = None
            if q.numel() and block.numel():
                gradients = _attend_backward(grad_out, q, block[0], block[1], out, lse, ctx.state)
            _wait(gradient_hops)  # what the ranks before found for this block
            if gradients is not None:
                for total, gradient in zip((grad_q, grad_kv[0], grad_kv[1]), gradients, strict=True):
                    total += gradient
            sent = grad_kv  # held until its hop is done
            grad_kv, gradient_hops = ring.post(sent, owner)
            _wait(hops)
            block = following
        _wait(gradient_hops)  # the last hop brings the gradients of own keys and values home
        return grad_q.to(q.dtype), grad_kv.to(kv.dtype), None


def _wait(hops: Hops) -> None:
    for hop in hops:
        hop.wait()


def _attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Any]:
    """Attention to one block that is not empty: output, log-sum-exp (B, H, N), what CUDA's backward wants back."""
    if q.device.type == "cpu":
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
        return out, lse, None
    if q.dtype not in (torch.bfloat16, torch.float16):
        raise TypeError(f"ring attention on {q.device} got {q.dtype}; expected bfloat16 (precision: bfloat16)")
    out, lse, first_q, first_k, _, _, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v)
    return out, lse, (first_q, first_k, seed, offset)


def _attend_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, state: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k, v from one block, given output and log-sum-exp of attention to all blocks."""
    if q.device.type == "cpu":
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(  # type: ignore[no-any-return]
            grad_out, q, k, v, out, lse, 0.0, False
        )
    first_q, first_k, seed, offset = state
    return aten._scaled_dot_product_flash_attention_backward(  # type: ignore[no-any-return]
        grad_out, q, k, v, out, lse, first_q, first_k, q.shape[2], k.shape[2], 0.0, False, seed, offset
    )
