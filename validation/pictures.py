"""Pictures of a published survey for people: three sections, histogram, spectrum, live traces or fold, location."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ingestion.lake import Lake
from ingestion.manifest import Axis, Manifest
from validation.maps import live_map, location_map
from validation.overlap import neighbours
from validation.volume import PublishedVolume

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (7.0, 4.6)  # inches
_DPI = 100
_POINTS = 800  # most pixels along an axis of a picture
_SPECTRUM_TRACES = 500
_COLOURS = "seismic"


def survey_pictures(lake: Lake, manifest: Manifest) -> dict[str, bytes]:
    """PNG bytes by caption: middle inline, crossline and slice on one colour scale, histogram, spectrum, two maps.

    The scale is symmetric at the 99 % percentile of absolute amplitude; dead and missing traces are grey.
    """
    volume = PublishedVolume(lake, manifest)
    inline, crossline, sample = _middle(volume)
    vertical = "time (ms)" if manifest.domain == "time" else f"depth ({manifest.sample.unit})"
    limit = max(abs(manifest.statistics.percentiles[p]) for p in ("1", "99")) or manifest.statistics.maximum or 1.0
    line_XZ = volume.amplitude(inline, slice(None), slice(None))
    section_XZ = _thinned(line_XZ)
    section_IZ = _thinned(volume.amplitude(slice(None), crossline, slice(None)))
    slice_IX = volume.amplitude(_every(manifest.shape[0]), _every(manifest.shape[1]), sample)

    def section(values: npt.NDArray[np.float32], across: Axis, name: str) -> Callable[[Axes], None]:
        return lambda axes: _image(axes, values.T, across, manifest.sample, (name, vertical), limit)

    return {
        f"Inline {_at(manifest.inline, inline)}": _png(section(section_XZ, manifest.crossline, "crossline")),
        f"Crossline {_at(manifest.crossline, crossline)}": _png(section(section_IZ, manifest.inline, "inline")),
        f"Slice at {_at(manifest.sample, sample)} {manifest.sample.unit}": _png(
            lambda axes: _image(
                axes, slice_IX, manifest.crossline, manifest.inline, ("crossline", "inline"), limit, lines=True
            )
        ),
        "Amplitude histogram": _png(lambda axes: _histogram(axes, manifest, limit)),
        f"Spectrum of inline {_at(manifest.inline, inline)}": _png(
            lambda axes: _spectrum(axes, manifest, line_XZ[volume.live[inline]])
        ),
        "Live traces": _png(lambda axes: live_map(axes, volume)),
        "Location": _png(lambda axes: location_map(axes, manifest, neighbours(lake, manifest))),
    }


def _middle(volume: PublishedVolume) -> tuple[int, int, int]:
    """The live inline and crossline nearest the middle of the live traces, and the middle sample."""
    thin = tuple(_every(size) for size in volume.live.shape)
    i, x = np.nonzero(volume.live[thin]) if volume.live[thin].any() else np.nonzero(volume.live)
    steps = [slices.step for slices in thin] if volume.live[thin].any() else [1, 1]
    nearest = np.argmin((i - np.median(i)) ** 2 + (x - np.median(x)) ** 2)
    return int(i[nearest]) * steps[0], int(x[nearest]) * steps[1], volume.manifest.sample.count // 2


def _every(size: int) -> slice:
    """What a picture shows of an axis."""
    return slice(None, None, max(1, size // _POINTS))


def _thinned(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return values[tuple(_every(size) for size in values.shape)]


def _at(axis: Axis, index: int) -> str:
    return f"{axis.first + axis.step * index:g}"


def _image(
    axes: Axes,
    values: npt.NDArray[np.float32],
    across: Axis,
    down: Axis,
    labels: tuple[str, str],
    limit: float,
    *,
    lines: bool = False,
) -> None:
    """One picture; rows of ``values`` run along ``down``, which points upwards when it counts lines."""
    ends = [(axis.first - axis.step / 2, axis.first + axis.step * (axis.count - 0.5)) for axis in (across, down)]
    vertical = ends[1] if lines else ends[1][::-1]
    axes.set_facecolor("0.75")
    image = axes.imshow(
        values,
        cmap=_COLOURS,
        vmin=-limit,
        vmax=limit,
        aspect="auto",
        origin="lower" if lines else "upper",
        extent=(*ends[0], *vertical),
        interpolation="nearest",
    )
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    assert axes.figure is not None
    axes.figure.colorbar(image, ax=axes, label="amplitude")


def _histogram(axes: Axes, manifest: Manifest, limit: float) -> None:
    counts = np.asarray(manifest.statistics.histogram_counts)
    edges = np.asarray(manifest.statistics.histogram_edges)
    shown = np.concatenate([[2 * edges[1] - edges[2]], edges[1:-1], [2 * edges[-2] - edges[-3]]])
    axes.stairs(np.maximum(counts, 0.5), shown, fill=True, color="0.35")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.7)
    for edge in (-limit, limit):
        axes.axvline(edge, color="tab:red", linewidth=1, linestyle="--")
    axes.set_xlabel(
        f"amplitude (outer bins hold the tails to {edges[0]:.4g} and {edges[-1]:.4g}; dashed: colour scale)"
    )
    axes.set_ylabel("samples")


def _spectrum(axes: Axes, manifest: Manifest, traces_NZ: npt.NDArray[np.float32]) -> None:
    """Mean amplitude spectrum in dB below its peak."""
    chosen = np.nan_to_num(traces_NZ[:: max(1, len(traces_NZ) // _SPECTRUM_TRACES)].astype(np.float64))
    spectra = np.abs(np.fft.rfft(chosen - chosen.mean(axis=1, keepdims=True), axis=1))
    power = np.square(spectra).mean(axis=0)
    decibel = 10 * np.log10(np.maximum(power / (power.max() or 1.0), 1e-8))
    metre = 0.3048 if manifest.sample.unit == "ft" else 1.0
    frequencies = np.linspace(0, 500 / (manifest.sample.step * metre), len(power))
    axes.plot(frequencies, decibel, color="0.25", linewidth=1.2)
    axes.fill_between(frequencies, decibel, -80, color="0.85")
    axes.set_xlim(0, frequencies[-1])
    axes.set_ylim(-60, 3)
    axes.grid(color="0.85", linewidth=0.6)
    axes.set_xlabel(f"{'frequency (Hz)' if manifest.domain == 'time' else 'wavenumber (cycles/km)'}, up to Nyquist")
    axes.set_ylabel("dB below the peak")


def _png(draw: Callable[[Axes], None]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    draw(figure.subplots())
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")  # without pyplot, so no window system and no global state
    return buffer.getvalue()
