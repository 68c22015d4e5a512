"""What only whole traces say, measured on some hundreds of them: evenness of the gain, phase of the first event.

A constant phase by kurtosis maximisation (Levy and Oldenburg 1987; van der Baan 2008) is not among them: on made
surveys of known phase its estimate was off by anything up to 90 degrees, since reflectivity is neither white nor
sparse enough over a few hundred samples.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Traces = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

_GAIN_WINDOWS = 16
_SHORTEST_WINDOW = 8  # samples
_PERIODS_A_WINDOW = 8
_FEWEST_WINDOWS = 6
_STRONG = 0.5  # of a trace's RMS: an event begins
_QUIET = 0.15  # of a trace's RMS: nothing has begun
_QUIET_PERIODS = 2
_FEWEST_EVENTS = 0.5  # of the traces
_LEAST_COHERENCE = 0.7  # length of the mean of unit vectors


def gain_curve(traces_NZ: Traces) -> list[float] | None:
    """RMS in 16 windows along the traces, the median over traces, over the mean of the 16; None for short traces."""
    if traces_NZ.shape[1] < _GAIN_WINDOWS * _SHORTEST_WINDOW:
        return None
    curve = np.median(_window_rms(traces_NZ, _GAIN_WINDOWS), axis=0)
    return [float(value) for value in curve / (curve.mean() or 1.0)]


def gain_variation(traces_NZ: Traces, period: float) -> float | None:
    """Median over traces of deviation over mean of the RMS in windows of eight ``period`` (samples).

    0.3 to 0.8 in surveys of true amplitude, below 0.2 after automatic gain control with gates up to 500 ms (measured
    on made surveys of six basins). Windows without samples count as muted and are left out. None for fewer than six
    windows.
    """
    windows = int(traces_NZ.shape[1] / (_PERIODS_A_WINDOW * period))
    if windows < _FEWEST_WINDOWS:
        return None
    rms_NW = _window_rms(traces_NZ, windows)
    rms_NW[rms_NW == 0] = np.nan
    filled_N = np.isfinite(rms_NW).sum(axis=1) >= _FEWEST_WINDOWS
    if not filled_N.any():
        return None
    rms_NW = rms_NW[filled_N]
    return float(np.median(np.nanstd(rms_NW, axis=1) / np.nanmean(rms_NW, axis=1)))


def first_event_phase(traces_NZ: Traces, period: float) -> float | None:
    """Phase (degrees, -180 to 180) at the envelope's peak of the first strong event below a quiet zone.

    Mostly the water bottom, a hard contrast: 0 is a positive peak, 180 a negative one, 90 a wavelet that was rotated.
    None unless half of the traces begin quietly and their events agree.
    """
    from scipy.signal import hilbert

    traces_NZ = traces_NZ.astype(np.float64)
    rms_N = np.sqrt(np.square(traces_NZ).mean(axis=1))
    traces_NZ, rms_N = traces_NZ[rms_N > 0], rms_N[rms_N > 0]
    if not len(traces_NZ):
        return None
    onset_N = (np.abs(traces_NZ) > _STRONG * rms_N[:, None]).argmax(axis=1)
    quiet = round(_QUIET_PERIODS * period)
    before_NZ = np.arange(traces_NZ.shape[1]) < (onset_N - round(period))[:, None]
    squares_N = np.where(before_NZ, np.square(traces_NZ), 0).sum(axis=1) / np.maximum(before_NZ.sum(axis=1), 1)
    usable_N = (onset_N >= quiet) & (np.sqrt(squares_N) < _QUIET * rms_N)
    if usable_N.mean() < _FEWEST_EVENTS:
        return None
    analytic_NZ = hilbert(traces_NZ[usable_N], axis=1)
    start_N = np.maximum(onset_N[usable_N] - round(period / 2), 0)
    offsets = np.arange(round(2 * period))
    index_NW = np.minimum(start_N[:, None] + offsets, traces_NZ.shape[1] - 1)
    event_NW = np.take_along_axis(analytic_NZ, index_NW, axis=1)
    peak_N = event_NW[np.arange(len(event_NW)), np.abs(event_NW).argmax(axis=1)]
    mean = (peak_N / np.abs(peak_N)).mean()
    return float(np.degrees(np.angle(mean))) if abs(mean) >= _LEAST_COHERENCE else None


def _window_rms(traces_NZ: Traces, windows: int) -> Float64:
    parts = np.array_split(traces_NZ, windows, axis=1)
    return np.asarray(np.sqrt(np.stack([np.square(part, dtype=np.float64).mean(axis=1) for part in parts], axis=1)))
