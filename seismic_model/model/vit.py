"""Transformer blocks over tokens that may be spread over several ranks.

The only step that looks beyond a rank's own tokens is the attention callable, given from outside.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from seismic_model.model.rope import rotate

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


class SelfAttention(nn.Module):
    """Multi-head attention with RMS-normalised queries and keys (Dehghani et al. 2023) and rotary positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.query_norm = nn.RMSNorm(width // heads, eps=1e-6)
        self.key_norm = nn.RMSNorm(width // heads, eps=1e-6)
        self.out = nn.Linear(width, width)

    def forward(self, x_BNW: Tensor, angles_BND: Tensor, attention: Attention, lengths: tuple[int, ...]) -> Tensor:
        """Attend from own tokens to those of all ranks; ``angles`` are the rotary angles of own tokens."""
        batch, tokens, width = x_BNW.shape
        qkv = self.qkv(x_BNW).reshape(batch, tokens, 3, self.heads, width // self.heads)
        q_BHND, k_BHND, v_BHND = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q_BHND = rotate(self.query_norm(q_BHND), angles_BND)
        k_BHND = rotate(self.key_norm(k_BHND), angles_BND)
        mixed_BHND = attention(q_BHND, k_BHND, v_BHND, lengths, lengths)
        return self.out(mixed_BHND.transpose(1, 2).reshape(batch, tokens, width))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Pre-norm transformer block; the MLP is four times as wide."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=1e-6)
        self.attention = SelfAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x_BNW: Tensor, angles_BND: Tensor, attention: Attention, lengths: tuple[int, ...]) -> Tensor:
        """(B, N, W) → (B, N, W)."""
        x_BNW = x_BNW + self.attention(self.attention_norm(x_BNW), angles_BND, attention, lengths)
        return x_BNW + self.mlp(self.mlp_norm(x_BNW))  # type: ignore[no-any-return]
