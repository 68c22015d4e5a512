"""Memory of one GPU at its fullest moment, from what the model's operators keep for backward.

Two sums. What is held all the time follows from the strategy, in bytes a parameter. What comes and goes follows from
the blocks: walking backward through the step, every moment holds what earlier blocks keep, and the working set of the
one that is being computed; the largest moment counts. The unit of a block is tokens × width × bytes of a number. On
the CPU, where it can be measured, some operators keep more than their CUDA kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from seismic_model.config import Checkpointing, ModelConfig
from seismic_model.planner.flops import Tokens
from seismic_model.planner.layout import BYTES, Layout
from seismic_model.planner.parameters import block_parameters

Parts = dict[str, float]

MLP_KEPT = 10  # units: sum behind attention, its norm, and the four times as wide input and output of GELU
MLP_GRADIENTS = 5  # units, where GELU is differentiated: two of four times the width, one freed, and the skip's
BUCKET = 500_000_000  # gradients that DeepSpeed reduces at once
LIVE = 1_000_000_000  # weights that DeepSpeed stage 3 keeps gathered


def memory_of(
    model: ModelConfig,
    tokens: Tokens,
    parameters: int,
    layout: Layout,
    *,
    ema: bool = False,
    on_cpu: bool = False,
) -> dict[str, int]:
    """Bytes by part. ``on_cpu`` counts as the CPU's operators keep it."""
    held = _held(model, parameters, layout)
    if ema:
        held["averaged weights"] = 4 * parameters / _copies(layout)
    fullest = max(_moments(model, tokens, layout, on_cpu), key=lambda parts: sum(parts.values()))
    return {part: math.ceil(size) for part, size in (held | fullest).items()}


def _copies(layout: Layout) -> int:
    """GPUs that share one optimiser."""
    return 1 if layout.strategy == "ddp" else layout.shards


def _held(model: ModelConfig, parameters: int, layout: Layout) -> Parts:
    width, shards = BYTES[layout.precision], layout.shards
    master = 4 if layout.precision != "float32" and layout.strategy in ("ddp", "zero1", "zero2", "zero3") else 0
    weights, gradients, buffers = float(width), 4.0, 0.0
    bucket = (width + 4) * min(parameters, BUCKET)  # as it is found, and in float32 on its way
    match layout.strategy:
        case "zero1":
            buffers = bucket
        case "zero2":
            gradients, buffers = 4 / shards, bucket
        case "zero3":
            weights, gradients = width / shards, 4 / shards
            buffers = bucket + width * min(parameters, LIVE)
        case "fsdp2" | "hsdp":  # its weights are the masters; two blocks and the rest are gathered to compute
            weights, gradients = 4 / shards, 4 / shards if layout.accumulation == 1 else 4.0
            block = block_parameters(model.width, model.heads)
            rest = parameters - model.depth * block
            buffers = width * (2 * block + rest) + (width + 4) * block
    return {
        "weights": weights * parameters,
        "gradients": gradients * parameters,
        "master weights and moments": (master + 8) * parameters / _copies(layout),
        "gathered weights and buckets": buffers,
    }


