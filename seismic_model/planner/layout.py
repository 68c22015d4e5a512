"""How the GPUs are arranged: dp × (ring × ulysses), the strategy, and what backward computes again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from seismic_model.config import Checkpointing, ModelConfig, StrategyName

Precision = Literal["float32", "bfloat16"]
BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Layout:
    """One way to use ``gpus`` GPUs, ``node`` of them joined by NVLink."""

    gpus: int
    node: int
    ring: int
    ulysses: int
    strategy: StrategyName
    checkpointing: Checkpointing
    precision: Precision
    crops: int = 1  # in one micro-batch of each group that shares them
    accumulation: int = 1  # micro-batches in one step

    @property
    def cp(self) -> int:
        """GPUs that share one crop."""
        return self.ring * self.ulysses

    @property
    def dp(self) -> int:
        """Groups side by side."""
        return self.gpus // self.cp

    @property
    def shards(self) -> int:
        """GPUs that share one copy of what the strategy partitions."""
        return self.node if self.strategy == "hsdp" else self.gpus

    @property
    def ring_inside_node(self) -> bool:
        """Whether every hop stays on NVLink; a ring is as fast as its slowest hop."""
        return self.cp <= self.node


@dataclass(frozen=True)
class Choice:
    """What the asker has fixed; None leaves it to the planner."""

    cp: int | None = None
    ulysses: int | None = None
    strategy: StrategyName | None = None
    checkpointing: Checkpointing | None = None
    precision: Precision = "bfloat16"
    batch: int | None = None  # crops in one optimiser step
    accumulation: int | None = None  # micro-batches in one optimiser step


def layouts(model: ModelConfig, gpus: int, gpus_per_node: int, choice: Choice) -> Iterator[Layout]:
    """All layouts that keep to the choice; without a batch each group takes one crop at a time."""
    node = min(gpus_per_node, gpus)
    strategies = [choice.strategy] if choice.strategy else get_args(StrategyName)
    checkpointing = [choice.checkpointing] if choice.checkpointing else get_args(Checkpointing)
    arranged = itertools.product(_groups(model, gpus, node, choice), strategies, checkpointing)
    for (ring, ulysses), strategy, recomputed in arranged:
        if strategy == "hsdp" and (gpus == node or gpus % node):
            continue
        for crops, accumulation in _micro_batches(gpus // (ring * ulysses), choice):
            yield Layout(gpus, node, ring, ulysses, strategy, recomputed, choice.precision, crops, accumulation)


def _groups(model: ModelConfig, gpus: int, node: int, choice: Choice) -> Iterator[tuple[int, int]]:
    """Ring and ulysses; heads are exchanged on NVLink only, so inside a node."""
    for cp in [choice.cp] if choice.cp else _divisors(gpus):
        if gpus % cp or (node % cp and cp % node):
            continue
        for ulysses in [choice.ulysses] if choice.ulysses else _divisors(cp):
            if not any(whole % ulysses for whole in (cp, node, model.heads, model.decoder_heads)):
                yield cp // ulysses, ulysses


def _micro_batches(groups: int, choice: Choice) -> Iterator[tuple[int, int]]:
    """Crops at a time, and how many times in a step."""
    if choice.batch is None:
        yield 1, choice.accumulation or 1
    elif choice.batch % groups == 0:
        crops = choice.batch // groups
        for accumulation in [choice.accumulation] if choice.accumulation else _divisors(crops):
            if crops % accumulation == 0:
                yield crops // accumulation, accumulation


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]
