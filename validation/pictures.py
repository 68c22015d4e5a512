"""Pictures of a published survey for people: three sections, the amplitude histogram, and a map of the live traces."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ingestion.lake import Lake
from ingestion.manifest import Axis, Manifest
from validation.volume import PublishedVolume

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (7.0, 4.6)  # inches
_DPI = 100
_POINTS = 800  # most pixels along an axis of a picture
_COLOURS = "seismic"


def survey_pictures(lake: Lake, manifest: Manifest) -> dict[str, bytes]:
    """PNG bytes by caption: middle inline, crossline and sample slice on one colour scale, histogram, live map.

    The scale is symmetric at the 99 % percentile of absolute amplitude; dead and missing traces are grey.
    """
    volume = PublishedVolume(lake, manifest)
    inline, crossline, sample = _middle(volume)
    vertical = "time (ms)" if manifest.domain == "time" else f"depth ({manifest.sample.unit})"
    limit = max(abs(manifest.statistics.percentiles[p]) for p in ("1", "99")) or manifest.statistics.maximum or 1.0
    section_XZ = _thinned(volume.amplitude(inline, slice(None), slice(None)))
    section_IZ = _thinned(volume.amplitude(slice(None), crossline, slice(None)))
    slice_IX = _thinned(volume.amplitude(slice(None), slice(None), sample))

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
        "Live traces": _png(lambda axes: _live_map(axes, volume)),
    }


def _middle(volume: PublishedVolume) -> tuple[int, int, int]:
    """The live inline and crossline nearest the middle of the live traces, and the middle sample."""
    i, x = np.nonzero(volume.live)
    nearest = np.argmin((i - np.median(i)) ** 2 + (x - np.median(x)) ** 2)
    return int(i[nearest]), int(x[nearest]), volume.manifest.sample.count // 2


def _thinned(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """``values`` thinned to what a picture shows."""
    steps = tuple(slice(None, None, max(1, size // _POINTS)) for size in values.shape)
    return values[steps]


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


def _live_map(axes: Axes, volume: PublishedVolume) -> None:
    i, x = np.nonzero(volume.live)
    easting, northing = (volume.array(name)[i, x] for name in ("cdp_x", "cdp_y"))
    outline = np.asarray(volume.manifest.geometry.polygon)
    outline = np.concatenate([outline, outline[:1]])
    thin = slice(None, None, max(1, len(i) // 40_000))
    axes.scatter(easting[thin], northing[thin], s=3, c="0.4", linewidths=0, label="live traces")
    axes.plot(outline[:, 0], outline[:, 1], color="tab:red", linewidth=1, label="outline")
    axes.plot(*volume.manifest.geometry.origin, "k+", markersize=9, label="first bin")
    axes.set_aspect("equal", adjustable="datalim")
    axes.ticklabel_format(useOffset=False, style="plain")
    axes.tick_params(labelsize=7)
    axes.set_xlabel(f"x ({volume.manifest.geometry.crs or 'CRS unknown'})")
    axes.set_ylabel("y")
    axes.legend(loc="best", fontsize=7)


def _png(draw: Callable[[Axes], None]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    draw(figure.subplots())
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")  # without pyplot, so no window system and no global state
    return buffer.getvalue()
