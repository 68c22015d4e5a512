"""Trace samples of SEG-Y as float32, without loss that goes unnoticed.

Formats of SEG-Y rev 2 (SEG Technical Standards Committee, 2017), bytes 3225-3226: 1 IBM hexadecimal float,
2 int32, 3 int16, 5 IEEE float32, 8 int8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ingestion.segy.kernels import KINDS, checksum_rows, decode_rows
from ingestion.spec import SampleFormat

Order = Literal[">", "<"]  # numpy byte order: big, little
TRACE_HEADER_BYTES = 240
FORMAT_CODES: dict[int, SampleFormat] = {1: "ibm", 2: "int32", 3: "int16", 5: "ieee", 8: "int8"}
SAMPLE_BYTES: dict[SampleFormat, int] = {"ibm": 4, "int32": 4, "int16": 2, "ieee": 4, "int8": 1}
_MINUS_ZERO = np.uint32(0x80000000)
_MIN_WORDS = 256  # too few samples say nothing about their format


class Words(NamedTuple):
    """Traces as the kernels of ``ingestion.segy.kernels`` take them; these four are their first arguments."""

    words_NW: npt.NDArray[np.unsignedinteger]
    first_word: int  # of the samples
    kind: int
    swap: bool


def words_of(
    raw: npt.NDArray[np.uint8], sample_format: SampleFormat, order: Order, header_bytes: int = TRACE_HEADER_BYTES
) -> Words:
    """``raw`` (traces, bytes), of which the first ``header_bytes`` of each trace are its header."""
    width = SAMPLE_BYTES[sample_format]
    words_NW = raw.view(f"u{width}")
    words_NW.flags.writeable = False  # else each kernel is compiled twice
    return Words(words_NW, header_bytes // width, KINDS.index(sample_format), order == ">")


def decode(
    raw: npt.NDArray[np.uint8], sample_format: SampleFormat, order: Order, header_bytes: int = 0
) -> tuple[npt.NDArray[np.float32], int, int]:
    """Samples of ``raw`` (traces, bytes) as (traces, samples) float32, how many of them overflow, how many are inexact.

    A 24-bit IBM fraction fits float32 exactly; beyond ±3.4e38 it becomes infinite (overflow), below 1e-38 it
    may be rounded (inexact), as is an int32 of more than 24 bits.
    """
    words = words_of(np.ascontiguousarray(raw), sample_format, order, header_bytes)
    samples = np.empty((len(raw), words.words_NW.shape[1] - words.first_word), np.float32)
    overflow, inexact = decode_rows(*words, samples)
    return samples, overflow, inexact


def encode(samples: npt.NDArray[np.float32], sample_format: SampleFormat, order: Order) -> npt.NDArray[np.uint8]:
    """(traces, bytes) of (traces, samples): what ``decode`` made them from, where that was a normalised number."""
    kinds = {"ibm": "u4", "ieee": "f4", "int32": "i4", "int16": "i2", "int8": "i1"}
    stored = np.dtype(kinds[sample_format]).newbyteorder(order)
    values: npt.NDArray[np.generic] = samples
    if stored.kind == "i":
        limits = np.iinfo(stored)  # float32 rounds the largest int32 to one more, which would become the smallest
        values = np.clip(np.rint(samples.astype(np.float64)), limits.min, limits.max)
    elif sample_format == "ibm":
        from segy.ibm import ieee2ibm  # compiles for a second

        bits = samples.view(np.uint32)
        values = np.where(bits == _MINUS_ZERO, _MINUS_ZERO, ieee2ibm(samples))
    return (
        np.ascontiguousarray(values.astype(stored))
        .view(np.uint8)
        .reshape(len(samples), samples.shape[1] * stored.itemsize)
    )


@dataclass
class FormatEvidence:
    """Whether 4-byte words look like IBM or like IEEE floats, whatever the header says.

    A normalised IBM float never has a zero first hexadecimal digit of its fraction (bits 23-20). In an IEEE
    float these are the lowest exponent bit and the top of the mantissa, which are all zero for about one value
    in twelve of any data that spans a few powers of two (log2(9/8) / 2, by Benford's law).
    """

    words: int = 0  # not zero
    zero_digit: int = 0  # of these, first fraction digit zero
    even: int = 0  # IEEE exponent even: candidates for a zero digit
    even_exponents: set[int] = field(default_factory=set)

    def add(self, raw: npt.NDArray[np.uint8], order: Order) -> None:
        """Count a block of (traces, bytes); some thousand words of it are enough."""
        traces = raw[:: max(1, len(raw) // 16)]
        words = np.ascontiguousarray(traces).view(np.dtype("u4").newbyteorder(order)).astype(np.uint32).ravel()
        words = words[(words & np.uint32(0x7FFFFFFF)) != 0]
        even = words[(words & np.uint32(0x00800000)) == 0]
        self.words += len(words)
        self.even += len(even)
        self.zero_digit += int(np.count_nonzero((even & np.uint32(0x00F00000)) == 0))
        self.even_exponents.update(np.unique((even >> np.uint32(24)) & np.uint32(0x7F)).tolist())

    def contradicts(self, declared: SampleFormat) -> SampleFormat | None:
        """The format the words look like, when that is not ``declared``; None when there is no contradiction."""
        if self.words < _MIN_WORDS:
            return None
        if declared == "ibm" and self.zero_digit > 0.01 * self.words:
            return "ieee"
        varied = self.even >= _MIN_WORDS and len(self.even_exponents) >= 3
        if declared == "ieee" and varied and self.zero_digit < 0.002 * self.even:
            return "ibm"
        return None


def trace_checksums(samples: npt.NDArray[np.float32], first_sample: int = 0) -> npt.NDArray[np.uint64]:
    """(traces,) checksums of the bit patterns of (traces, samples); those of parts of a trace add up.

    Multilinear modulo 2**64 with fixed odd factors (Carter and Wegman 1979): any one changed sample changes it.
    ``first_sample`` is the index of the first column in the whole trace.
    """
    sums = np.zeros(len(samples), np.uint64)
    checksum_rows(np.ascontiguousarray(samples), checksum_factors(samples.shape[1], first_sample), sums)
    return sums


def checksum_factors(count: int, first_sample: int = 0) -> npt.NDArray[np.uint64]:
    """(count,) odd numbers from ``first_sample`` on of one endless row."""
    return _factors(first_sample + count)[first_sample:]


@lru_cache(maxsize=16)
def _factors(count: int) -> npt.NDArray[np.uint64]:
    return np.random.Generator(np.random.Philox(1)).integers(0, 2**64, count, np.uint64) | np.uint64(1)
