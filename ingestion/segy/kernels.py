"""Inner loops over samples, compiled: one pass through the processor's cache in place of a dozen over memory.

All release the interpreter, so that threads run them side by side. Compiled once for a machine and kept beside this
file (``NUMBA_CACHE_DIR`` where that cannot be written). Words are traces as they lie in a file, as unsigned integers
of the width of a sample, of which the samples begin with ``first_word``; ``kind`` is a format's index in ``KINDS``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from ingestion.spec import SampleFormat

KINDS: tuple[SampleFormat, ...] = ("ibm", "int32", "ieee", "int16", "int8")
_IBM, _INT32, _IEEE, _INT16 = range(4)

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_EXPONENT = np.uint32(0x7F800000)
_HIGHEST_PLAUSIBLE = np.float32(1e20).view(np.uint32)
_LOWEST_PLAUSIBLE = np.float32(1e-20).view(np.uint32)


def _ibm_scales() -> npt.NDArray[np.float64]:
    """(256,) factor of the 24-bit fraction by the leading byte: sign * 16**(exponent - 64) / 2**24."""
    leading = np.arange(256)
    sign = np.where(leading < 128, 1.0, -1.0)
    scales: npt.NDArray[np.float64] = np.ldexp(sign, 4 * ((leading & 0x7F) - 64) - 24)
    return scales


_IBM_SCALES = _ibm_scales()

_compiled: Any = njit(nogil=True, cache=True)
_compiled_fast: Any = njit(nogil=True, cache=True, error_model="numpy")


@_compiled
def _swapped4(word: Any) -> Any:
    word = np.uint32(word)
    return np.uint32(  # numba's shifts are of 64 bits
        (word >> np.uint32(24))
        | ((word >> np.uint32(8)) & np.uint32(0xFF00))
        | ((word << np.uint32(8)) & np.uint32(0xFF0000))
        | (word << np.uint32(24))
    )


@_compiled
def _decode_row(words: Any, kind: int, swap: bool, out: Any) -> tuple[int, int]:
    """One trace into float32 ``out``; how many of its samples overflow, and how many are rounded."""
    overflow = inexact = 0
    bits = out.view(np.uint32)
    if kind == _IEEE:
        for z in range(len(words)):
            bits[z] = _swapped4(words[z]) if swap else np.uint32(words[z])
    elif kind == _IBM:
        for z in range(len(words)):
            word = _swapped4(words[z]) if swap else np.uint32(words[z])
            exact = _IBM_SCALES[word >> np.uint32(24)] * np.float64(word & np.uint32(0x00FFFFFF))
            value = np.float32(exact)
            out[z] = value
            infinite = (bits[z] & _MAGNITUDE) == _EXPONENT
            overflow += infinite
            inexact += (np.float64(value) != exact) and not infinite
    elif kind == _INT32:
        for z in range(len(words)):
            word = _swapped4(words[z]) if swap else np.uint32(words[z])
            whole = np.int32(word)
            out[z] = np.float32(whole)
            inexact += np.float64(out[z]) != np.float64(whole)
    elif kind == _INT16:
        for z in range(len(words)):
            half = np.uint16(words[z])
            if swap:
                half = np.uint16((half >> np.uint16(8)) | (half << np.uint16(8)))
            out[z] = np.float32(np.int16(half))
    else:
        for z in range(len(words)):
            out[z] = np.float32(np.int8(words[z]))
    return overflow, inexact


@_compiled
def decode_rows(words_NW: Any, first_word: int, kind: int, swap: bool, out_NZ: Any) -> tuple[int, int]:
    """All traces into float32 ``out_NZ``; how many samples overflow, and how many are rounded."""
    overflow = inexact = 0
    for n in range(words_NW.shape[0]):
        more = _decode_row(words_NW[n, first_word:], kind, swap, out_NZ[n])
        overflow += more[0]
        inexact += more[1]
    return overflow, inexact


@_compiled
def decode_to_cells(
    words_NW: Any, first_word: int, kind: int, swap: bool, cell_N: Any, first_sample: int, out_CZ: Any
) -> None:
    """Traces into the rows ``cell_N`` of a tile (negative: none), of each the samples from ``first_sample`` on."""
    count = out_CZ.shape[1]
    first = first_word + first_sample
    for n in range(words_NW.shape[0]):
        if cell_N[n] >= 0:
            _decode_row(words_NW[n, first : first + count], kind, swap, out_CZ[cell_N[n]])


@_compiled
def scan_rows(
    words_NW: Any,
    first_word: int,
    kind: int,
    swap: bool,
    factors_Z: Any,
    zero_N: Any,
    non_finite_N: Any,
    checksum_N: Any,
    lowest_N: Any,
    highest_N: Any,
) -> tuple[int, int, int, int]:
    """What each trace holds, into the five results; samples that overflow, are rounded, extreme and not zero."""
    overflow = inexact = extreme = nonzero = 0
    trace_Z = np.empty(words_NW.shape[1] - first_word, np.float32)
    bits_Z = trace_Z.view(np.uint32)
    for n in range(words_NW.shape[0]):
        more = _decode_row(words_NW[n, first_word:], kind, swap, trace_Z)
        overflow += more[0]
        inexact += more[1]
        checksum = np.uint64(0)
        strange = odd = filled = 0
        low, high = np.float32(np.inf), np.float32(-np.inf)
        for z in range(len(trace_Z)):
            bits = bits_Z[z]
            checksum += np.uint64(bits) * factors_Z[z]
            magnitude = bits & _MAGNITUDE
            finite = magnitude < _EXPONENT
            strange += not finite
            filled += finite and magnitude != 0
            odd += finite and magnitude != 0 and (magnitude > _HIGHEST_PLAUSIBLE or magnitude < _LOWEST_PLAUSIBLE)
            if finite:
                low, high = min(low, trace_Z[z]), max(high, trace_Z[z])
        zero_N[n] = filled == 0 and strange == 0
        non_finite_N[n] = strange
        checksum_N[n] = checksum
        lowest_N[n] = low
        highest_N[n] = high
        extreme += odd
        nonzero += filled
    return overflow, inexact, extreme, nonzero


@_compiled
def checksum_rows(samples_NZ: Any, factors_Z: Any, checksum_N: Any) -> None:
    """Adds to ``checksum_N`` the products of sample bits and factors, modulo 2**64."""
    for n in range(samples_NZ.shape[0]):
        bits_Z = samples_NZ[n].view(np.uint32)
        total = np.uint64(0)
        for z in range(len(bits_Z)):
            total += np.uint64(bits_Z[z]) * factors_Z[z]
        checksum_N[n] += total


@_compiled
def key_of(bits: Any) -> Any:
    """Unsigned integers in the order of the float32 values that have these bits."""
    return np.uint32(~bits) if bits >> np.uint32(31) else np.uint32(bits | np.uint32(0x80000000))


@_compiled_fast
def count_rows(samples_NZ: Any, live_N: Any, coarse: Any) -> tuple[int, float, float, int, int, float, float]:
    """First pass of statistics over live rows of finite samples: upper halves of all keys into ``coarse``.

    Returns count, mean, sum of squared deviations, zeros, negative ones, smallest and largest. Rows are merged in
    order (Chan, Golub and LeVeque 1983), so that the same rows give the same digits.
    """
    count = zeros = negative = 0
    mean = squares = 0.0
    low, high = np.float32(np.inf), np.float32(-np.inf)
    columns = samples_NZ.shape[1]
    for n in range(samples_NZ.shape[0]):
        if not live_N[n]:
            continue
        row_Z = samples_NZ[n]
        bits_Z = row_Z.view(np.uint32)
        total = 0.0
        for z in range(columns):
            value = row_Z[z]
            total += np.float64(value)
            zeros += value == 0
            negative += value < 0
            low, high = min(low, value), max(high, value)
            coarse[key_of(bits_Z[z]) >> np.uint32(16)] += 1
        row_mean, row_squares = total / columns, 0.0
        for z in range(columns):
            row_squares += (np.float64(row_Z[z]) - row_mean) ** 2
        delta = row_mean - mean
        squares += row_squares + delta**2 * count * columns / (count + columns)
        mean += delta * columns / (count + columns)
        count += columns
    return count, mean, squares, zeros, negative, np.float64(low), np.float64(high)


@_compiled_fast
def refine_rows(
    samples_NZ: Any,
    live_N: Any,
    slot: Any,
    fine: Any,
    histogram: Any,
    first: float,
    width: float,
    lowest: Any,
    highest: Any,
) -> tuple[int, int]:
    """Second pass: lower halves of the keys whose upper half has a ``slot``, the histogram, and the extremes."""
    at_lowest = at_highest = 0
    last = len(histogram) - 1
    for n in range(samples_NZ.shape[0]):
        if not live_N[n]:
            continue
        row_Z = samples_NZ[n]
        bits_Z = row_Z.view(np.uint32)
        for z in range(len(row_Z)):
            key = key_of(bits_Z[z])
            chosen = slot[key >> np.uint32(16)]
            if chosen >= 0:
                fine[chosen, key & np.uint32(0xFFFF)] += 1
            place = (np.float64(row_Z[z]) - first) / width
            histogram[int(min(max(place, 0.0), np.float64(last)))] += 1
            at_lowest += row_Z[z] == lowest
            at_highest += row_Z[z] == highest
    return at_lowest, at_highest
