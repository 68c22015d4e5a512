"""Repairs of how a file is read: byte order, format, count and start, where its headers do not say them."""

from __future__ import annotations

from typing import Any

from ingestion.manifest import Finding
from ingestion.preflight.inspection import Inspection
from ingestion.proposal.proposed import Proposed, Repair
from ingestion.proposal.rescue import Arrangement, arrangement, plausible_formats, some_words
from ingestion.segy.byte_order import order_name
from ingestion.segy.layout import read_layout
from ingestion.segy.samples import SAMPLE_BYTES
from ingestion.source import HeldError


def rescued(found: Inspection, finding: Finding) -> list[Proposed]:
    """A file that cannot be read by its headers: byte order, format, count and start that its bytes show."""
    [source, *_] = found.sources
    way = arrangement(source)
    if way is None or found.spec.samples_per_trace is not None:
        return []
    formats = plausible_formats(some_words(source, way), way.order)
    if len(formats) != 1:
        return []
    evidence = f"{finding.found}; {way.evidence}"
    order = order_name(way.order)
    values = {
        "endianness": order,
        "sample_format": formats[0],
        "samples_per_trace": way.samples,
        "first_trace_byte": way.start + 1,
    }
    reasons = {"sample_format": f"of the formats of {way.sample_bytes} bytes the samples look like {formats[0]} only"}
    needed = _least(found, values, way)
    return [
        Proposed(field=name, value=value, evidence=reasons.get(name, evidence), confidence="likely")
        for name, value in needed.items()
    ]


def _counted(found: Inspection, finding: Finding) -> list[Proposed]:
    """The only count of samples at which a file that says none is whole traces with regular headers."""
    if said := rescued(found, finding):
        return said
    [source, *_] = found.sources
    way = arrangement(source)
    if way is None or found.spec.samples_per_trace is not None:
        return []
    try:
        layout = read_layout(source, found.spec.model_copy(update={"samples_per_trace": way.samples}))
    except HeldError:
        return []
    if (layout.data_start, layout.trace_bytes) != (way.start, way.trace_bytes):
        return []
    evidence = f"{finding.found}; {way.evidence}"
    return [Proposed(field="samples_per_trace", value=way.samples, evidence=evidence, confidence="likely")]


def _least(found: Inspection, values: dict[str, Any], way: Arrangement) -> dict[str, Any]:
    """``values`` without those that the headers say as well."""
    needed = dict(values)
    try:
        read_layout(found.sources[0], found.spec.model_copy(update=values))
    except HeldError:  # for a reason that no spec changes
        return {}
    for name in values:
        fewer = {one: value for one, value in needed.items() if one != name}
        try:
            layout = read_layout(found.sources[0], found.spec.model_copy(update=fewer))
        except HeldError:
            continue
        read = (layout.order, layout.data_start, layout.samples, layout.traces, layout.sample_format)
        if read == (way.order, way.start, way.samples, way.traces, values["sample_format"]):
            needed = fewer
    return needed


def way_of(found: Inspection, number: int = 0) -> Arrangement:
    """How a file was read."""
    layout = found.layouts[number]
    size = SAMPLE_BYTES[layout.sample_format]
    return Arrangement(layout.order, layout.data_start, layout.samples, size, layout.traces)


LAYOUT: dict[str, Repair] = {
    "not-segy": rescued,
    "sample-format-unknown": rescued,
    "sample-format-unsupported": rescued,
    "sample-count-missing": _counted,
    "truncated": rescued,
    "extended-headers-invalid": rescued,
}
