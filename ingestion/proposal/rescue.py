"""A SEG-Y file whose file headers cannot be read: where its traces lie and what its samples are, by looking at them.

Some traces, spread through the file, are read at each distance that a count in the headers would give, or, where no
header says a count, at each that divides the file into whole traces; taken is the distance at which all trace headers
look like trace headers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingestion.preflight.plausibility import is_swapped, is_unsigned, likely_format
from ingestion.segy.bounds import FILE_HEADER_BYTES
from ingestion.segy.samples import FORMAT_CODES, SAMPLE_BYTES, TRACE_HEADER_BYTES, Order
from ingestion.segy.text import TEXT_BYTES
from ingestion.source import Source
from ingestion.spec import SampleFormat

_LOOKED_AT = 32  # traces, of
_MOST_BYTES = 32 * 1024 * 1024  # together
_MIN_WORDS = 256
_MOST_SAMPLES = 2**16 - 1  # what a header can say
_ENOUGH = 4  # of 6 points for regular trace headers


@dataclass(frozen=True)
class Arrangement:
    """One way to read a file."""

    order: Order
    start: int  # bytes before the first trace
    samples: int
    sample_bytes: int
    traces: int

    @property
    def trace_bytes(self) -> int:
        """Header and samples of one trace."""
        return TRACE_HEADER_BYTES + self.samples * self.sample_bytes

    @property
    def evidence(self) -> str:
        """Why this one."""
        return (
            f"the file is {self.traces} traces of {self.samples} samples of {self.sample_bytes} bytes each to the "
            f"last byte, after {self.start} bytes, and the trace headers that lie there are regular"
        )


def arrangement(source: Source) -> Arrangement | None:
    """The one under which all trace headers look right; None when there is none. Reads some traces only."""
    scored = [(points, way) for way in _ways(source) if (points := _points(source, way)) >= _ENOUGH]
    if not scored:
        return None
    most = max(points for points, _ in scored)
    best = [way for points, way in scored if points == most]
    earliest = min(way.start for way in best)  # the length of a text header is often one of whole traces
    best = [way for way in best if way.start == earliest]
    # Every other trace header is one, too: without a count to tell, the shortest distance is that of all of them.
    sizes = {way.trace_bytes for way in best}
    best = [way for way in best if not any(size < way.trace_bytes and way.trace_bytes % size == 0 for size in sizes)]
    return best[0] if len(best) == 1 else None


def counts_tried(source: Source) -> str:
    """What came of the search in a file that says no count."""
    ways = list(_ways(source))
    regular = sorted({way.samples for way in ways if is_regular(source, way)})
    found = f"{len({way.samples for way in ways})} counts of samples divide the file into whole traces"
    if not regular:
        return f"{found}; at none of them do regular trace headers follow each other"
    return f"{found}; regular trace headers follow each other at {', '.join(map(str, regular))}, which leaves doubt"


def is_regular(source: Source, way: Arrangement) -> bool:
    """Whether what lies at the distances of ``way`` looks like trace headers."""
    return _points(source, way) >= _ENOUGH


def plausible_formats(words: npt.NDArray[np.uint8], order: Order) -> list[SampleFormat]:
    """Formats that stored samples (words, bytes of a word) can be of; none where too few are not zero."""
    words = words[words.any(axis=1)]
    if len(words) < _MIN_WORDS:
        return []
    return [name for name, size in SAMPLE_BYTES.items() if size == words.shape[1] and _plausible(words, name, order)]


def some_words(source: Source, way: Arrangement) -> npt.NDArray[np.uint8]:
    """(words, bytes of a word) samples of traces spread through the file."""
    samples = _some_traces(source, way, way.trace_bytes)[:, TRACE_HEADER_BYTES:]
    return np.ascontiguousarray(samples).reshape(-1, way.sample_bytes)


def _plausible(words: npt.NDArray[np.uint8], name: SampleFormat, order: Order) -> bool:
    if is_swapped(words, name, order):
        return False
    if name == "int32":  # of any size they could be taken for anything
        return likely_format(words, "ieee", order) == "int32"
    if name.startswith("int"):
        return not is_unsigned(words, name, order)
    return likely_format(words, name, order) is None


def _ways(source: Source) -> Iterator[Arrangement]:
    """All arrangements that fill the file to the last byte."""
    head = source.read(0, min(source.size, FILE_HEADER_BYTES + TEXT_BYTES * 3 + TRACE_HEADER_BYTES))
    if len(head) <= FILE_HEADER_BYTES + TRACE_HEADER_BYTES:
        return
    orders: tuple[Order, Order] = (">", "<")
    for order in orders:
        for extended in range(4):
            start = FILE_HEADER_BYTES + TEXT_BYTES * extended
            if start + TRACE_HEADER_BYTES > len(head):
                continue
            counts = {_count(head, offset, order) for offset in (TEXT_BYTES + 20, start + 114)} - {0}
            if not counts:
                yield from _silent_ways(source, head, order, start)
            for samples in sorted(counts):
                for sample_bytes in (4, 2, 1):
                    traces, rest = divmod(source.size - start, TRACE_HEADER_BYTES + samples * sample_bytes)
                    if rest == 0 and traces >= 4:
                        yield Arrangement(order, start, samples, sample_bytes, traces)


def _silent_ways(source: Source, head: bytes, order: Order, start: int) -> Iterator[Arrangement]:
    """All counts that divide the file into whole traces of the declared format."""
    sample_format = FORMAT_CODES.get(_count(head, TEXT_BYTES + 24, order))
    if sample_format is None:
        return
    sample_bytes, size = SAMPLE_BYTES[sample_format], source.size - start
    samples = np.arange(1, _MOST_SAMPLES + 1)
    traces, rest = np.divmod(size, TRACE_HEADER_BYTES + samples * sample_bytes)
    for index in np.flatnonzero((rest == 0) & (traces >= 4)).tolist():
        yield Arrangement(order, start, int(samples[index]), sample_bytes, int(traces[index]))


def _count(data: bytes, offset: int, order: Order) -> int:
    return int(struct.unpack_from(order + "H", data, offset)[0])


def _chosen(way: Arrangement) -> npt.NDArray[np.int64]:
    many = max(1, min(_LOOKED_AT, _MOST_BYTES // way.trace_bytes))
    return np.unique(np.linspace(0, way.traces - 1, many).astype(np.int64))


def _some_traces(source: Source, way: Arrangement, size: int) -> npt.NDArray[np.uint8]:
    """(traces, ``size``) the first bytes of some."""
    starts = (way.start + _chosen(way) * way.trace_bytes).tolist()
    return np.stack([np.frombuffer(source.read(start, size), np.uint8) for start in starts])


def _points(source: Source, way: Arrangement) -> int:
    """How many of six things hold of the trace headers: counts and sequence numbers (two each), intervals, ids."""
    traces, chosen = _some_traces(source, way, TRACE_HEADER_BYTES), _chosen(way)

    def field(byte: int, kind: str) -> npt.NDArray[np.int64]:
        stored = np.dtype(kind).newbyteorder(way.order)
        raw = np.ascontiguousarray(traces[:, byte - 1 : byte - 1 + stored.itemsize])
        return raw.view(stored)[:, 0].astype(np.int64)

    count, interval, kind = field(115, "u2"), field(117, "u2"), field(29, "i2")
    sequences = [field(byte, "i4") for byte in (1, 5)]
    return sum(
        [
            2 * bool((count == way.samples).all() or not count.any()),
            bool((interval == interval[0]).all() and 0 < interval[0] <= 20_000),
            bool(np.isin(kind, np.arange(9)).all()),
            2 * any(bool((one - one[0] == chosen).all()) for one in sequences),
        ]
    )
