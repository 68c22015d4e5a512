"""How the bytes of one SEG-Y file are arranged, from its file headers and its size alone.

Byte numbers follow the SEG-Y rev 2 standard (SEG Technical Standards Committee, 2017), which counts from 1.
Counts and intervals are read as unsigned. Everything here reads some kilobytes, whatever the file claims.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from ingestion.manifest import Finding
from ingestion.segy.bounds import FILE_HEADER_BYTES, check_trace_count, data_start, trailer_bytes
from ingestion.segy.byte_order import file_order, header_number, headers_are_swapped, order_name
from ingestion.segy.foreign import foreign
from ingestion.segy.samples import FORMAT_CODES, SAMPLE_BYTES, TRACE_HEADER_BYTES, Order
from ingestion.segy.text import TEXT_BYTES, decode_text, text_notes
from ingestion.source import HeldError, Source, hold
from ingestion.spec import SampleFormat, SurveySpec

MAX_TRACE_BYTES = 8 * 1024 * 1024
_OTHER_FORMATS = {4: "fixed point with gain", 6: "float64", 7: "int24", 9: "int64", 10: "uint32"}
_OTHER_FORMATS |= {11: "uint16", 12: "uint64", 15: "uint24", 16: "uint8"}


@dataclass(frozen=True)
class Layout:
    """Where the traces of a file lie and how to read them."""

    order: Order
    revision: tuple[int, int]
    text: str  # 40 lines of 80 characters
    text_header: bytes
    binary_header: bytes
    data_start: int  # bytes
    traces: int
    samples: int  # per trace
    sample_format: SampleFormat
    interval: float  # ms or m; 0 when no header says it
    notes: list[str]

    @property
    def trace_bytes(self) -> int:
        """Header and samples of one trace."""
        return TRACE_HEADER_BYTES + self.samples * SAMPLE_BYTES[self.sample_format]

    @property
    def data_stop(self) -> int:
        """The byte after the last trace."""
        return self.data_start + self.traces * self.trace_bytes

    @property
    def measurement_system(self) -> int:
        """1 metres, 2 feet, anything else unknown (bytes 3255-3256)."""
        return header_number(self.binary_header, 55, "H", self.order)

    @property
    def source_format(self) -> str:
        """For people: "big ibm"."""
        return f"{order_name(self.order)} {self.sample_format}"


def read_layout(source: Source, spec: SurveySpec) -> Layout:
    """The layout of ``source``. Raises ``HeldError`` with the reason when it is not a whole, readable SEG-Y file."""
    head = source.read(0, min(source.size, FILE_HEADER_BYTES))
    _refuse_foreign(head)
    text, binary = head[:TEXT_BYTES], head[TEXT_BYTES:]
    notes = text_notes(text)
    order = file_order(binary, spec, notes)
    sample_format = _sample_format(binary, order, spec, notes)
    revision = _revision(binary, notes)
    start = data_start(source, binary, order, revision, spec, notes)
    stop = source.size - trailer_bytes(source, binary, order, revision, notes)
    if stop <= start:
        raise HeldError(_no_traces(source, start))
    first = source.read(start, min(TRACE_HEADER_BYTES, source.size - start))
    samples = _sample_count(binary, first, order, revision, spec, notes)
    traces = _trace_count(source, start, stop, samples, SAMPLE_BYTES[sample_format])
    check_trace_count(binary, order, revision, traces, notes)
    interval = _interval(binary, first, order, revision, spec, notes)
    layout = Layout(
        order, revision, decode_text(text), text, binary, start, traces, samples, sample_format, interval, notes
    )
    _refuse_swapped_traces(source, layout, spec)
    return layout


def _refuse_foreign(head: bytes) -> None:
    if not head:
        raise HeldError(hold("file-empty", "0 bytes", "a SEG-Y file", "upload the file again"))
    kind = foreign(head)
    if kind is not None or len(head) < FILE_HEADER_BYTES:
        raise HeldError(
            hold(
                "not-segy",
                kind or f"{len(head)} bytes",
                f"a SEG-Y file, which begins with {FILE_HEADER_BYTES} bytes of file headers",
                "upload the SEG-Y file itself, whole and unpacked, or take this out of the folder",
            )
        )


def _refuse_swapped_traces(source: Source, layout: Layout, spec: SurveySpec) -> None:
    last = layout.data_start + (layout.traces - 1) * layout.trace_bytes
    headers = [source.read(place, TRACE_HEADER_BYTES) for place in (layout.data_start, last)]
    if headers_are_swapped(headers, layout.order, layout.samples):
        raise HeldError(
            hold(
                "byte-order-mixed",
                f"trace headers of another byte order than the file header ({order_name(layout.order)} endian)",
                "one byte order in all of a file",
                "have the file written again in one byte order",
            )
        )


def _no_traces(source: Source, start: int) -> Finding:
    return hold(
        "no-traces",
        f"{source.size} bytes, file headers only (traces would start at byte {start})",
        "at least one trace after the file headers",
        "upload the file with its traces",
    )


def _sample_format(binary: bytes, order: Order, spec: SurveySpec, notes: list[str]) -> SampleFormat:
    code = header_number(binary, 25, "H", order)
    declared = FORMAT_CODES.get(code)
    if spec.sample_format is not None:
        if spec.sample_format != declared:
            notes.append(f"sample format {spec.sample_format} by the spec; the binary header says code {code}")
        return spec.sample_format
    if declared is not None:
        return declared
    named = f" ({_OTHER_FORMATS[code]})" if code in _OTHER_FORMATS else ""
    raise HeldError(
        hold(
            "sample-format-unsupported",
            f"sample format code {code}{named}",
            ", ".join(f"{known} ({name})" for known, name in FORMAT_CODES.items()),
            "convert the file to IEEE float32, or write the true `sample_format` into the survey spec",
        )
    )


def _revision(binary: bytes, notes: list[str]) -> tuple[int, int]:
    """Major and minor revision; an odd value is read as revision 1, and said."""
    pair = (binary[300], binary[301])
    if pair in ((0, 1), (0, 2)):  # one 16-bit number, as many wrote it; there is no revision 0.1
        pair = (pair[1], pair[0])
        notes.append(f"revision bytes 0.{pair[0]} read as revision {pair[0]}.0")
    if pair[0] in (0, 1, 2) and pair[1] <= 9:
        return pair
    notes.append(f"revision bytes {pair[0]}.{pair[1]} are of no known revision; read as revision 1.0")
    return (1, 0)


def _sample_count(
    binary: bytes, first: bytes, order: Order, revision: tuple[int, int], spec: SurveySpec, notes: list[str]
) -> int:
    extended = header_number(binary, 69, "I", order) if revision[0] >= 2 else 0
    count = extended or header_number(binary, 21, "H", order)
    if spec.samples_per_trace is not None:
        if spec.samples_per_trace != count:
            notes.append(f"{spec.samples_per_trace} samples a trace by the spec; the binary header says {count}")
        return spec.samples_per_trace
    if count:
        return count
    count = header_number(first, 115, "H", order)
    if count == 0:
        raise HeldError(
            hold(
                "sample-count-missing",
                "0 samples a trace in the binary header and in the first trace header",
                "the number of samples in bytes 3221-3222 or 115-116",
                "write `samples_per_trace` into the survey spec",
            )
        )
    notes.append(f"sample count 0 in the binary header; {count} from the trace headers used")
    return count


def _interval(
    binary: bytes, first: bytes, order: Order, revision: tuple[int, int], spec: SurveySpec, notes: list[str]
) -> float:
    """Sample interval in ms or m: the headers hold thousandths of it. 0 when they do not say."""
    interval = header_number(binary, 17, "H", order)
    extended = float(struct.unpack_from(order + "d", binary, 72)[0]) if revision[0] >= 2 else 0.0
    if not (np.isfinite(extended) and 1e-3 <= extended <= 1e9):  # nothing, or garbage
        extended = 0.0
    if interval and extended and abs(extended - interval) >= 1 and spec.sample_interval is None:
        raise HeldError(
            hold(
                "sample-interval-conflict",
                f"{interval} in bytes 3217-3218, {extended:g} in bytes 3273-3280 (revision 2)",
                "the same interval in both, in microseconds or millimetres",
                "write the true `sample_interval` (ms or m) into the survey spec",
            )
        )
    if extended:
        return extended / 1000
    if interval == 0:
        interval = header_number(first, 117, "H", order)
        if interval:
            notes.append(f"sample interval 0 in the binary header; {interval / 1000:g} from the trace headers used")
    return interval / 1000


def _trace_count(source: Source, start: int, stop: int, samples: int, sample_bytes: int) -> int:
    trace_bytes = TRACE_HEADER_BYTES + samples * sample_bytes
    traces, rest = divmod(stop - start, trace_bytes)
    if rest:
        whole = start + traces * trace_bytes
        raise HeldError(
            hold(
                "truncated",
                f"{source.size} bytes: {traces} whole traces of {trace_bytes} bytes ({samples} samples) "
                f"and {rest} bytes more",
                f"{whole + trace_bytes + source.size - stop} bytes for {traces + 1} traces"
                + (f", or {whole + source.size - stop} for {traces}" if traces else ""),
                "upload the whole file; when it is whole, its sample count or format is not what the header says",
            )
        )
    if trace_bytes > MAX_TRACE_BYTES:
        raise HeldError(
            hold(
                "trace-too-long",
                f"{samples} samples a trace",
                f"at most {MAX_TRACE_BYTES} bytes a trace",
                "have the file written with shorter traces",
            )
        )
    return traces
