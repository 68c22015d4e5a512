"""How the bytes of one SEG-Y file are arranged, from its file headers and its size alone.

Byte numbers follow the SEG-Y rev 2 standard (SEG Technical Standards Committee, 2017), which counts from 1.
Counts and intervals are read as unsigned. Everything here reads some kilobytes, whatever the file claims.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from ingestion.manifest import Finding
from ingestion.samples import FORMAT_CODES, SAMPLE_BYTES, Order
from ingestion.source import HeldError, Source, hold
from ingestion.spec import SampleFormat, SurveySpec

FILE_HEADER_BYTES = 3600
TEXT_BYTES = 3200
TRACE_HEADER_BYTES = 240
MAX_TRACE_BYTES = 64 * 1024 * 1024
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
    def measurement_system(self) -> int:
        """1 metres, 2 feet, anything else unknown (bytes 3255-3256)."""
        return _number(self.binary_header, 55, "H", self.order)

    @property
    def source_format(self) -> str:
        """For people: "big ibm"."""
        return f"{'big' if self.order == '>' else 'little'} {self.sample_format}"


def read_layout(source: Source, spec: SurveySpec) -> Layout:
    """The layout of ``source``. Raises ``HeldError`` with the reason when it is not a whole, readable SEG-Y file."""
    if source.size < FILE_HEADER_BYTES:
        raise HeldError(_too_short(source))
    head = source.read(0, min(source.size, FILE_HEADER_BYTES))
    text, binary = head[:TEXT_BYTES], head[TEXT_BYTES:]
    order = _byte_order(binary, spec)
    notes: list[str] = []
    sample_format = _sample_format(binary, order, spec, notes)
    revision = _revision(binary, order, notes)
    start = _data_start(source, binary, order, revision, spec, notes)
    stop = source.size - _trailer_bytes(binary, order, revision)
    if stop <= start:
        raise HeldError(_no_traces(source, start))
    first = source.read(start, min(TRACE_HEADER_BYTES, source.size - start))
    samples = _sample_count(binary, first, order, revision, spec, notes)
    interval = _interval(binary, first, order, revision, notes)
    traces = _trace_count(source, start, stop, samples, SAMPLE_BYTES[sample_format])
    lines = decode_text(text)
    return Layout(order, revision, lines, text, binary, start, traces, samples, sample_format, interval, notes)


def decode_text(text: bytes) -> str:
    """A text header as 40 lines of 80 printable characters; EBCDIC or ASCII by which one its spaces are."""
    ebcdic = text.count(0x40) > text.count(0x20)
    characters = text.decode("cp037" if ebcdic else "latin-1").ljust(TEXT_BYTES)
    clean = "".join(c if c.isprintable() else " " for c in characters)
    return "\n".join(clean[i : i + 80] for i in range(0, TEXT_BYTES, 80))


def _number(data: bytes, byte: int, kind: str, order: Order) -> int:
    """The field that starts at ``byte`` (from 1) of ``data``; 0 where ``data`` ends before it."""
    offset = byte - 1
    if offset + struct.calcsize(kind) > len(data):
        return 0
    return int(struct.unpack_from(order + kind, data, offset)[0])


def _too_short(source: Source) -> Finding:
    if source.size == 0:
        return hold("file-empty", "0 bytes", "a SEG-Y file", "upload the file again")
    return hold(
        "not-segy",
        f"{source.size} bytes",
        f"at least {FILE_HEADER_BYTES} bytes of file headers",
        "upload the whole file, or take it out of the folder when it is no SEG-Y",
    )


def _no_traces(source: Source, start: int) -> Finding:
    return hold(
        "no-traces",
        f"{source.size} bytes, file headers only (traces would start at byte {start})",
        "at least one trace after the file headers",
        "upload the file with its traces",
    )


def _byte_order(binary: bytes, spec: SurveySpec) -> Order:
    """By the spec, else by the rev 2 byte order mark, else by the order in which the format code is one."""
    if spec.endianness is not None:
        return ">" if spec.endianness == "big" else "<"
    mark = binary[96:100]
    if mark in (b"\x01\x02\x03\x04", b"\x04\x03\x02\x01"):
        return ">" if mark[0] == 1 else "<"
    orders: tuple[Order, Order] = (">", "<")
    codes = {order: _number(binary, 25, "H", order) for order in orders}
    known = [order for order, code in codes.items() if 1 <= code <= 16]
    if len(known) == 1:
        return known[0]
    if codes[">"] == 0:
        raise HeldError(
            hold(
                "sample-format-unknown",
                "sample format code 0 (bytes 3225-3226), so neither format nor byte order can be read",
                "a format code of the SEG-Y standard",
                "write `sample_format` and `endianness` into the survey spec, or take the file away if it is no SEG-Y",
            )
        )
    raise HeldError(
        hold(
            "not-segy",
            f"sample format code {codes['>']} big endian, {codes['<']} little endian (bytes 3225-3226)",
            "a code from 1 to 16 in one of the two byte orders",
            "take the file away when it is no SEG-Y; else write `sample_format` and `endianness` into the survey spec",
        )
    )


def _sample_format(binary: bytes, order: Order, spec: SurveySpec, notes: list[str]) -> SampleFormat:
    code = _number(binary, 25, "H", order)
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


def _revision(binary: bytes, order: Order, notes: list[str]) -> tuple[int, int]:
    """Major and minor revision; an odd value is read as revision 1 when a 3D file would need it, and said."""
    pair = (binary[300], binary[301])
    if order == "<" and pair[0] == 0 and pair[1] in (1, 2):  # rev 1 little endian: one swapped 16-bit number
        pair = (pair[1], pair[0])
    if pair[0] in (0, 1, 2) and pair[1] <= 9:
        return pair
    notes.append(f"revision bytes {pair[0]}.{pair[1]} are of no known revision; read as revision 1.0")
    return (1, 0)


def _data_start(
    source: Source, binary: bytes, order: Order, revision: tuple[int, int], spec: SurveySpec, notes: list[str]
) -> int:
    """Bytes before the first trace: file headers and extended text headers (bytes 3505-3506)."""
    if spec.first_trace_byte is not None:
        notes.append(f"first trace at byte {spec.first_trace_byte} by the spec")
        return spec.first_trace_byte - 1
    extended = _number(binary, 305, "h", order)
    if revision[0] == 0:
        if extended:
            notes.append(f"{extended} extended text headers declared by a revision 0 file: ignored")
        return FILE_HEADER_BYTES
    if revision[0] >= 2:
        if _number(binary, 307, "i", order) > 0:
            raise HeldError(_extended_trace_headers(_number(binary, 307, "i", order)))
        offset = _number(binary, 321, "Q", order)
        if offset:
            if not FILE_HEADER_BYTES <= offset <= source.size:
                raise HeldError(_bad_extended(f"first trace at byte {offset} of {source.size}"))
            return offset
    if extended == -1:
        return _after_end_text(source, notes)
    start = FILE_HEADER_BYTES + TEXT_BYTES * extended
    if extended < 0 or start > source.size:
        raise HeldError(_bad_extended(f"{extended} extended text headers in a file of {source.size} bytes"))
    if extended:
        notes.append(f"{extended} extended text headers skipped")
    return start


def _after_end_text(source: Source, notes: list[str]) -> int:
    """Start of the traces after a variable number of extended text headers, which an EndText stanza closes."""
    for number in range(1, 1000):
        start = FILE_HEADER_BYTES + TEXT_BYTES * (number - 1)
        if start + TEXT_BYTES > source.size:
            break
        stanza = source.read(start, TEXT_BYTES)
        if "((SEG:ENDTEXT))" in decode_text(stanza).upper().replace(" ", ""):
            notes.append(f"{number} extended text headers skipped")
            return start + TEXT_BYTES
    raise HeldError(_bad_extended("a variable number of extended text headers without ((SEG: EndText))"))


def _bad_extended(found: str) -> Finding:
    return hold(
        "extended-headers-invalid",
        found,
        "extended text headers that end before the traces",
        "have the file written again with a correct count in bytes 3505-3506",
    )


def _extended_trace_headers(count: int) -> Finding:
    return hold(
        "extended-trace-headers",
        f"up to {count} additional 240-byte headers a trace (revision 2, bytes 3507-3510)",
        "one 240-byte header a trace",
        "have the file written without trace header extensions",
    )


def _trailer_bytes(binary: bytes, order: Order, revision: tuple[int, int]) -> int:
    """Bytes of revision 2 data trailers (3200-byte stanzas after the traces, bytes 3529-3532)."""
    stanzas = _number(binary, 329, "i", order) if revision[0] >= 2 else 0
    if stanzas < 0:
        raise HeldError(
            hold(
                "data-trailer-unknown",
                "an undetermined number of data trailer stanzas (bytes 3529-3532)",
                "a count, so that traces and trailer can be told apart",
                "have the file written with the number of its trailer stanzas, or without trailer",
            )
        )
    return TEXT_BYTES * stanzas


def _sample_count(
    binary: bytes, first: bytes, order: Order, revision: tuple[int, int], spec: SurveySpec, notes: list[str]
) -> int:
    extended = _number(binary, 69, "I", order) if revision[0] >= 2 else 0
    count = extended or _number(binary, 21, "H", order)
    if spec.samples_per_trace is not None:
        if spec.samples_per_trace != count:
            notes.append(f"{spec.samples_per_trace} samples a trace by the spec; the binary header says {count}")
        return spec.samples_per_trace
    if count:
        return count
    count = _number(first, 115, "H", order)
    if count == 0:
        raise HeldError(
            hold(
                "sample-count-missing",
                "0 samples a trace in the binary header and in the first trace header",
                "the number of samples in bytes 3221-3222 or 115-116",
                "have the file written with its sample count",
            )
        )
    notes.append(f"sample count 0 in the binary header; {count} from the trace headers used")
    return count


def _interval(binary: bytes, first: bytes, order: Order, revision: tuple[int, int], notes: list[str]) -> float:
    """Sample interval in ms or m: the headers hold thousandths of it. 0 when they do not say."""
    if revision[0] >= 2:
        extended = float(struct.unpack_from(order + "d", binary, 72)[0])
        if np.isfinite(extended) and extended > 0:
            return extended / 1000
    interval = _number(binary, 17, "H", order)
    if interval == 0:
        interval = _number(first, 117, "H", order)
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
