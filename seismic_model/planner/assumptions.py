"""What the planner takes for granted of machines and kernels; ``assumptions.yaml`` holds it with its sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from ingestion.manifest import Contract

DEFAULT = Path(__file__).with_name("assumptions.yaml")


class AssumptionsError(Exception):
    """The file of assumptions cannot be used; the message says what to change."""


class Assumption(Contract):
    """One number and where it comes from."""

    value: float = Field(ge=1e-3, le=1e20)  # anything else is a slip
    source: str


class Share(Assumption):
    """What is reached, at most all."""

    value: float = Field(ge=1e-3, le=1)


class Count(Assumption):
    """A whole number."""

    value: int = Field(ge=1)


class Gpu(Contract):
    """One kind of GPU in its node; rates per second, links in one direction and for one GPU."""

    bfloat16_flops: Assumption
    float32_flops: Assumption
    memory_bytes: Assumption
    memory_bytes_per_second: Assumption
    nvlink_bytes_per_second: Assumption
    network_bytes_per_second: Assumption
    gpus_per_node: Count
    storage_bytes_per_second: Assumption  # of a node
    price_per_hour: Assumption  # USD


class Shares(Contract):
    """What is reached of the rates above."""

    linear_efficiency: Share
    attention_efficiency: Share
    link_efficiency: Share
    memory_efficiency: Share
    usable_memory: Share


class _File(Contract):
    gpus: dict[str, Gpu]
    shares: Shares


class Machine:
    """A kind of GPU and what is reached of its rates.

    Attributes:
        name: of the GPU in the file.
        node: GPUs that NVLink joins.
        memory: bytes of one GPU that tensors may take.
    """

    def __init__(self, name: str, gpu: Gpu, shares: Shares, price_per_hour: float | None = None) -> None:
        self.name, self._gpu, self._shares = name, gpu, shares
        self.node = gpu.gpus_per_node.value
        self.memory = int(gpu.memory_bytes.value * shares.usable_memory.value)
        self.price_per_hour = price_per_hour or gpu.price_per_hour.value

    def peak(self, precision: str) -> float:
        """FLOP/s that the data sheet promises for matrix products of ``precision``."""
        return (self._gpu.bfloat16_flops if precision == "bfloat16" else self._gpu.float32_flops).value

    def linear_flops(self, precision: str) -> float:
        """FLOP/s that projections and MLPs get."""
        return self.peak(precision) * self._shares.linear_efficiency.value

    def attention_flops(self, precision: str) -> float:
        """FLOP/s that fused attention gets."""
        return self.peak(precision) * self._shares.attention_efficiency.value

    @property
    def memory_rate(self) -> float:
        """Bytes a second of element-wise kernels."""
        return self._gpu.memory_bytes_per_second.value * self._shares.memory_efficiency.value

    def neighbour_rate(self, *, inside_node: bool) -> float:
        """Bytes a second that one GPU sends to another."""
        gpu = self._gpu
        link = gpu.nvlink_bytes_per_second if inside_node else gpu.network_bytes_per_second
        return link.value * self._shares.link_efficiency.value

    @property
    def storage_rate(self) -> float:
        """Bytes a second that one node reads from S3."""
        return self._gpu.storage_bytes_per_second.value

    def collective_rate(self, gpus: int) -> float:
        """Bytes a second that a ring over ``gpus`` passes on: each node's adapters work side by side."""
        inside = self.neighbour_rate(inside_node=True)
        return inside if gpus <= self.node else min(inside, self.node * self.neighbour_rate(inside_node=False))

    def lines(self) -> Iterator[tuple[str, float, str]]:
        """Name, value and source of each assumption."""
        for held in (self._gpu, self._shares):
            for field in type(held).model_fields:
                assumption: Assumption = getattr(held, field)
                yield field, assumption.value, assumption.source


def read_machine(gpu: str, file: Path = DEFAULT, price_per_hour: float | None = None) -> Machine:
    """The GPU named ``gpu`` in a file of assumptions, at its price or another. Raises ``AssumptionsError``."""
    try:
        stored = _File.model_validate(yaml.safe_load(file.read_text()))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise AssumptionsError(f"{file} cannot be used: {faults}; expected what {DEFAULT} holds") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise AssumptionsError(f"{file} cannot be used: {error}; expected what {DEFAULT} holds") from error
    if gpu not in stored.gpus:
        raise AssumptionsError(f"{file} knows no GPU {gpu!r}; it knows: {', '.join(sorted(stored.gpus))}")
    return Machine(gpu, stored.gpus[gpu], stored.shares, price_per_hour)
