"""Amplitude statistics of a published volume, gathered in one pass and in double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from validation.volume import PublishedVolume

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

_SPECTRA_PER_BLOCK = 512  # traces
_SHORTEST_FOR_SPECTRUM = 32  # samples
_SHORTEST_FOR_CORRELATION = 8


@dataclass
class Moments:
    """Count, mean and squared deviations, merged as in Chan, Golub and LeVeque (1979)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf

    def add(self, values: Float64) -> None:
        """Take in more values."""
        if values.size == 0:
            return
        mean = float(values.mean())
        total = self.count + values.size
        between = (mean - self.mean) ** 2 * self.count * values.size / total
        self.squares += float(np.square(values - mean).sum()) + between
        self.mean += (mean - self.mean) * values.size / total
        self.count = total
        self.minimum = min(self.minimum, float(values.min()))
        self.maximum = max(self.maximum, float(values.max()))

    @property
    def deviation(self) -> float:
        """Standard deviation of the population."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0


@dataclass
class AmplitudeFacts:
    """What the samples of a volume say. Samples count where a trace is live."""

    line_squares_I: Float64
    line_samples_I: Float64
    power: Float64  # summed over traces, by frequency from 0 to Nyquist
    moments: Moments = field(default_factory=Moments)  # of finite samples
    zeros: int = 0
    live_non_finite: int = 0
    dead_finite: int = 0  # samples outside the live traces that are neither NaN nor zero
    fingerprints: list[npt.NDArray[np.uint64]] = field(default_factory=list)  # of live traces
    correlations: list[Float64] = field(default_factory=list)  # of live traces with their right-hand neighbours

    @property
    def line_rms(self) -> Float64:
        """RMS of each inline; NaN where no trace is live."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.sqrt(self.line_squares_I / self.line_samples_I))

    @property
    def repeated_share(self) -> float:
        """Share of live traces that repeat another one."""
        marks = np.concatenate(self.fingerprints)
        return 1 - len(np.unique(marks)) / len(marks)

    @property
    def band_centre(self) -> float | None:
        """Power-weighted mean frequency over Nyquist; None when traces are too short to say."""
        if 2 * (len(self.power) - 1) < _SHORTEST_FOR_SPECTRUM or not self.power.any():
            return None
        return float(np.average(np.linspace(0, 1, len(self.power)), weights=self.power))

    @property
    def neighbour_correlation(self) -> float | None:
        """Median over pairs of neighbouring crosslines; None when there are no pairs, or traces too short to say."""
        pairs = np.concatenate(self.correlations)
        return float(np.median(pairs)) if len(pairs) else None


def measure(volume: PublishedVolume) -> AmplitudeFacts:
    """Read the whole volume once, a column of chunks at a time."""
    lines, _, samples = volume.manifest.shape
    facts = AmplitudeFacts(np.zeros(lines), np.zeros(lines), np.zeros(samples // 2 + 1))
    for block in volume.blocks():
        live_IX = volume.live[block.inlines, block.crosslines]
        dead_NZ = block.amplitude_IXZ[~live_IX]
        facts.dead_finite += int(np.count_nonzero(np.isfinite(dead_NZ) & (dead_NZ != 0)))
        if not live_IX.any():
            continue
        traces_NZ = block.amplitude_IXZ[live_IX]
        finite_NZ = np.isfinite(traces_NZ)
        facts.live_non_finite += int(np.count_nonzero(~finite_NZ))
        facts.zeros += int(np.count_nonzero(traces_NZ == 0))
        facts.moments.add(traces_NZ[finite_NZ].astype(np.float64))
        facts.fingerprints.append(_fingerprints(traces_NZ))

        clean_IXZ = np.where(live_IX[:, :, None] & np.isfinite(block.amplitude_IXZ), block.amplitude_IXZ, 0.0)
        clean_IXZ = clean_IXZ.astype(np.float64)
        facts.line_squares_I[block.inlines] += np.square(clean_IXZ).sum(axis=(1, 2))
        facts.line_samples_I[block.inlines] += live_IX.sum(axis=1) * samples
        facts.power += _power(clean_IXZ[live_IX])
        facts.correlations.append(_neighbour_correlations(clean_IXZ, live_IX))
    return facts


def _fingerprints(traces_NZ: npt.NDArray[np.float32]) -> npt.NDArray[np.uint64]:
    """A 64-bit linear hash of each trace's bits."""
    factors = np.random.default_rng(0).integers(1, 2**63, traces_NZ.shape[1], dtype=np.uint64) | np.uint64(1)
    return np.asarray(traces_NZ.view(np.uint32) @ factors, dtype=np.uint64)


def _power(traces_NZ: Float64) -> Float64:
    chosen = traces_NZ[:: max(1, len(traces_NZ) // _SPECTRA_PER_BLOCK)]
    spectra = np.fft.rfft(chosen - chosen.mean(axis=1, keepdims=True), axis=1)
    return np.asarray(np.square(np.abs(spectra)).sum(axis=0))


def _neighbour_correlations(clean_IXZ: Float64, live_IX: Bool) -> Float64:
    if clean_IXZ.shape[2] < _SHORTEST_FOR_CORRELATION:
        return np.empty(0)
    centred_IXZ = clean_IXZ - clean_IXZ.mean(axis=2, keepdims=True)
    norm_IX = np.sqrt(np.square(centred_IXZ).sum(axis=2))
    product_IX = np.einsum("ixz,ixz->ix", centred_IXZ[:, :-1], centred_IXZ[:, 1:])
    norms_IX = norm_IX[:, :-1] * norm_IX[:, 1:]
    usable_IX = live_IX[:, :-1] & live_IX[:, 1:] & (norms_IX > 0)
    return np.asarray(product_IX[usable_IX] / norms_IX[usable_IX])