@dataclass(frozen=True)
class _Stack:
    """The blocks of encoder or decoder, as one GPU holds them."""

    queries: int  # own tokens
    keys: int
    width: int
    heads: int
    depth: int
    cross: bool
    number: int  # bytes
    checkpointing: Checkpointing
    ring: int
    ulysses: int
    on_cpu: bool

    @property
    def unit(self) -> float:
        """Of queries."""
        return self.queries * self.width * self.number

    @property
    def key_unit(self) -> float:
        """Of keys."""
        return self.keys * self.width * self.number

    @cached_property
    def attended(self) -> float:
        """What a block keeps up to its attention: input, norm, q, k, v, turned q and k, output."""
        kept = 5 * self.unit + 3 * self.key_unit
        kept += 4 * self.heads * (2 * self.queries + self.keys)  # log-sum-exp, norms of q and k
        if self.ulysses > 1:  # v and the output lie in both layouts
            kept += self.unit + self.key_unit
        if self.on_cpu:  # q and k before their gains, in float32; the heads are joined by a copy
            accurate = 1 if self.number == 4 else 4
            kept += accurate * (self.unit + self.key_unit) + (self.unit if self.ring == self.ulysses == 1 else 0)
        return kept

    @property
    def kept(self) -> float:
        """What a block keeps until its turn in backward comes."""
        match self.checkpointing:
            case "none":
                return self.attended + MLP_KEPT * self.unit
            case "selective":  # what attention takes and gives, v within q, k, v; and the block's input
                projected = self.unit + 2 * self.key_unit if not self.cross else 2 * self.key_unit
                return 3 * self.unit + self.key_unit + projected + 4 * self.heads * self.queries
            case "full":
                return self.unit

    def turns(self) -> Iterator[Parts]:
        """What a block's turn in backward adds to what all blocks up to it keep: in its MLP, and in its attention."""
        again = {
            "none": 0.0,
            "selective": MLP_KEPT * self.unit,
            "full": self.attended + MLP_KEPT * self.unit - self.unit,
        }
        passed_on = 2 * self.key_unit if self.cross else 0.0  # gradient of the visible tokens
        yield {"block in backward": again[self.checkpointing] + MLP_GRADIENTS * self.unit + passed_on}
        left = {"none": -MLP_KEPT * self.unit, "selective": 0.0, "full": self.attended - self.unit}
        gradients = 3 * self.unit + 2 * self.key_unit + passed_on  # of the sum, the output, q, k and v
        yield {"block in backward": left[self.checkpointing] + gradients, "attention hops": self.hops}

    @property
    def hops(self) -> float:
        """Blocks of keys and values on the ring, and their gradients in float32, beside attention's own."""
        if self.ring == 1:
            return 0.0
        accurate = 4 / self.number
        return 3 * self.key_unit + accurate * (self.unit + 4 * self.key_unit)


def _moments(model: ModelConfig, tokens: Tokens, layout: Layout, on_cpu: bool) -> Iterator[Parts]:
    """What is held beside weights, gradients and moments: at the loss, and in each block's turn in backward."""
    counts = (tokens.whole, tokens.visible, tokens.decoded)
    whole, visible, decoded = (layout.crops * math.ceil(n / layout.cp) for n in counts)
    encoded, number, patch = visible + layout.crops * tokens.registers, BYTES[layout.precision], model.patch_voxels
    shared = (number, layout.checkpointing, layout.ring, layout.ulysses, on_cpu)
    encoder = _Stack(encoded, encoded, model.width, model.heads, model.depth, False, *shared)
    cross = model.decoder == "cross"
    queries, keys = (decoded, visible) if cross else (visible + decoded,) * 2
    decoder = _Stack(queries, keys, model.decoder_width, model.decoder_heads, model.decoder_depth, cross, *shared)
    # cosines and sines for a head, in float32
    turned = [(encoded, model.width / model.heads)]
    turned += [(n, model.decoder_width / model.decoder_heads) for n in ((queries, keys) if cross else (queries,))]
    rotations = sum(4 * n * head for n, head in turned)
    batch = whole * patch * (number + 1)  # amplitudes and whether they are live
    embedded = visible * patch * number
    between = number * (encoded * model.width + 2 * visible * model.width + visible * model.decoder_width)
    ending = number * (1 if cross else 2) * decoded * model.decoder_width
    prediction = decoded * patch * number

    below = embedded + rotations
    everything = below + encoder.depth * encoder.kept + between + decoder.depth * decoder.kept + ending
    # prediction and target, both in float32 too, difference, its square, the live part of that
    loss = decoded * patch * (1 + number + (8 if number < 4 else 0) + 12) + whole * patch * number
    yield {"data": batch, "activations": everything, "head and loss": prediction + loss}
    for stack, under in ((encoder, below), (decoder, below + encoder.depth * encoder.kept + between)):
        for turn in stack.turns():
            kept = under + stack.depth * stack.kept
            yield {"data": batch, "activations": kept, "head and loss": prediction} | turn
