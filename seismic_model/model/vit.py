"""Transformer blocks over tokens that may be spread over several ranks.

The only step that looks beyond a rank's own tokens is the attention callable, given from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seismic_model.config import Checkpointing
from seismic_model.model.rope import Rotation, rotate

Lengths = tuple[int, ...]
"""Tokens of every rank that shares a crop."""

Attention = Callable[[Tensor, Tensor, Tensor, Lengths, Lengths], Tensor]
"""(own q (B, H, N, D), own k and v (B, H, M, D), N of every rank, M of every rank) → (B, H, N, D), attending to all."""


def full_attention(q_BHND: Tensor, k_BHMD: Tensor, v_BHMD: Tensor, q_lengths: Lengths, kv_lengths: Lengths) -> Tensor:
    """Attention of one process that holds all tokens."""
    if (q_lengths, kv_lengths) != ((q_BHND.shape[2],), (k_BHMD.shape[2],)):
        raise ValueError(
            f"{q_BHND.shape[2]} queries of {q_lengths} and {k_BHMD.shape[2]} keys of {kv_lengths} are not all here; "
            "use ring attention"
        )
    return F.scaled_dot_product_attention(q_BHND, k_BHMD, v_BHMD)


@dataclass(frozen=True)
class Place:
    """Where a rank's tokens are, and how many tokens every rank holds."""

    rotation: Rotation
    lengths: Lengths


class SelfAttention(nn.Module):
    """Multi-head attention with RMS-normalised queries and keys (Dehghani et al. 2023) and rotary positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.query_norm = nn.RMSNorm(width // heads, eps=1e-6)
        self.key_norm = nn.RMSNorm(width // heads, eps=1e-6)
        self.out = nn.Linear(width, width)

    def project(self, x_BNW: Tensor, at: Place) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (B, H, N, D) of own tokens."""
        q, k, v = _heads(self.qkv(x_BNW), 3, self.heads)
        return rotate(self.query_norm(q), at.rotation), rotate(self.key_norm(k), at.rotation), v


class CrossAttention(nn.Module):
    """The same, from own tokens to those of a memory (Fu et al. 2024, CrossMAE)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.query_norm = nn.RMSNorm(width // heads, eps=1e-6)
        self.key_norm = nn.RMSNorm(width // heads, eps=1e-6)
        self.out = nn.Linear(width, width)

    def project(self, x_BNW: Tensor, at: Place, memory_BMW: Tensor, memory_at: Place) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, N, D) of own tokens, keys and values (B, H, M, D) of the memory's own part."""
        (q,) = _heads(self.query(x_BNW), 1, self.heads)
        k, v = _heads(self.key_value(memory_BMW), 2, self.heads)
        return rotate(self.query_norm(q), at.rotation), rotate(self.key_norm(k), memory_at.rotation), v


class Block(nn.Module):
    """Pre-norm transformer block; the MLP is four times as wide. With ``cross`` it attends to a memory only.

    All communication is in the attention callable: what comes before and after it looks at own tokens only.
    """

    def __init__(self, width: int, heads: int, *, cross: bool = False) -> None:
        super().__init__()
        self.checkpointing: Checkpointing = "none"
        self.attention_norm = nn.LayerNorm(width, eps=1e-6)
        self.attention = CrossAttention(width, heads) if cross else SelfAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x_BNW: Tensor, at: Place, attention: Attention, *memory: Any) -> Tensor:
        """(B, N, W) → (B, N, W); ``memory`` is none, or (B, M, W) and its ``Place`` in a cross block."""
        if self.checkpointing == "full":
            return _recomputed(self._attend, x_BNW, at, attention, *memory)  # type: ignore[no-any-return]
        return self._attend(x_BNW, at, attention, *memory)

    def _attend(self, x_BNW: Tensor, at: Place, attention: Attention, *memory: Any) -> Tensor:
        part = _recomputed if self.checkpointing == "selective" else _kept
        kv_lengths = memory[1].lengths if memory else at.lengths
        q_BHND, k_BHMD, v_BHMD = part(self._before, x_BNW, at, *memory)
        mixed_BHND = attention(q_BHND, k_BHMD, v_BHMD, at.lengths, kv_lengths)
        return part(self._after, x_BNW, mixed_BHND)  # type: ignore[no-any-return]

    def _before(self, x_BNW: Tensor, at: Place, *memory: Any) -> tuple[Tensor, Tensor, Tensor]:
        return self.attention.project(self.attention_norm(x_BNW), at, *memory)

    def _after(self, x_BNW: Tensor, mixed_BHND: Tensor) -> Tensor:
        x_BNW = x_BNW + self.attention.out(mixed_BHND.transpose(1, 2).flatten(2))
        return x_BNW + self.mlp(self.mlp_norm(x_BNW))  # type: ignore[no-any-return]


def _heads(projected_BNW: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """(B, N, parts · H · D) → one (B, H, N, D) for each part."""
    split = projected_BNW.reshape(*projected_BNW.shape[:2], parts, heads, projected_BNW.shape[2] // (parts * heads))
    return split.permute(2, 0, 3, 1, 4).unbind(0)


def _recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it, keep its arguments only, and call it again in backward."""
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


def _kept(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)
