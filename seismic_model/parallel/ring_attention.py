"""Exact attention over tokens spread over a ring of ranks (Liu et al. 2023, Ring Attention).

Queries stay; keys and values travel round the ring, and partial results are merged by their log-sum-exp. Backward
goes round once more, and the gradients of keys and values travel one hop behind them. Queries and keys may be
different tokens, and ranks may hold different numbers of either, or none. Each hop is posted before the
computing that hides it. Sums are kept in float32 or better.

At its worst moment (in backward) a rank holds 17 tensors of the size of its own queries: q, k, v, output, its gradient
and that of q; two blocks of k and v; two of their gradients; and what the kernel just gave (15 in a ring of two).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from seismic_model.model.vit import Lengths
from seismic_model.parallel.kernels import kernel_for
from seismic_model.parallel.waiting import Waiting

Blocks = tuple[Tensor, Tensor]  # keys and values, or their gradients, each (B, H, M, D)


def ring_attention(
    q_BHND: Tensor, k_BHMD: Tensor, v_BHMD: Tensor, lengths: Lengths, group: dist.ProcessGroup, waiting: Waiting
) -> Tensor:
    """Attention (B, H, N, D) from own queries to the keys of all ranks of ``group``.

    Every rank has to call it, even with no tokens. Queries attend to nothing, and give 0, where no rank holds a key.

    Args:
        q_BHND: own queries.
        k_BHMD: own keys.
        v_BHMD: own values.
        lengths: M of every rank of the group.
        group: the ring.
        waiting: counts the time for which computing stands still.
    """
    return _RingAttention.apply(q_BHND, k_BHMD, v_BHMD, _Ring(group, lengths, waiting))  # type: ignore[no-any-return, no-untyped-call]


class _Hop:
    """Blocks on their way to the next rank, and those that come from the one before."""

    def __init__(self, sent: Sequence[Tensor], received: Blocks, ring: _Ring) -> None:
        self._sent, self._received, self._waiting = sent, received, ring.waiting
        operations = [dist.P2POp(dist.isend, block, ring.next, ring.group) for block in sent if block.numel()]
        operations += [dist.P2POp(dist.irecv, block, ring.previous, ring.group) for block in received if block.numel()]
        self._works = dist.batch_isend_irecv(operations) if operations else []

    def finish(self) -> Blocks:
        """What came in, when all is through."""
        if self._works:
            with self._waiting:
                for work in self._works:
                    work.wait()
        self._sent = ()
        return self._received


class _Ring:
    """Hops to the next rank; blocks are named by the rank that they belong to."""

    def __init__(self, group: dist.ProcessGroup, lengths: Lengths, waiting: Waiting) -> None:
        self.group, self.lengths, self.waiting = group, lengths, waiting
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if len(lengths) != self.size:
            raise ValueError(f"lengths {lengths} are of {len(lengths)} ranks; the group has {self.size}")
        self.next = dist.get_global_rank(group, (self.rank + 1) % self.size)
        self.previous = dist.get_global_rank(group, (self.rank - 1) % self.size)

    def post(self, blocks: Blocks, owner: int) -> _Hop:
        """Begin to pass on ``owner``'s blocks and to receive those of the rank before it."""
        batch, heads, _, width = blocks[0].shape
        shape = (batch, heads, self.lengths[(owner - 1) % self.size], width)
        received = blocks[0].new_empty(shape), blocks[1].new_empty(shape)
        return _Hop([block.contiguous() for block in blocks], received, self)

    def owners(self) -> list[int]:
        """Whose blocks are here at each hop, own blocks first."""
        return [(self.rank - hop) % self.size for hop in range(self.size)]


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ring: _Ring) -> Tensor:
        q, k, v = _rows(q), _rows(k), _rows(v)
        kernel, accurate = kernel_for(q), torch.promote_types(q.dtype, torch.float32)
        merged, state = None, None
        blocks = k, v
        *passing, last = ring.owners()
        for owner in (*passing, last):
            hop = ring.post(blocks, owner) if owner != last else None
            if q.numel() and blocks[0].numel():
                block_out, block_lse, state = kernel.forward(q, *blocks)
                merged = _merge(merged, block_out.to(accurate), block_lse)
            if hop:
                blocks = hop.finish()
        # token by token in memory, so that the heads of a token can be joined without another copy
        result = q.new_zeros(q.transpose(1, 2).shape).transpose(1, 2)
        if merged:
            result.copy_(merged[0])
        ctx.save_for_backward(q, k, v, result, merged[1] if merged else None)
        ctx.ring, ctx.kernel, ctx.state = ring, kernel, state
        return result

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, lse = ctx.saved_tensors
        ring: _Ring = ctx.ring
        accurate = torch.promote_types(q.dtype, torch.float32)
        grad_out, grad_q = _rows(grad_out), q.new_zeros(q.shape, dtype=accurate)
        blocks, returning = (k, v), None
        *passing, last = ring.owners()
        for owner in (*passing, last):
            hop = ring.post(blocks, owner) if owner != last else None
            found = None
            if q.numel() and blocks[0].numel():
                found = ctx.kernel.backward(grad_out, q, *blocks, out, lse, ctx.state)
            gradients = returning.finish() if returning else _zeros(blocks, accurate)  # of the ranks before
            if found:
                for total, part in zip((grad_q, *gradients), found, strict=True):
                    total += part
                del found, part
            if ring.size > 1:
                returning = ring.post(gradients, owner)
            if hop:
                blocks = hop.finish()
        if returning:
            gradients = returning.finish()  # the last hop brings the gradients of own keys and values home
        return grad_q.to(q.dtype), gradients[0].to(k.dtype), gradients[1].to(v.dtype), None


def _merge(so_far: tuple[Tensor, Tensor] | None, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp over the keys of both parts; overwrites the output of the first."""
    if so_far is None:
        return out, lse
    merged, merged_lse = so_far
    return merged.lerp_(out, torch.sigmoid(lse - merged_lse).unsqueeze(3)), torch.logaddexp(merged_lse, lse)


def _rows(x: Tensor) -> Tensor:
    """The same with a last axis of stride 1, which the kernels take for granted."""
    return x if x.stride(3) == 1 else x.contiguous()


def _zeros(blocks: Blocks, dtype: torch.dtype) -> Blocks:
    return blocks[0].new_zeros(blocks[0].shape, dtype=dtype), blocks[1].new_zeros(blocks[1].shape, dtype=dtype)
