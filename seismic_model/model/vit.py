"""Transformer blocks over tokens that may be spread over several ranks.

The only step that looks beyond a rank's own tokens is the attention callable, given from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seismic_model.config import Checkpointing
from seismic_model.model.layers import Mlp, Projection

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

    rotation_BND: Tensor  # see ``rope.rotation``
    lengths: Lengths


class Block(nn.Module):
    """Pre-norm transformer block; the MLP is four times as wide.

    Queries and keys are RMS-normalised (Dehghani et al. 2023) and turned by their positions. With ``cross`` the block
    attends to a memory only (Fu et al. 2024, CrossMAE). All communication is in the attention callable: what comes
    before and after it looks at own tokens only.
    """

    def __init__(self, width: int, heads: int, *, cross: bool = False) -> None:
        super().__init__()
        self.checkpointing: Checkpointing = "none"
        self.project = Projection(width, heads, turned=1 if cross else 2, plain=0 if cross else 1)
        self.project_memory = Projection(width, heads, turned=1, plain=1, normed=False) if cross else None
        self.out = nn.Linear(width, width)
        self.mlp = Mlp(width)

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

    def _before(self, x_BNW: Tensor, at: Place, *memory: Any) -> tuple[Tensor, ...]:
        parts: tuple[Tensor, ...] = self.project(x_BNW, at.rotation_BND)
        if self.project_memory is not None:
            memory_BMW, memory_at = memory
            parts += self.project_memory(memory_BMW, memory_at.rotation_BND)
        return parts

    def _after(self, x_BNW: Tensor, mixed_BHND: Tensor) -> Tensor:
        return self.mlp(x_BNW + self.out(mixed_BHND.transpose(1, 2).flatten(2)))  # type: ignore[no-any-return]


def compile_blocks(model: nn.Module) -> None:
    """Let torch.compile fuse what the blocks of ``model`` do before and after attention; tokens must stay as many."""
    for block in model.modules():
        if isinstance(block, Block):
            block._before = torch.compile(block._before, dynamic=False)  # type: ignore[method-assign]
            block._after = torch.compile(block._after, dynamic=False)  # type: ignore[method-assign]


def _recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it, keep its arguments only, and call it again in backward."""
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


def _kept(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)
