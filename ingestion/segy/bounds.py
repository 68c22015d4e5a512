"""Where the traces of a SEG-Y file begin and end: extended text headers before them, revision 2 trailers after them.

A count that the size of the file makes impossible is ignored and said: writers that only raised the revision number
leave anything in the fields of revision 2. What comes of it is held against the text itself and the size of the file.
"""

from __future__ import annotations

from ingestion.manifest import Finding
from ingestion.segy.byte_order import header_number
from ingestion.segy.samples import TRACE_HEADER_BYTES, Order
from ingestion.segy.text import TEXT_BYTES, decode_text, looks_like_text
from ingestion.source import HeldError, Source, hold
from ingestion.spec import SurveySpec

FILE_HEADER_BYTES = 3600
_MOST_TRACE_HEADERS = 100  # a larger number is no number


def data_start(
    source: Source, binary: bytes, order: Order, revision: tuple[int, int], spec: SurveySpec, notes: list[str]
) -> int:
    """Bytes before the first trace: file headers and extended text headers (bytes 3505-3506).

    Raises ``HeldError`` when the count does not agree with where text ends and traces begin.
    """
    if spec.first_trace_byte is not None:
        notes.append(f"first trace at byte {spec.first_trace_byte} by the spec")
        return min(spec.first_trace_byte - 1, source.size)
    start = _declared_start(source, binary, order, revision, notes)
    begins = source.read(start, min(TRACE_HEADER_BYTES, source.size - start))
    if begins.count(0) < TRACE_HEADER_BYTES // 2 and looks_like_text(begins):
        count = (start - FILE_HEADER_BYTES) // TEXT_BYTES
        raise HeldError(_bad_extended(f"text at byte {start}, after {count} declared extended text headers"))
    return start


def _declared_start(source: Source, binary: bytes, order: Order, revision: tuple[int, int], notes: list[str]) -> int:
    extended = header_number(binary, 305, "h", order)
    if revision[0] == 0 and extended:
        stanza = source.read(FILE_HEADER_BYTES, min(TEXT_BYTES, source.size - FILE_HEADER_BYTES))
        if not looks_like_text(stanza):
            notes.append(f"{extended} extended text headers declared by a revision 0 file, none there: ignored")
            return FILE_HEADER_BYTES
    if revision[0] >= 2:
        _refuse_extended_trace_headers(binary, order, notes)
        offset = header_number(binary, 321, "Q", order)
        if FILE_HEADER_BYTES <= offset <= source.size:
            return offset
        if offset:
            notes.append(f"first trace at byte {offset} of {source.size} (bytes 3521-3528): ignored")
    if extended == -1:
        return _after_end_text(source, notes)
    start = FILE_HEADER_BYTES + TEXT_BYTES * extended
    if extended < 0 or start > source.size:
        raise HeldError(_bad_extended(f"{extended} extended text headers in a file of {source.size} bytes"))
    if extended:
        for number in {1, extended}:
            stanza = source.read(FILE_HEADER_BYTES + TEXT_BYTES * (number - 1), TEXT_BYTES)
            if any(stanza) and not looks_like_text(stanza):
                raise HeldError(_bad_extended(f"{extended} extended text headers, of which number {number} is no text"))
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
        "extended text headers that end where the traces begin",
        "write the true `first_trace_byte` into the survey spec, or have bytes 3505-3506 mended",
    )


def _refuse_extended_trace_headers(binary: bytes, order: Order, notes: list[str]) -> None:
    count = header_number(binary, 307, "i", order)
    if not 0 <= count <= _MOST_TRACE_HEADERS:
        notes.append(f"{count} additional trace headers declared (bytes 3507-3510): ignored")
    elif count:
        raise HeldError(
            hold(
                "extended-trace-headers",
                f"up to {count} additional 240-byte headers a trace (revision 2, bytes 3507-3510)",
                "one 240-byte header a trace",
                "have the file written without trace header extensions",
            )
        )


def trailer_bytes(source: Source, binary: bytes, order: Order, revision: tuple[int, int], notes: list[str]) -> int:
    """Bytes of revision 2 data trailers (3200-byte stanzas after the traces, bytes 3529-3532)."""
    stanzas = header_number(binary, 329, "i", order) if revision[0] >= 2 else 0
    if stanzas == -1:
        raise HeldError(
            hold(
                "data-trailer-unknown",
                "an undetermined number of data trailer stanzas (bytes 3529-3532)",
                "a count, so that traces and trailer can be told apart",
                "have the file written with the number of its trailer stanzas, or without trailer",
            )
        )
    if stanzas < 0 or TEXT_BYTES * stanzas > source.size - FILE_HEADER_BYTES:
        notes.append(f"{stanzas} data trailer stanzas declared (bytes 3529-3532): ignored")
        return 0
    return TEXT_BYTES * stanzas


def check_trace_count(binary: bytes, order: Order, revision: tuple[int, int], traces: int, notes: list[str]) -> None:
    """Hold ``traces``, found by the size of the file, against the number that revision 2 declares (bytes 3513-3520)."""
    declared = header_number(binary, 313, "Q", order) if revision[0] >= 2 else 0
    if declared in (0, traces):
        return
    if not traces < declared <= 10 * traces:  # what a cut file would not have
        notes.append(f"{declared} traces declared (bytes 3513-3520), {traces} there: ignored")
        return
    raise HeldError(
        hold(
            "truncated",
            f"{traces} whole traces; {declared} are declared (revision 2, bytes 3513-3520)",
            f"{declared} traces",
            "upload the whole file, or have it written with its true number of traces",
        )
    )
