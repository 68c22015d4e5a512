"""Amplitude statistics of a volume that does not fit into memory, exact: two passes, a few megabytes.

Percentiles are order statistics of float32 bit patterns: the first pass counts the upper 16 bits of every value,
the second the lower 16 bits of those values that share them with a wanted rank (radix selection).
Mean and variance are merged block by block in double precision (Chan, Golub and LeVeque 1983).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from threading import Lock

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Normalisation, Statistics
from ingestion.segy.kernels import count_rows, refine_rows

Samples = npt.NDArray[np.float32]
Live = npt.NDArray[np.bool_]
PERCENTILES = (0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9)
CLIP = 6.0  # scales
_BINS = 128
_TAIL = 1.0  # per cent left out at each end by the normalisation
_TAIL_DEVIATIONS = 2.3263478740408408  # standard normal quantile of 0.99


class AmplitudeStatistics:
    """Give every sample to ``add``, call ``prepare``, give every sample to ``refine``, take the results."""

    def __init__(self) -> None:
        self.count = self.zeros = self.negative = 0
        self.mean = self._squares = 0.0
        self.minimum, self.maximum = math.inf, -math.inf
        self._coarse = np.zeros(1 << 16, np.int64)
        self._slot = np.full(1 << 16, -1, np.int32)
        self._fine = np.zeros((0, 1 << 16), np.int64)
        self._edges = (0.0, 0.0)
        self._histogram = np.zeros(_BINS, np.int64)
        self._extreme = [0, 0]  # samples equal to minimum, maximum
        self._lock = Lock()

    def add(self, samples: Samples, live: Live | None = None) -> None:
        """First pass over finite samples, (n,), or (traces, n) of which those count that are ``live``."""
        counts = np.zeros(1 << 16, np.int64)
        rows, live_N = _rows(samples, live)
        count, mean, squares, zeros, negative, lowest, highest = count_rows(rows, live_N, counts)
        if not count:
            return
        total, delta = self.count + count, mean - self.mean
        self._squares += squares + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.count = total
        self.zeros += zeros
        self.negative += negative
        self.minimum = min(self.minimum, lowest)
        self.maximum = max(self.maximum, highest)
        self._coarse += counts

    def prepare(self) -> None:
        """Between the passes: which upper halves hold a wanted rank, and where the histogram's bins lie."""
        wanted = np.unique([self._coarse_bin(rank) for rank in self._wanted_ranks()])
        self._slot[wanted] = np.arange(len(wanted))
        self._fine = np.zeros((len(wanted), 1 << 16), np.int64)
        low = self._coarse_bin(math.floor(self._position(PERCENTILES[0], self.count)))
        high = self._coarse_bin(math.ceil(self._position(PERCENTILES[-1], self.count)))
        bounds = np.array([low << 16, high << 16 | 0xFFFF], np.uint32)
        first, last = np.clip(_values(bounds).astype(np.float64), self.minimum, self.maximum).tolist()
        self._edges = (first, last) if first < last else (self.minimum, self.maximum)

    def refine(self, samples: Samples, live: Live | None = None) -> None:
        """Second pass over the same samples, in any order, by any thread."""
        rows, live_N = _rows(samples, live)
        first, last = self._edges
        width = (last - first) / _BINS or 1.0
        limits = np.float32(self.minimum), np.float32(self.maximum)
        with self._lock:
            times = refine_rows(rows, live_N, self._slot, self._fine, self._histogram, first, width, *limits)
            self._extreme = [before + more for before, more in zip(self._extreme, times, strict=True)]

    def statistics(self) -> Statistics:
        """Of all samples given."""
        edges = np.linspace(*self._edges, _BINS + 1)
        edges[0], edges[-1] = self.minimum, self.maximum  # the outer bins hold the tails
        extremes = zip((self.minimum, self.maximum), self._extreme, strict=True)
        clipped = sum(times for value, times in extremes if times > 1 and value != 0)
        return Statistics(
            count=self.count,
            mean=self.mean,
            std=math.sqrt(self._squares / self.count),
            minimum=self.minimum,
            maximum=self.maximum,
            zero_share=self.zeros / self.count,
            clipped_share=clipped / self.count,
            percentiles={f"{p:g}": self._percentile(p) for p in PERCENTILES},
            histogram_edges=edges.tolist(),
            histogram_counts=self._histogram.tolist(),
        )

    def normalisation(self) -> Normalisation:
        """Median and 1 to 99 % range of the samples that are not zero, the range divided by that of a unit normal.

        Quantile ranges as estimators of scale: Hampel et al. 1986, Robust Statistics. One per cent at each end
        leaves out spikes; zeros (mutes, padding) and weak zones do not shrink the scale as they do an inner range.
        """
        low, centre, high = (self._percentile(p, nonzero=True) for p in (_TAIL, 50.0, 100.0 - _TAIL))
        scale = (high - low) / (2 * _TAIL_DEVIATIONS) or math.sqrt(self._squares / self.count)
        return Normalisation(centre=centre, scale=scale, clip=CLIP)

    def _wanted_ranks(self) -> Iterator[int]:
        nonzero = self.count - self.zeros
        for p in PERCENTILES:
            position = self._position(p, self.count)
            yield from (math.floor(position), math.ceil(position))
        for p in (_TAIL, 50.0, 100.0 - _TAIL) if nonzero else ():
            position = self._position(p, nonzero)
            yield from (self._rank(math.floor(position)), self._rank(math.ceil(position)))

    def _percentile(self, p: float, *, nonzero: bool = False) -> float:
        """Linear between the two nearest order statistics, as ``numpy.percentile``."""
        position = self._position(p, self.count - self.zeros if nonzero else self.count)
        ranks = [math.floor(position), math.ceil(position)]
        low, high = (self._order_statistic(self._rank(r) if nonzero else r) for r in ranks)
        return low + (high - low) * (position - ranks[0])

    @staticmethod
    def _position(p: float, count: int) -> float:
        return p / 100 * (count - 1)

    def _rank(self, nonzero_rank: int) -> int:
        """Rank among all samples of a rank among those that are not zero."""
        return nonzero_rank if nonzero_rank < self.negative else nonzero_rank + self.zeros

    def _coarse_bin(self, rank: int) -> int:
        return int(np.searchsorted(np.cumsum(self._coarse), rank, side="right"))

    def _order_statistic(self, rank: int) -> float:
        upper = self._coarse_bin(rank)
        within = rank - int(self._coarse[:upper].sum())
        lower = int(np.searchsorted(np.cumsum(self._fine[self._slot[upper]]), within, side="right"))
        return float(_values(np.array([upper << 16 | lower], np.uint32))[0])


def _rows(samples: Samples, live: Live | None) -> tuple[Samples, Live]:
    rows = np.atleast_2d(samples)
    return rows, np.ones(len(rows), np.bool_) if live is None else live


def _values(keys: npt.NDArray[np.uint32]) -> Samples:
    """The samples that ``kernels.key_of`` gives these keys."""
    bits = np.where(keys >> np.uint32(31), keys & np.uint32(0x7FFFFFFF), ~keys).astype(np.uint32)
    return bits.view(np.float32)
