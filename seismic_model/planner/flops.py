"""Floating-point operations of one crop, exactly as the model multiplies; a multiply and an add are two.

Matrix products only: norms, GELU and rotation are below 1 % of them and are counted nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from seismic_model.config import Checkpointing, ModelConfig, Triple

Part = Literal["encoder linear", "encoder attention", "decoder linear", "decoder attention"]

MLP_RATIO = 4


@dataclass(frozen=True)
class Tokens:
    """How many tokens of one crop take which part."""

    whole: int  # L, of the crop
    visible: int  # K, that the encoder sees
    registers: int  # R, beside them; dropped behind the encoder
    decoded: int  # M, hidden ones that are decoded and scored

    @property
    def encoded(self) -> int:
        """K + R."""
        return self.visible + self.registers


@dataclass(frozen=True)
class Work:
    """Operations of one part, for one crop."""

    forward: int
    backward: int  # gradients alone
    recompute: int  # what backward computes a second time

    @property
    def total(self) -> int:
        """All that the GPU is given to do."""
        return self.forward + self.backward + self.recompute


def tokens_of(model: ModelConfig, window: Triple, keep_ratio: float, decode_share: float = 1.0) -> Tokens:
    """Tokens of a crop of ``window`` voxels. Raises ``ValueError`` when the patch does not divide the window."""
    if any(w < 1 or w % p for w, p in zip(window, model.patch, strict=True)):
        raise ValueError(f"window {window} is not a positive multiple of patch {model.patch}")
    whole = math.prod(window) // model.patch_voxels
    visible = max(1, round(keep_ratio * whole))
    decoded = max(1, round(decode_share * (whole - visible)))
    return Tokens(whole, visible, model.registers, decoded)


def flops_per_sample(model: ModelConfig, window: Triple, keep_ratio: float, decode_share: float = 1.0) -> int:
    """Operations of forward and backward of one crop, nothing counted twice: what MFU is taken over."""
    work = work_of(model, tokens_of(model, window, keep_ratio, decode_share), "none")
    return sum(part.forward + part.backward for part in work.values())


def work_of(model: ModelConfig, tokens: Tokens, checkpointing: Checkpointing) -> Mapping[Part, Work]:
    """Operations by part. The fused attention computes its scores anew in backward, checkpointed or not."""
    embed = 2 * tokens.visible * model.patch_voxels * model.width
    encoder = _Block(tokens.encoded, tokens.encoded, model.width)
    if model.decoder == "self":
        seen = tokens.visible + tokens.decoded
        decoder = _Block(seen, seen, model.decoder_width)
    else:
        decoder = _Block(tokens.decoded, tokens.visible, model.decoder_width)
    handed_on = 2 * tokens.visible * model.width * model.decoder_width
    statistics = 2 if model.patch_normalisation else 0
    head = 2 * tokens.decoded * model.decoder_width * (model.patch_voxels + statistics)
    return {
        "encoder linear": _linear(encoder, model.depth, checkpointing, first=embed),
        "encoder attention": _attention(encoder, model.depth, checkpointing),
        "decoder linear": _linear(decoder, model.decoder_depth, checkpointing, rest=handed_on + head),
        "decoder attention": _attention(decoder, model.decoder_depth, checkpointing),
    }


@dataclass(frozen=True)
class _Block:
    """Operations of one block forward: ``queries`` tokens attend to ``keys`` tokens."""

    queries: int
    keys: int
    width: int

    @property
    def linear(self) -> int:
        """Projections of queries, keys, values and output, and the MLP."""
        projections = 2 * self.queries + 2 * self.keys
        return 2 * self.width**2 * (projections + 2 * MLP_RATIO * self.queries)

    @property
    def attention(self) -> int:
        """Scores and their product with the values."""
        return 4 * self.queries * self.keys * self.width


def _linear(block: _Block, depth: int, checkpointing: Checkpointing, first: int = 0, rest: int = 0) -> Work:
    """``first`` takes no gradient of its input; ``rest`` is outside the blocks and never recomputed."""
    forward = depth * block.linear
    again = 0 if checkpointing == "none" else depth * block.linear
    return Work(forward + first + rest, 2 * (forward + rest) + first, again)


def _attention(block: _Block, depth: int, checkpointing: Checkpointing) -> Work:
    forward = depth * block.attention
    return Work(forward, 2 * forward, forward // 2 + (forward if checkpointing == "full" else 0))
