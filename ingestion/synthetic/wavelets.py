"""Source wavelets, and their convolution with a reflectivity whose high frequencies fade with travel time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingestion.synthetic.basins import Basin

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

_BINS = 1024  # frequencies of the wavelet spectra; more than any window needs


def half_length(basin: Basin) -> int:
    """Samples after which the basin's wavelet has died away."""
    return int(np.ceil(1500 / basin.frequency / basin.sample_interval_ms))


def attenuating_operator(basin: Basin, samples: int) -> Float32:
    """The (samples, samples + 2 * half_length) matrix that turns padded reflectivity into a trace.

    Column j is the wavelet of a reflector at sample j, its spectrum multiplied by ``exp(-pi f t / Q)`` for
    the travel time t below the top of the window. This is non-stationary convolution (Margrave 1998, *Theory of
    nonstationary linear filtering in the Fourier domain*, Geophysics 63(1)) with constant Q (Kjartansson 1979),
    its dispersion taken as already
    corrected: zero phase, then the basin's rotation.
    """
    pad = half_length(basin)
    step = basin.sample_interval_ms / 1000
    frequency = _frequencies(basin)
    onset = np.maximum(np.arange(samples + 2 * pad) - pad, 0) * step
    faded = _spectrum(basin, frequency) * np.exp(-np.pi * frequency * onset[:, None] / basin.quality)
    wavelets = np.fft.irfft(faded * np.exp(1j * np.deg2rad(basin.phase)), axis=1)
    lag = np.arange(samples)[:, None] + pad - np.arange(samples + 2 * pad)
    edge = np.clip(3 * abs(lag) / (pad + 1) - 2, 0, 1)  # the outer third fades to nothing
    operator = wavelets[np.arange(samples + 2 * pad)[None, :], lag] * np.cos(np.pi / 2 * edge) ** 2 * (edge < 1)
    return np.asarray(operator, dtype=np.float32)


def noise_operator(basin: Basin, samples: int) -> Float32:
    """The (samples, samples) matrix that gives white noise the basin's noise band."""
    frequency = _frequencies(basin)
    low, high = basin.noise_band
    pulse = np.fft.irfft(_band(frequency, low / 2, low, high * 0.7, high * 1.3))
    lag = np.arange(samples)[:, None] - np.arange(samples)
    return np.asarray(pulse[lag], dtype=np.float32)


def _frequencies(basin: Basin) -> Float64:
    """Hz, of a spectrum whose wavelet has an even number of samples."""
    return np.asarray(np.fft.rfftfreq(2 * _BINS, basin.sample_interval_ms / 1000), dtype=np.float64)


def _spectrum(basin: Basin, frequency: Float64) -> Float64:
    centre = basin.frequency
    if basin.wavelet == "ricker":
        return np.asarray((frequency / centre) ** 2 * np.exp(1 - (frequency / centre) ** 2))
    if basin.wavelet == "ormsby":
        return _band(frequency, 0.1 * centre, 0.25 * centre, 1.5 * centre, 2.2 * centre)
    # Klauder: autocorrelation of a linear sweep, whose power is flat over the band with short tapers
    return _band(frequency, 0.3 * centre, 0.4 * centre, 1.6 * centre, 1.8 * centre) ** 2


def _band(frequency: Float64, *corners: float) -> Float64:
    return np.interp(frequency, corners, (0.0, 1.0, 1.0, 0.0))
