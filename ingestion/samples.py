"""Trace samples of SEG-Y as float32, without loss that goes unnoticed.

Formats of SEG-Y rev 2 (SEG Technical Standards Committee, 2017), bytes 3225-3226: 1 IBM hexadecimal float,
2 int32, 3 int16, 5 IEEE float32, 8 int8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from ingestion.spec import SampleFormat

Order = Literal[">", "<"]  # numpy byte order: big, little
FORMAT_CODES: dict[int, SampleFormat] = {1: "ibm", 2: "int32", 3: "int16", 5: "ieee", 8: "int8"}
SAMPLE_BYTES: dict[SampleFormat, int] = {"ibm": 4, "int32": 4, "int16": 2, "ieee": 4, "int8": 1}
_KINDS: dict[SampleFormat, str] = {"ibm": "u4", "int32": "i4", "int16": "i2", "ieee": "f4", "int8": "i1"}
_MIN_WORDS = 256  # too few samples say nothing about their format


def _ibm_scales() -> npt.NDArray[np.float64]:
    """(256,) factor of the 24-bit fraction by the leading byte: sign * 16**(exponent - 64) / 2**24."""
    leading = np.arange(256)
    sign = np.where(leading < 128, 1.0, -1.0)
    scales: npt.NDArray[np.float64] = np.ldexp(sign, 4 * ((leading & 0x7F) - 64) - 24)
    return scales


_IBM_SCALES = _ibm_scales()


def decode(
    raw: npt.NDArray[np.uint8], sample_format: SampleFormat, order: Order
) -> tuple[npt.NDArray[np.float32], int, int]:
    """Samples of ``raw`` (traces, bytes) as (traces, samples) float32, how many of them overflow, how many are inexact.

    A 24-bit IBM fraction fits float32 exactly; beyond ±3.4e38 it becomes infinite (overflow), below 1e-38 it
    may be rounded (inexact), as is an int32 of more than 24 bits.
    """
    stored = np.ascontiguousarray(raw).view(np.dtype(_KINDS[sample_format]).newbyteorder(order))
    if sample_format in ("ieee", "int8", "int16"):
        return stored.astype(np.float32), 0, 0
    if sample_format == "ibm":
        words = stored.astype(np.uint32)
        exact = _IBM_SCALES[words >> np.uint32(24)]
        exact *= words & np.uint32(0x00FFFFFF)
    else:
        exact = stored.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        samples = exact.astype(np.float32)
    overflow = int(np.count_nonzero(np.isinf(samples)))
    inexact = int(np.count_nonzero(samples != exact)) - overflow
    return samples, overflow, inexact


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
    bits = np.ascontiguousarray(samples).view(np.uint32)
    factors = _factors(first_sample + bits.shape[1])[first_sample:]
    sums = np.empty(len(bits), np.uint64)
    for start in range(0, len(bits), 64):  # keeps the 64-bit products in cache
        sums[start : start + 64] = (bits[start : start + 64] * factors).sum(axis=1, dtype=np.uint64)
    return sums


@lru_cache(maxsize=16)
def _factors(count: int) -> npt.NDArray[np.uint64]:
    """The first ``count`` of one endless row of odd numbers."""
    return np.random.Generator(np.random.Philox(1)).integers(0, 2**64, count, np.uint64) | np.uint64(1)
