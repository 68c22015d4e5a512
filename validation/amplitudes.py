"""What the samples of a published volume say, gathered in one pass and in double precision.

Memory grows by 9 bytes a trace (live mask and fingerprint), whatever the length of the traces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Manifest
from validation.volume import Block, PublishedVolume

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

_SPECTRA_PER_BLOCK = 128  # traces
_KEPT_TRACES = 2048  # for what needs whole traces: windows, first events; of long ones fewer, together at most
_KEPT_SAMPLES = 1 << 21
_SHORTEST_FOR_SPECTRUM = 32  # samples
_SHORTEST_FOR_CORRELATION = 8
_CORRELATION_BINS = 2000  # from -1 to 1


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
class Shape:
    """Sums of powers of normalised, clipped samples: how their distribution leans and how heavy its tails are."""

    powers: Float64 = field(default_factory=lambda: np.zeros(5))  # of exponents 0 to 4

    def add(self, normalised: Float64) -> None:
        """Take in more values, clipped to some scales, so that sums stay exact enough."""
        squares = np.square(normalised)
        sums = (normalised.size, normalised.sum(), squares.sum(), squares @ normalised, squares @ squares)
        self.powers += np.array(sums, dtype=np.float64)

    @property
    def skewness(self) -> float:
        """Third standardised moment; 0 when all values are one."""
        mean, variance, third, _ = self._central()
        return (third - 3 * mean * variance - mean**3) / variance**1.5 if variance > 0 else 0.0

    @property
    def kurtosis(self) -> float:
        """Fourth standardised moment, 3 for a normal distribution."""
        mean, variance, third, fourth = self._central()
        central = fourth - 4 * mean * third + 6 * mean**2 * (variance + mean**2) - 3 * mean**4
        return central / variance**2 if variance > 0 else 0.0

    def _central(self) -> tuple[float, float, float, float]:
        mean, second, third, fourth = (self.powers[1:] / max(self.powers[0], 1)).tolist()
        return mean, second - mean**2, third, fourth


@dataclass
class Amplitudes:
    """What the samples of a volume say. Samples count where a trace is live."""

    line_squares_I: Float64
    line_samples_I: Float64
    power: Float64  # summed over traces, by frequency from 0 to Nyquist
    fingerprints: npt.NDArray[np.uint64]  # of live traces
    moments: Moments = field(default_factory=Moments)  # of finite samples
    shape: Shape = field(default_factory=Shape)
    traces: int = 0  # live ones so far
    zeros: int = 0
    live_non_finite: int = 0
    dead_finite: int = 0  # samples outside the live traces that are neither NaN nor zero
    correlations: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_CORRELATION_BINS, np.int64))
    kept: list[npt.NDArray[np.float32]] = field(default_factory=list)  # some live traces, evenly spread

    @property
    def line_rms(self) -> Float64:
        """RMS of each inline; NaN where no trace is live."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.sqrt(self.line_squares_I / self.line_samples_I))

    @property
    def kept_NZ(self) -> npt.NDArray[np.float32]:
        """At most some 2,048 live traces, evenly spread over the survey."""
        return np.concatenate(self.kept) if self.kept else np.empty((0, 0), np.float32)

    @property
    def repeated_share(self) -> float:
        """Share of live traces that repeat another one."""
        marks = self.fingerprints[: self.traces]
        marks.sort()  # in place: a copy would double what grows with the survey
        return float(np.count_nonzero(marks[1:] == marks[:-1])) / max(len(marks), 1)

    @property
    def has_spectrum(self) -> bool:
        """Whether traces are long enough, and hold enough, to say."""
        return 2 * (len(self.power) - 1) >= _SHORTEST_FOR_SPECTRUM and bool(self.power.any())

    @property
    def band_centre(self) -> float | None:
        """Power-weighted mean frequency over Nyquist; None when there is no spectrum."""
        if not self.has_spectrum:
            return None
        return float(np.average(np.linspace(0, 1, len(self.power)), weights=self.power))

    @property
    def neighbour_correlation(self) -> float | None:
        """Median over pairs of neighbouring crosslines, to 0.001; None without pairs, or traces too short to say."""
        total = int(self.correlations.sum())
        if not total:
            return None
        middle = int(np.searchsorted(np.cumsum(self.correlations), (total + 1) // 2))
        return (middle + 0.5) * 2 / _CORRELATION_BINS - 1


def measure(volume: PublishedVolume) -> Amplitudes:
    """Read the whole volume once, a block at a time."""
    manifest = volume.manifest
    lines, _, samples = manifest.shape
    found = Amplitudes(
        np.zeros(lines),
        np.zeros(lines),
        np.zeros(samples // 2 + 1),
        np.zeros(int(np.count_nonzero(volume.live)), np.uint64),
    )
    for block in volume.blocks():
        live_IX = volume.live[block.inlines, block.crosslines]
        dead_NZ = block.amplitude_IXZ[~live_IX]
        found.dead_finite += int(np.count_nonzero(np.isfinite(dead_NZ) & (dead_NZ != 0)))
        if live_IX.any():
            _add(found, manifest, block, live_IX)
    return found


def _add(found: Amplitudes, manifest: Manifest, block: Block, live_IX: Bool) -> None:
    traces_NZ = block.amplitude_IXZ[live_IX]
    finite_NZ = np.isfinite(traces_NZ)
    values = traces_NZ[finite_NZ].astype(np.float64)
    found.live_non_finite += traces_NZ.size - len(values)
    found.zeros += int(np.count_nonzero(values == 0))
    found.moments.add(values)
    scaling = manifest.normalisation
    found.shape.add(np.clip((values - scaling.centre) / scaling.scale, -scaling.clip, scaling.clip))
    found.fingerprints[found.traces : found.traces + len(traces_NZ)] = _fingerprints(traces_NZ)
    most = max(1, min(_KEPT_TRACES, _KEPT_SAMPLES // traces_NZ.shape[1]))
    every = max(1, -(-len(found.fingerprints) // most))
    if len(kept := traces_NZ[-found.traces % every :: every]):
        found.kept.append(np.nan_to_num(kept, nan=0.0, posinf=0.0, neginf=0.0))
    found.traces += len(traces_NZ)

    clean_IXZ = np.where(live_IX[:, :, None] & np.isfinite(block.amplitude_IXZ), block.amplitude_IXZ, 0.0)
    clean_IXZ = clean_IXZ.astype(np.float64)
    found.line_squares_I[block.inlines] += np.square(clean_IXZ).sum(axis=(1, 2))
    found.line_samples_I[block.inlines] += live_IX.sum(axis=1) * clean_IXZ.shape[2]
    found.power += _power(clean_IXZ[live_IX])
    pairs = (_neighbour_correlations(clean_IXZ, live_IX) + 1) * (_CORRELATION_BINS / 2)
    bins = np.clip(pairs, 0, _CORRELATION_BINS - 1).astype(np.int64)
    found.correlations += np.bincount(bins, minlength=_CORRELATION_BINS)


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
