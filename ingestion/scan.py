"""One pass over a SEG-Y file, start to end: its digest, its trace headers, and what its samples look like.

Memory is bounded by one block of traces and about 100 bytes a trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ingestion.samples import FormatEvidence, Order, decode, trace_checksums
from ingestion.segy import TRACE_HEADER_BYTES, Layout
from ingestion.source import BLOCK_BYTES, Source
from ingestion.spec import SurveySpec

Progress = Callable[[int], None]  # told the number of bytes just handled

_FIXED_FIELDS = {  # name: (first byte, type), SEG-Y rev 1 and 2
    "trace_id": (29, "i2"),
    "offset": (37, "i4"),
    "coordinate_scalar": (71, "i2"),
    "source_x": (73, "i4"),
    "source_y": (77, "i4"),
    "coordinate_unit": (89, "i2"),
    "delay": (109, "i2"),
    "sample_count": (115, "u2"),
    "sample_interval": (117, "u2"),
    "times_scalar": (215, "i2"),
}


@dataclass
class SampleFacts:
    """What the samples of all traces look like together."""

    overflow: int = 0  # IBM values beyond float32
    inexact: int = 0  # values that float32 rounds
    extreme: int = 0  # not zero, beyond 1e20 or below 1e-20 in magnitude
    nonzero: int = 0
    evidence: FormatEvidence = field(default_factory=FormatEvidence)


@dataclass(frozen=True)
class Scan:
    """What one pass found. Arrays have one entry a trace, in file order."""

    source: Source
    layout: Layout
    sha256: str
    headers: npt.NDArray[np.void]  # fields of header_dtype, native byte order
    zero: npt.NDArray[np.bool_]  # all samples zero
    non_finite: npt.NDArray[np.int32]  # NaN or infinite samples
    checksums: npt.NDArray[np.uint64]  # of the decoded samples
    lowest: npt.NDArray[np.float32]  # finite sample; infinite where there is none
    highest: npt.NDArray[np.float32]
    facts: SampleFacts


def scan(source: Source, layout: Layout, spec: SurveySpec, progress: Progress = lambda _: None) -> Scan:
    """Read all of ``source``. Raises ``SourceChangedError`` when it changes meanwhile."""
    digest = hashlib.sha256()
    for block in source.blocks(0, layout.data_start):
        digest.update(block)
    columns = header_dtype(spec, "=")
    headers = np.empty(layout.traces, columns)
    zero = np.empty(layout.traces, np.bool_)
    non_finite = np.empty(layout.traces, np.int32)
    checksums = np.empty(layout.traces, np.uint64)
    lowest, highest = np.empty((2, layout.traces), np.float32)
    facts = SampleFacts()
    stop = layout.data_start + layout.traces * layout.trace_bytes
    first = 0
    for block in source.blocks(layout.data_start, stop, traces_per_block(layout) * layout.trace_bytes):
        digest.update(block)
        raw = np.frombuffer(block, np.uint8).reshape(-1, layout.trace_bytes)
        rows = slice(first, first + len(raw))
        headers[rows] = header_columns(raw, spec, layout.order)
        samples, overflow, inexact = decode(raw[:, TRACE_HEADER_BYTES:], layout.sample_format, layout.order)
        with np.errstate(invalid="ignore"):  # signalling NaNs; they are counted below
            zero[rows] = ~samples.any(axis=1)
        finite = np.isfinite(samples)
        non_finite[rows] = samples.shape[1] - finite.sum(axis=1)
        lowest[rows] = samples.min(axis=1, where=finite, initial=np.inf)
        highest[rows] = samples.max(axis=1, where=finite, initial=-np.inf)
        checksums[rows] = trace_checksums(samples)
        facts.overflow += overflow
        facts.inexact += inexact
        _add_facts(facts, np.abs(samples[finite]))
        if layout.sample_format in ("ibm", "ieee"):
            facts.evidence.add(raw[:, TRACE_HEADER_BYTES:], layout.order)
        first += len(raw)
        progress(len(block))
    for block in source.blocks(stop, source.size):
        digest.update(block)
    source.check_unchanged()
    return Scan(source, layout, digest.hexdigest(), headers, zero, non_finite, checksums, lowest, highest, facts)


def traces_per_block(layout: Layout) -> int:
    """Whole traces in one request of about ``BLOCK_BYTES``."""
    return max(1, BLOCK_BYTES // layout.trace_bytes)


def header_dtype(spec: SurveySpec, order: Order | str) -> np.dtype[np.void]:
    """The trace header fields that ingestion reads, at the bytes where the spec says they are."""
    fields = dict(_FIXED_FIELDS)
    kinds = {"int32": "i4", "int16": "i2"}
    fields |= {
        "inline": (spec.inline_byte, kinds[spec.inline_type]),
        "crossline": (spec.crossline_byte, kinds[spec.crossline_type]),
        "cdp_x": (spec.cdp_x_byte, "i4"),
        "cdp_y": (spec.cdp_y_byte, "i4"),
    }
    if order == "=":  # packed, for keeping
        return np.dtype([(name, kind) for name, (_, kind) in fields.items()])
    return np.dtype(
        {
            "names": list(fields),
            "formats": [order + kind for _, kind in fields.values()],
            "offsets": [byte - 1 for byte, _ in fields.values()],
            "itemsize": TRACE_HEADER_BYTES,
        }
    )


def header_columns(raw: npt.NDArray[np.uint8], spec: SurveySpec, order: Order) -> npt.NDArray[np.void]:
    """The fields of ``header_dtype`` out of whole traces (traces, bytes), native byte order."""
    bytes_of_headers = np.ascontiguousarray(raw[:, :TRACE_HEADER_BYTES])
    columns: npt.NDArray[np.void] = bytes_of_headers.view(header_dtype(spec, order))[:, 0].astype(
        header_dtype(spec, "=")
    )
    return columns


def _add_facts(facts: SampleFacts, magnitude: npt.NDArray[np.float32]) -> None:
    facts.nonzero += int(np.count_nonzero(magnitude))
    facts.extreme += int(np.count_nonzero((magnitude > 1e20) | ((magnitude < 1e-20) & (magnitude > 0))))
