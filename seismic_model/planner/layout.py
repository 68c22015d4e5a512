"""How the GPUs are arranged: dp × (ring × ulysses), the strategy, and what backward computes again."""

from __future__ import annotations

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
    accumulation: int = 1

    @property
    def cp(self) -> int:
        """GPUs that share one crop."""
        return self.ring * self.ulysses

    @property
    def dp(self) -> int:
        """Crops side by side."""
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


def layouts(model: ModelConfig, gpus: int, gpus_per_node: int, choice: Choice) -> Iterator[Layout]:
    """All layouts that keep to the choice, the plainest first."""
    node = min(gpus_per_node, gpus)
    for cp in _divisors(gpus):
        if choice.cp not in (None, cp) or not (node % cp == 0 or cp % node == 0):
            continue
        dp = gpus // cp
        if choice.batch is not None and choice.batch % dp:
            continue
        for ulysses in _divisors(cp):
            heads_divide = model.heads % ulysses == 0 and model.decoder_heads % ulysses == 0
            if choice.ulysses not in (None, ulysses) or node % ulysses or not heads_divide:
                continue
            for strategy in get_args(StrategyName):
                if choice.strategy not in (None, strategy) or (strategy == "hsdp" and (gpus == node or gpus % node)):
                    continue
                for checkpointing in get_args(Checkpointing):
                    if choice.checkpointing in (None, checkpointing):
                        accumulation = 1 if choice.batch is None else choice.batch // dp
                        yield Layout(
                            gpus,
                            node,
                            cp // ulysses,
                            ulysses,
                            strategy,
                            checkpointing,
                            choice.precision,
                            accumulation,
                        )


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
