"""Memory of one GPU at its fullest moment, from what the model's operators keep for backward.

Two sums. What is held all the time follows from the strategy, in bytes a parameter. What comes and goes follows from
the blocks: walking backward through the step, every moment holds what earlier blocks keep, and the working set of the
one that is being computed; the largest moment counts. The unit of a block is tokens × width × bytes of a number. On
the CPU, where it can be measured, some operators keep more than their CUDA kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from seismic_model.config import ModelConfig, StrategyName
from seismic_model.planner.blocks import Stack
from seismic_model.planner.flops import Tokens
from seismic_model.planner.layout import BYTES, Layout, Precision
from seismic_model.planner.parameters import block_parameters, parameters_of

Parts = dict[str, float]

BUCKET = 500_000_000  # gradients for which DeepSpeed reserves room at most
LIVE = 1_000_000_000  # weights that DeepSpeed's stage 3 keeps gathered
NORMED = 25 * 2**20  # bytes of gradients that DDP takes the norm of at once, in float64

# Bytes a parameter in DeepSpeed's optimiser step: everywhere, and shared by the GPUs. Measured with 1, 2 and 4 CPU
# processes, its bucket not counted
DEEPSPEED_STEP: dict[tuple[StrategyName, Precision], tuple[int, int]] = {
    ("zero1", "float32"): (8, 12),
    ("zero1", "bfloat16"): (10, 12),
    ("zero2", "float32"): (8, 12),
    ("zero2", "bfloat16"): (8, 16),
    ("zero3", "float32"): (8, 20),
    ("zero3", "bfloat16"): (8, 18),
}


def memory_of(
    model: ModelConfig, tokens: Tokens, layout: Layout, *, ema: bool = False, scratch: int = 0
) -> dict[str, int]:
    """Bytes by part; ``scratch`` is what attention's kernel takes for itself in backward."""
    parameters = sum(parameters_of(model).values())
    held = _held(parameters, layout)
    if ema:
        held["averaged weights"] = 4 * parameters / _copies(layout)
    moments = [*_moments(model, tokens, layout, scratch), _optimiser_step(parameters, held, layout)]
    fullest = max(moments, key=lambda parts: sum(parts.values()))
    parts = {part: held.get(part, 0) + fullest.get(part, 0) for part in {**held, **fullest}}
    return {part: math.ceil(size) for part, size in parts.items()}


def _copies(layout: Layout) -> int:
    """GPUs that share one optimiser."""
    return 1 if layout.strategy == "ddp" else layout.shards


def _held(parameters: int, layout: Layout) -> Parts:
    """What stays from step to step; FSDP2 makes gradients anew, and its weights are the masters."""
    number, shards, bucket = BYTES[layout.precision], layout.shards, min(parameters, BUCKET)
    weights, gradients, optimiser, buckets = float(number), 4.0, 12.0 / shards, 0.0
    match layout.strategy:
        case "ddp":
            optimiser = 8 if number == 4 else 12
        case "zero1":
            buckets = 4 * bucket if number == 4 else 0
        case "zero2":
            gradients, buckets = 4 / shards, number * bucket
        case "zero3":
            weights, gradients = number / shards, 4 / shards
            buckets = 4 * bucket + number * min(parameters, LIVE)
        case "fsdp2" | "hsdp":
            weights, optimiser = 4 / shards, 8 / shards
            gradients = 0 if layout.accumulation == 1 else 4  # whole ones until the last micro-batch
    return {
        "weights": weights * parameters,
        "gradients": gradients * parameters,
        "master weights and moments": optimiser * parameters,
        "gathered weights and buckets": buckets,
    }


def _optimiser_step(parameters: int, held: Parts, layout: Layout) -> Parts:
    """What the step itself takes: norms in float64, and copies of DeepSpeed's."""
    if layout.strategy == "ddp":
        return {"optimiser step": 2 * min(4.0 * parameters, NORMED)}
    if layout.strategy in ("fsdp2", "hsdp"):
        return {"gradients": 4 * parameters / layout.shards}
    everywhere, shared = DEEPSPEED_STEP[layout.strategy, layout.precision]
    whole = (everywhere + shared / layout.shards) * parameters
    return {"optimiser step": max(0.0, whole - sum(held.values()) + held["gathered weights and buckets"])}


def _moments(model: ModelConfig, tokens: Tokens, layout: Layout, scratch: int) -> Iterator[Parts]:
    """What is held beside weights, gradients and moments: at the loss, and in each block's turn in backward."""
    counts = (tokens.whole, tokens.visible, tokens.decoded)
    whole, visible, decoded = (layout.crops * math.ceil(n / layout.cp) for n in counts)
    encoded, number, patch = visible + layout.crops * tokens.registers, BYTES[layout.precision], model.patch_voxels
    shared = (number, layout.checkpointing, layout.ring, layout.ulysses)
    encoder = Stack(encoded, encoded, model.width, model.heads, model.depth, False, *shared)
    cross = model.decoder == "cross"
    queries, keys = (decoded, visible) if cross else (visible + decoded,) * 2
    decoder = Stack(queries, keys, model.decoder_width, model.decoder_heads, model.decoder_depth, cross, *shared)
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
    # error in float32, which takes the memory of a float32 target; where it is dead
    loss = decoded * patch * (4 + 1 + (number if number < 4 else 0))
    yield {"data": batch, "activations": everything, "head and loss": prediction + loss}
    behind_decoder = decoder.depth * block_parameters(decoder.width, decoder.heads)
    for stack, under, done in (
        (decoder, below + encoder.depth * encoder.kept + between, 0),
        (encoder, below, behind_decoder),
    ):
        block = block_parameters(stack.width, stack.heads)
        for depth in {stack.depth, 1}:  # the last block comes first
            sharded = _block_of_fsdp(block, done + (stack.depth - depth) * block, layout)
            for turn in stack.turns(scratch):
                kept = under + (depth - 1) * stack.kept
                yield {"data": batch, "activations": kept, "head and loss": prediction} | turn | sharded


def _block_of_fsdp(block: int, done: int, layout: Layout) -> Parts:
    """Gradients that FSDP2 has found, and its block: two sets of weights, its gradients and what is sent of them."""
    if layout.strategy not in ("fsdp2", "hsdp"):
        return {}
    number, found = BYTES[layout.precision], 0.0 if layout.accumulation > 1 else 4 * done / layout.shards
    return {"gradients": found, "gathered weights and buckets": (3 * number + 4) * block}
