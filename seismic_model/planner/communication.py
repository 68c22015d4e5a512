"""What the GPUs send each other for one micro-batch or step, and whether it hides behind what they compute.

Bytes are those that one GPU sends. A hop of the ring is posted before the attention to the block that is here, so it
hides when it is the shorter of the two; heads are exchanged when nothing else is to do; gradients are reduced, and
weights gathered, behind the passes named below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seismic_model.config import ModelConfig
from seismic_model.planner.assumptions import Machine
from seismic_model.planner.flops import Tokens
from seismic_model.planner.layout import BYTES, Layout

MERGE_BYTES = 28  # per element of the output: eager merging of two partial results in float32


@dataclass(frozen=True)
class Transfer:
    """One kind of traffic of one GPU in one optimiser step."""

    name: str
    bytes_sent: float
    seconds: float
    exposed_seconds: float  # that nothing hides

    @property
    def hides(self) -> bool:
        """Whether the GPU computes all the while."""
        return self.exposed_seconds == 0


@dataclass(frozen=True)
class Passes:
    """Seconds that one GPU computes in one micro-batch."""

    forward: float
    backward: float  # recomputation included


@dataclass(frozen=True)
class _Mixing:
    """Attention of one part of the model."""

    queries: int  # tokens of the whole crop
    keys: int
    width: int
    depth: int


def mixings(model: ModelConfig, tokens: Tokens) -> list[_Mixing]:
    """Attention of encoder and decoder."""
    encoder = _Mixing(tokens.encoded, tokens.encoded, model.width, model.depth)
    seen = tokens.visible + tokens.decoded
    queries, keys = (seen, seen) if model.decoder == "self" else (tokens.decoded, tokens.visible)
    return [encoder, _Mixing(queries, keys, model.decoder_width, model.decoder_depth)]


def merge_seconds(model: ModelConfig, tokens: Tokens, layout: Layout, machine: Machine) -> float:
    """Seconds that one GPU spends in one micro-batch on joining what its attention found at each hop."""
    if layout.ring == 1:
        return 0.0
    elements = sum(
        part.depth * layout.ring * (part.queries + part.queries + 2 * part.keys) * part.width / layout.cp
        for part in mixings(model, tokens)
    )
    return layout.crops * elements / 2 * MERGE_BYTES / machine.memory_rate


def transfers(
    model: ModelConfig, parameters: int, tokens: Tokens, layout: Layout, machine: Machine, passes: Passes
) -> list[Transfer]:
    """All traffic of one optimiser step."""
    found = []
    if layout.ring > 1:
        found.append(_ring(model, tokens, layout, machine))
    if layout.ulysses > 1:
        found.append(_all_to_all(model, tokens, layout, machine))
    if layout.gpus > 1:
        found.extend(_strategy(parameters, layout, machine, passes))
    return found


def _ring(model: ModelConfig, tokens: Tokens, layout: Layout, machine: Machine) -> Transfer:
    rate = machine.neighbour_rate(inside_node=layout.ring_inside_node)
    flops = machine.attention_flops(layout.precision)
    ring, rounds = layout.ring, 2 if layout.checkpointing == "full" else 1
    sent = seconds = exposed = 0.0
    for part in mixings(model, tokens):
        elements = 2 * layout.crops * (part.keys / ring) * (part.width / layout.ulysses)  # of one block's k and v
        hop, gradient_hop = elements * BYTES[layout.precision], elements * 4
        compute = 2 * elements * (part.queries / ring) / flops
        forward, backward = hop / rate, (hop + gradient_hop) / rate
        home = gradient_hop / rate  # the last one has no more attention to hide behind
        sent += part.depth * ((rounds + 1) * (ring - 1) * hop + ring * gradient_hop)
        seconds += part.depth * (rounds * (ring - 1) * forward + (ring - 1) * backward + home)
        exposed += part.depth * (
            rounds * (ring - 1) * max(0.0, forward - compute) + (ring - 1) * max(0.0, backward - 2.5 * compute) + home
        )
    times = layout.accumulation
    return Transfer("ring hops", times * sent, times * seconds, times * exposed)


def _all_to_all(model: ModelConfig, tokens: Tokens, layout: Layout, machine: Machine) -> Transfer:
    rounds = 2 if layout.checkpointing == "full" else 1
    elements = sum(2 * (part.queries + part.keys) * part.width * part.depth for part in mixings(model, tokens))
    share = (layout.ulysses - 1) / layout.ulysses / layout.cp
    sent = layout.accumulation * layout.crops * (rounds + 1) * elements * BYTES[layout.precision] * share
    seconds = sent / machine.neighbour_rate(inside_node=True)
    return Transfer("all-to-all of heads", sent, seconds, seconds)


def _strategy(parameters: int, layout: Layout, machine: Machine, passes: Passes) -> Iterator[Transfer]:
    rate, share = machine.collective_rate(layout.gpus), (layout.gpus - 1) / layout.gpus
    gradients, weights = 4 * parameters * share, BYTES[layout.precision] * parameters * share
    times, micro = layout.accumulation, passes.forward + passes.backward
    match layout.strategy:
        case "ddp":
            yield _behind("gradient all-reduce", 2 * gradients, rate, passes.backward)
        case "zero1" | "zero2":
            yield _behind("gradient reduce-scatter", gradients, rate, passes.backward)
            yield _behind("weight all-gather", weights, rate, 0.0)
        case "zero3" | "fsdp2":
            yield _behind("gradient reduce-scatter", gradients, rate, passes.backward)
            yield _behind("weight all-gathers", 2 * times * weights, rate, times * micro)
        case "hsdp":
            inside = machine.collective_rate(layout.node)
            own, nodes = (layout.node - 1) / layout.node, layout.gpus // layout.node
            yield _behind("gradient reduce-scatter", 4 * parameters * own, inside, passes.backward)
            across = 2 * 4 * parameters / layout.node * (nodes - 1) / nodes
            yield _behind("gradient all-reduce", across, machine.neighbour_rate(inside_node=False), passes.backward)
            gathered = 2 * times * BYTES[layout.precision] * parameters * own
            yield _behind("weight all-gathers", gathered, inside, times * micro)


def _behind(name: str, sent: float, rate: float, cover: float) -> Transfer:
    return Transfer(name, sent, sent / rate, max(0.0, sent / rate - cover))
