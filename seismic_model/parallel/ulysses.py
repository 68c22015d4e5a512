"""All tokens of some heads instead of some tokens of all heads (Jacobs et al. 2023, DeepSpeed Ulysses).

Rank u of U gets heads u · H / U to (u + 1) · H / U of the tokens of all ranks of the group, in the order of ranks, by
one all-to-all. Ranks may hold different numbers of tokens, or none. Gradients go the opposite way.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from seismic_model.model.vit import Lengths
from seismic_model.parallel.waiting import Waiting


class HeadExchange:
    """Moves tensors between the two layouts; every rank of the group calls it, even with no tokens."""

    def __init__(self, group: dist.ProcessGroup, waiting: Waiting) -> None:
        self._group, self._waiting = group, waiting
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def to_heads(self, x_BHND: Tensor, lengths: Lengths) -> Tensor:
        """(B, H, N, D) of own tokens → (B, H / U, ΣN, D); ``lengths`` are N of every rank. Raises ``ValueError``."""
        if x_BHND.shape[1] % self.size:
            raise ValueError(f"ulysses {self.size} does not divide {x_BHND.shape[1]} heads; expected a divisor")
        return _ToHeads.apply(x_BHND, lengths, self)  # type: ignore[no-any-return, no-untyped-call]

    def to_tokens(self, x_BHND: Tensor, lengths: Lengths) -> Tensor:
        """(B, H / U, ΣN, D) → (B, H, N, D) of own tokens; ``lengths`` are N of every rank."""
        return _ToTokens.apply(x_BHND, lengths, self)  # type: ignore[no-any-return, no-untyped-call]

    def gather_tokens(self, x_BHND: Tensor, lengths: Lengths) -> Tensor:
        """What ``to_heads`` does, without gradients; the result lies token by token in memory."""
        batch, heads, own, width = x_BHND.shape
        sent_UNBHD = x_BHND.view(batch, self.size, heads // self.size, own, width).permute(1, 3, 0, 2, 4).contiguous()
        return self._swap(sent_UNBHD.flatten(0, 1), [own] * self.size, list(lengths)).permute(1, 2, 0, 3)

    def gather_heads(self, x_BHND: Tensor, lengths: Lengths) -> Tensor:
        """What ``to_tokens`` does, without gradients; the result lies token by token in memory."""
        batch, heads, _, width = x_BHND.shape
        own = lengths[self.rank]
        received = self._swap(x_BHND.permute(2, 0, 1, 3).contiguous(), list(lengths), [own] * self.size)
        received_BNUHD = received.view(self.size, own, batch, heads, width).permute(2, 1, 0, 3, 4)
        return received_BNUHD.flatten(2, 3).transpose(1, 2)

    def _swap(self, sent: Tensor, sent_tokens: list[int], received_tokens: list[int]) -> Tensor:
        received = sent.new_empty((sum(received_tokens), *sent.shape[1:]))
        with self._waiting:
            dist.all_to_all_single(received, sent, received_tokens, sent_tokens, group=self._group)
        return received


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: Lengths, exchange: HeadExchange) -> Tensor:
        ctx.lengths, ctx.exchange = lengths, exchange
        return exchange.gather_tokens(x, lengths)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.exchange.gather_heads(grad, ctx.lengths), None, None


class _ToTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: Lengths, exchange: HeadExchange) -> Tensor:
        ctx.lengths, ctx.exchange = lengths, exchange
        return exchange.gather_heads(x, lengths)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.exchange.gather_tokens(grad, ctx.lengths), None, None
