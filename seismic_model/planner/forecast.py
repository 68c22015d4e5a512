"""What one layout takes: memory of a GPU, time of a step, days and price of a data set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ingestion.manifest import CHUNK
from seismic_model.config import ModelConfig, Triple
from seismic_model.planner.assumptions import Machine
from seismic_model.planner.communication import Passes, Transfer, merge_seconds, transfers
from seismic_model.planner.flops import Part, Tokens, Work, tokens_of, work_of
from seismic_model.planner.layout import Layout
from seismic_model.planner.memory import memory_of
from seismic_model.planner.parameters import parameters_of

_VOXEL_BYTES = 4  # float32; compressing seismic amplitudes saves little
_OPTIMISER_BYTES = 30  # a weight: master and both moments read and written, gradient read, weight written


@dataclass(frozen=True)
class Task:
    """What is to be trained, whatever the machines."""

    model: ModelConfig
    window: Triple  # voxels
    keep_ratio: float = 0.25
    decode_share: float = 1.0
    ema: bool = False

    @cached_property
    def tokens(self) -> Tokens:
        """Of one crop."""
        return tokens_of(self.model, self.window, self.keep_ratio, self.decode_share)

    @cached_property
    def parameters(self) -> dict[str, int]:
        """By part."""
        return parameters_of(self.model)


@dataclass(frozen=True)
class Forecast:
    """What ``task`` takes in ``layout``."""

    task: Task
    layout: Layout
    machine: Machine
    memory: Mapping[str, int]  # bytes of one GPU by part, at its fullest
    work: Mapping[Part, Work]  # of one crop
    compute_seconds: float  # of one step on one GPU, the optimiser's included
    transfers: list[Transfer]

    @property
    def memory_total(self) -> int:
        """Bytes of one GPU."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        """Whether a GPU has that memory."""
        return self.memory_total <= self.machine.memory

    @property
    def batch(self) -> int:
        """Crops of one step."""
        return self.layout.dp * self.layout.crops * self.layout.accumulation

    @property
    def busy_seconds(self) -> float:
        """Of one step: compute, and communication that no computing hides."""
        return self.compute_seconds + sum(each.exposed_seconds for each in self.transfers)

    @property
    def crop_reading_seconds(self) -> float:
        """That all nodes together need for the chunks of one crop, which they read while the step before is computed.

        A crop at any place touches (w + c - 1) / c chunks of edge c along an edge of w voxels, on average.
        """
        read = math.prod(w + CHUNK - 1 for w in self.task.window) * _VOXEL_BYTES
        return read * self.layout.node / (self.layout.gpus * self.machine.storage_rate)

    @property
    def crop_seconds(self) -> float:
        """Of one step for each of its crops: busy, or reading where that takes longer."""
        return max(self.busy_seconds / self.batch, self.crop_reading_seconds)

    @property
    def step_seconds(self) -> float:
        """Of one step."""
        return self.batch * self.crop_seconds

    @property
    def samples_per_second(self) -> float:
        """Crops, of all GPUs."""
        return 1 / self.crop_seconds

    @property
    def mfu(self) -> float:
        """Share of the GPUs' peak that forward and backward keep busy, recomputation not counted."""
        useful = sum(part.forward + part.backward for part in self.work.values())
        return self.samples_per_second * useful / (self.layout.gpus * self.machine.peak(self.layout.precision))

    def hours(self, samples: int) -> float:
        """For ``samples`` crops."""
        return samples / self.samples_per_second / 3600

    def price(self, samples: int) -> float:
        """Of ``samples`` crops, in USD."""
        return self.hours(samples) * self.layout.gpus * self.machine.price_per_hour


def forecast(task: Task, layout: Layout, machine: Machine) -> Forecast:
    """The forecast of one layout, whether it fits or not."""
    work = work_of(task.model, task.tokens, layout.checkpointing)
    weights = sum(task.parameters.values())
    passes = _passes(work, layout, machine)
    merging = merge_seconds(task.model, task.tokens, layout, machine)
    owned = weights if layout.strategy == "ddp" else weights / layout.shards
    optimiser = owned * _OPTIMISER_BYTES / machine.memory_rate
    return Forecast(
        task,
        layout,
        machine,
        memory_of(task.model, task.tokens, layout, ema=task.ema),
        work,
        layout.accumulation * (passes.forward + passes.backward + merging) + optimiser,
        transfers(task.model, weights, task.tokens, layout, machine, passes),
    )


def _passes(work: Mapping[Part, Work], layout: Layout, machine: Machine) -> Passes:
    rates = {
        part: layout.cp
        / layout.crops
        * (machine.attention_flops if part.endswith("attention") else machine.linear_flops)(layout.precision)
        for part in work
    }
    return Passes(
        sum(each.forward / rates[part] for part, each in work.items()),
        sum((each.backward + each.recompute) / rates[part] for part, each in work.items()),
    )
