"""What validation measured of one published survey, kept beside it as ``facts.json`` to compare later ones with.

Nothing here is judged. ``None`` means that the survey is too small, or its traces too short, to say.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest, Manifest, SafeName, survey_folder
from validation.amplitudes import Amplitudes
from validation.traces import first_event_phase, gain_curve, gain_variation

Float64 = npt.NDArray[np.float64]

BANDS = 24
BAND_WIDTH = {"time": 5.0, "depth": 2.5}  # Hz, cycles/km; the last band holds all above
_FOOT = 0.3048


class Facts(Contract):
    """``surveys/<survey>/<digest>/facts.json``. Lengths along the traces are in ms, or in m in depth."""

    schema_version: Literal[1] = 1
    survey: SafeName
    digest: Digest
    domain: Literal["time", "depth"]
    live_traces: int
    live_share: float
    bins: tuple[float, float] | None  # along inline and crossline numbers, coordinate units; None: no coordinates
    interval: float
    start: float
    extent: float  # from the first sample to the last
    quantiles: dict[str, float]  # of normalised samples, by per cent
    skewness: float  # of normalised, clipped samples
    kurtosis: float  # the same; 3 for a normal distribution
    zero_share: float
    repeated_share: float
    spectrum: list[float] | None = Field(min_length=BANDS, max_length=BANDS)  # share of power in each band, sums to 1
    frequency_unit: Literal["Hz", "cycles/km"]
    centre: float | None  # power-weighted mean frequency
    centre_over_nyquist: float | None
    dominant: float | None  # frequency of most power, smoothed
    gain: list[float] | None  # RMS in 16 windows along the traces (median over traces) over the mean of these
    gain_variation: float | None  # median over traces of deviation over mean of the RMS in windows of eight periods
    first_event_phase: float | None  # degrees, of the first strong event below a quiet zone; 0 for a positive peak
    neighbour_correlation: float | None


def facts_key(survey: str, digest: str) -> str:
    """Where the facts lie."""
    return f"{survey_folder(survey, digest)}/facts.json"


def load_facts(lake: Lake, survey: str, digest: str) -> Facts | None:
    """The facts of one digest; None when there are none that this version reads."""
    try:
        return Facts.model_validate_json(lake.read(facts_key(survey, digest)))
    except (FileNotFoundError, ValidationError):
        return None


def facts_of(manifest: Manifest, found: Amplitudes) -> Facts:
    """The facts of one survey from its manifest and the one pass over its samples."""
    axis, scaling = manifest.sample, manifest.normalisation
    metre = _FOOT if axis.unit == "ft" else 1.0
    interval = axis.step * metre
    per_sample = 1000 / interval  # samples a second or a kilometre
    power = found.power
    nyquist = per_sample / 2
    centre = None if found.band_centre is None else found.band_centre * nyquist
    kept_NZ = found.kept_NZ
    period = None if centre is None else max(per_sample / centre, 2.0)  # samples
    return Facts(
        survey=manifest.survey,
        digest=manifest.digest,
        domain=manifest.domain,
        live_traces=manifest.live_traces,
        live_share=manifest.live_share,
        bins=bin_sizes(manifest),
        interval=interval,
        start=axis.first * metre,
        extent=interval * (axis.count - 1),
        quantiles={p: (value - scaling.centre) / scaling.scale for p, value in manifest.statistics.percentiles.items()},
        skewness=found.shape.skewness,
        kurtosis=found.shape.kurtosis,
        zero_share=found.zeros / max(found.moments.count, 1),
        repeated_share=found.repeated_share,
        spectrum=_bands(power, nyquist, BAND_WIDTH[manifest.domain]) if found.has_spectrum else None,
        frequency_unit="Hz" if manifest.domain == "time" else "cycles/km",
        centre=centre,
        centre_over_nyquist=found.band_centre,
        dominant=_dominant(power, nyquist) if found.has_spectrum else None,
        gain=gain_curve(kept_NZ),
        gain_variation=None if period is None else gain_variation(kept_NZ, period),
        first_event_phase=None if period is None else first_event_phase(kept_NZ, period),
        neighbour_correlation=found.neighbour_correlation,
    )


def bin_sizes(manifest: Manifest) -> tuple[float, float] | None:
    """Steps to the next inline and crossline in coordinate units; None when the file gave no coordinates."""
    if not has_coordinates(manifest):
        return None
    grid = manifest.geometry
    return math.hypot(*grid.inline_vector), math.hypot(*grid.crossline_vector)


def has_coordinates(manifest: Manifest) -> bool:
    """Whether the grid lies somewhere: without coordinates, ingestion puts line numbers in their place."""
    grid, inline, crossline = manifest.geometry, manifest.inline, manifest.crossline
    numbers = ((inline.first, crossline.first), (inline.step, 0.0), (0.0, crossline.step))
    flat = math.hypot(*grid.inline_vector) == 0 and math.hypot(*grid.crossline_vector) == 0
    return (grid.origin, grid.inline_vector, grid.crossline_vector) != numbers and not flat


def _bands(power: Float64, nyquist: float, width: float) -> list[float]:
    """Share of the power in ``BANDS`` bands from 0, interpolated where spectra are coarser than bands."""
    edges = np.arange(BANDS) * width
    frequencies = (np.arange(len(power)) + 0.5) * nyquist / (len(power) - 1)  # upper edge of each line
    cumulative = np.interp(edges, np.concatenate([[0.0], frequencies]), np.concatenate([[0.0], np.cumsum(power)]))
    return [float(share) for share in np.diff(np.append(cumulative, power.sum())) / power.sum()]


def _dominant(power: Float64, nyquist: float) -> float:
    smooth = np.convolve(power, np.hanning(max(3, len(power) // 12 | 1) + 2), mode="same")
    return float(np.argmax(smooth) * nyquist / (len(power) - 1))
