"""Whether stored numbers can be what the headers say: the format and byte order of samples.

Some thousand words are looked at, spread over the file. What is said here rests on values that cannot occur, or on
shares that no seismic data has, so that clean surveys of any amplitude pass.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Finding
from ingestion.preflight.scan import Scan
from ingestion.segy.byte_order import order_name
from ingestion.segy.samples import SAMPLE_BYTES, TRACE_HEADER_BYTES, FormatEvidence, Order
from ingestion.source import hold
from ingestion.spec import SampleFormat

_TRACES = 24  # looked at
_BYTES = 64 * 1024  # of each
_MIN_WORDS = 256  # too few samples say nothing
_ALMOST_ALL = 0.95


def sample_words(scan: Scan) -> npt.NDArray[np.uint8]:
    """(words, bytes of a word) stored samples of some traces that are not all zero."""
    layout = scan.layout
    width = SAMPLE_BYTES[layout.sample_format]
    candidates = np.flatnonzero(~scan.zero)
    if not len(candidates):  # what decodes to zero need not be zero
        candidates = np.arange(layout.traces)
    chosen = candidates[np.unique(np.linspace(0, len(candidates) - 1, _TRACES).astype(np.int64))]
    length = min(layout.samples * width, _BYTES // 8 * 8)
    starts = layout.data_start + chosen * layout.trace_bytes + TRACE_HEADER_BYTES
    data = b"".join(scan.source.read(int(start), length) for start in starts)
    return np.frombuffer(data, np.uint8).reshape(-1, width)


def doubtful_samples(scan: Scan) -> list[Finding]:
    """A finding when the samples cannot be of the declared format and byte order."""
    declared, order, name = scan.layout.sample_format, scan.layout.order, scan.source.name
    words = sample_words(scan)
    words = words[words.any(axis=1)]
    if len(words) < _MIN_WORDS:
        return []
    right = f"write `sample_format: {declared}` into the survey spec when they are right"
    if declared.startswith("int") and is_unsigned(words, declared, order):
        return [
            hold(
                "implausible-amplitudes",
                f"{name}: nearly all samples lie near the two ends of the range of {declared}, as those of an "
                "unsigned format do when they are read as signed",
                f"amplitudes about zero in {declared}",
                f"have the file written as IEEE float32, or {right}",
            )
        ]
    if is_swapped(words, declared, order):
        return [
            hold(
                "byte-order-mixed",
                f"{name}: the samples have another byte order than the file header ({order_name(order)} endian)",
                "one byte order in all of a file",
                f"have the file written again in one byte order, or {right}",
            )
        ]
    likely = likely_format(words, declared, order)
    if likely is not None:
        return [
            hold(
                "sample-format-mismatch",
                f"{name}: the header says {declared}, the samples look like {likely}",
                f"samples in the declared format, {declared}",
                f"write `sample_format: {likely}` into the survey spec (or `{declared}` when the header is right)",
            )
        ]
    return []


def likely_format(words: npt.NDArray[np.uint8], declared: SampleFormat, order: Order) -> SampleFormat | None:
    """The format that 4-byte ``words`` (words, 4) have instead of ``declared``; None when nothing speaks against that.

    Small integers have no IEEE or IBM reading but zero, NaN and 1e±70; floats read as integers are all beyond 2**24,
    and all within ±1e12 as floats, where integers of full scale are not.
    """
    if words.shape[1] != 4:
        return None
    evidence = FormatEvidence()
    evidence.add(words.reshape(1, -1), order)
    if declared in ("ibm", "ieee"):
        whole = _integers(words, order)
        return "int32" if (np.abs(whole) < 1 << 23).mean() >= _ALMOST_ALL else evidence.contradicts(declared)
    if np.median(np.abs(_integers(words, order))) >= 1 << 24 and _share_in_range(words, "ieee", order) >= _ALMOST_ALL:
        return evidence.contradicts("ieee") or "ieee"
    return None


def is_swapped(words: npt.NDArray[np.uint8], declared: SampleFormat, order: Order) -> bool:
    """Whether ``words`` make sense in the other byte order only.

    The lowest byte of integers is spread evenly; when it is the highest that is so, and the lowest is small with
    either sign, they are swapped. (Of 8-bit data times 256 the lowest byte is zero and has no sign.)
    """
    if words.shape[1] == 1:
        return False
    other: Order = "<" if order == ">" else ">"
    if declared in ("ibm", "ieee"):
        native, swapped = (_share_in_range(words, declared, each) for each in (order, other))
        return native < 0.5 and swapped >= _ALMOST_ALL
    values = _integers(words, order)
    words = words[(values > values.min()) & (values < values.max())]  # clipped samples have odd bytes
    if len(words) < _MIN_WORDS:
        return False
    highest, lowest = (words[:, i].astype(np.int8).astype(np.int64) for i in ((0, -1) if order == ">" else (-1, 0)))
    signs = min((lowest < 0).mean(), (lowest >= 0).mean())
    return bool(np.median(np.abs(lowest)) <= 32 and np.median(np.abs(highest)) >= 48 and signs >= 0.1)


def _integers(words: npt.NDArray[np.uint8], order: Order) -> npt.NDArray[np.int64]:
    kind = np.dtype(f"i{words.shape[1]}").newbyteorder(order)
    return np.ascontiguousarray(words).view(kind).ravel().astype(np.int64)


def _share_in_range(words: npt.NDArray[np.uint8], declared: SampleFormat, order: Order) -> float:
    """Of the words that lie within 1e-12 and 1e12 in magnitude."""
    bits = np.ascontiguousarray(words).view(np.dtype("u4").newbyteorder(order)).ravel().astype(np.uint32)
    leading = bits >> np.uint32(24 if declared == "ibm" else 23) & np.uint32(0x7F if declared == "ibm" else 0xFF)
    low, high = (0x37, 0x4A) if declared == "ibm" else (87, 167)
    return float(((leading >= low) & (leading <= high)).mean())


def is_unsigned(words: npt.NDArray[np.uint8], declared: SampleFormat, order: Order) -> bool:
    """Whether integers (words, bytes) lie near the two ends of their range, as unsigned ones read as signed do."""
    values = _integers(words, order)
    end = np.abs(values) >= 1 << (8 * SAMPLE_BYTES[declared] - 2)
    return bool(end.mean() >= 0.9 and min((values > 0).mean(), (values < 0).mean()) >= 0.1)
