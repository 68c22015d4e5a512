"""One line of a proposed spec, and what the repairs that propose them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ingestion.manifest import Contract, Finding
from ingestion.preflight.inspection import Inspection
from ingestion.preflight.traces import Liveness, Traces

Confidence = Literal["certain", "likely", "guess"]
_FEW = 3  # traces that may be a slip; or one in a hundred


class Proposed(Contract):
    """One line of a proposed spec."""

    field: str
    value: Any
    evidence: str
    confidence: Confidence
    alternatives: list[str] = []


Repair = Callable[[Inspection, Finding], list[Proposed]]


def table_of(found: Inspection) -> tuple[Traces, Liveness]:
    """The traces that a finding about traces comes from, and which of them count."""
    if found.traces is None or found.state is None:  # never of a finding about traces
        raise AssertionError("no traces were read")
    return found.traces, found.state


def few(count: int, of: int) -> bool:
    """Whether so many traces may be a slip."""
    return count <= max(_FEW, of // 100)
