"""Maps of a survey: which traces are live, or their fold, and where it lies among the known ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Manifest
from validation.overlap import Outline
from validation.volume import PublishedVolume

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 200  # traces shown along an axis
_FOLD = "horizontally_stacked_traces"  # bytes 33-34
_NAMED = 6  # neighbours with a label
_NEAR = 4.0  # sizes of the survey: farther ones are only counted


def live_map(axes: Axes, volume: PublishedVolume) -> None:
    """Live traces at their coordinates, coloured by fold where headers give one that varies."""
    manifest = volume.manifest
    live_IX = volume.thinned("trace_mask", _POINTS).astype(bool)
    header_IX = volume.thinned("headers", _POINTS)
    easting, northing = (volume.thinned(name, _POINTS)[live_IX] for name in ("cdp_x", "cdp_y"))
    fold = header_IX[_FOLD][live_IX] if _FOLD in (header_IX.dtype.names or ()) else np.zeros(len(easting))
    if len(fold) and np.ptp(fold):
        points = axes.scatter(easting, northing, s=4, c=fold, cmap="viridis", linewidths=0)
        assert axes.figure is not None
        axes.figure.colorbar(points, ax=axes, label="fold (bytes 33-34)")
    else:
        axes.scatter(easting, northing, s=3, c="0.4", linewidths=0, label="live traces")
    outline = np.asarray([*manifest.geometry.polygon, manifest.geometry.polygon[0]])
    axes.plot(*outline.T, color="tab:red", linewidth=1, label="outline")
    axes.plot(*manifest.geometry.origin, "k+", markersize=9, label="first bin")
    _dress(axes, manifest)
    axes.legend(loc="best", fontsize=7)


def location_map(axes: Axes, manifest: Manifest, known: Sequence[Outline]) -> None:
    """The outline of the survey beside those of ``known`` ones."""
    own = Outline.of(manifest)
    if own is None:
        axes.text(0.5, 0.5, "no coordinates: the survey lies nowhere", ha="center", va="center")
        axes.set_axis_off()
        return
    own_V2 = _closed(own)
    size = float(np.ptp(own_V2, axis=0).max())
    away = [float(np.linalg.norm(_closed(other).mean(axis=0) - own_V2.mean(axis=0))) for other in known]
    near = [known[place] for place in np.argsort(away) if away[place] < _NEAR * size]
    for place, other in enumerate(near):
        outline_V2 = _closed(other)
        axes.fill(*outline_V2.T, facecolor="tab:blue", alpha=0.12)
        axes.plot(*outline_V2.T, color="tab:blue", linewidth=0.8)
        if place < _NAMED:
            middle = (float(outline_V2[:, 0].mean()), float(outline_V2[:, 1].mean()))
            axes.annotate(other.survey[:24], middle, fontsize=7, ha="center", color="tab:blue")
    axes.fill(*own_V2.T, facecolor="tab:red", alpha=0.25)
    axes.plot(*own_V2.T, color="tab:red", linewidth=1.2)
    farther = f", {len(known) - len(near)} farther away" if len(known) > len(near) else ""
    axes.set_title(f"red: this survey; blue: {len(near)} known nearby{farther}", fontsize=9)
    _dress(axes, manifest)


def _closed(outline: Outline) -> npt.NDArray[np.float64]:
    corners = np.asarray(outline.corners, dtype=np.float64)
    return np.concatenate([corners, corners[:1]])


def _dress(axes: Axes, manifest: Manifest) -> None:
    axes.set_aspect("equal", adjustable="datalim")
    axes.ticklabel_format(useOffset=False, style="plain")
    axes.tick_params(labelsize=7)
    axes.set_xlabel(f"x ({manifest.geometry.crs or 'CRS unknown'})")
    axes.set_ylabel("y")
