"""Where the grid lies on the map: scaled coordinates, their affine fit, and the outline of the live traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Finding, Geometry
from ingestion.preflight.grid import Grid
from ingestion.preflight.placement import LineMap, design, tolerance
from ingestion.preflight.traces import Mask, Traces
from ingestion.source import hold
from ingestion.spec import SurveySpec

_UNITS = {2: ("seconds of arc", 1_296_000), 3: ("decimal degrees", 360), 4: ("degrees, minutes, seconds", 36_000_000)}
BIN_SIZES = (0.5, 500.0)  # coordinate units; a test keeps validation/suites.yaml at these


def locate(
    traces: Traces, live: npt.NDArray[np.bool_], grid: Grid, spec: SurveySpec
) -> tuple[Geometry | None, list[Finding], list[str]]:
    """The geometry of ``grid``; None when findings forbid one.

    Without any coordinates the line numbers themselves are used, and that is said.
    """
    notes: list[str] = []
    live = _used(live, grid)
    zeros = int(np.count_nonzero(live & traces.where(lambda rows: traces.table["coordinate_scalar"][rows] == 0)))
    if spec.coordinate_scalar is not None:
        notes.append(f"coordinate scalar {spec.coordinate_scalar} by the spec")
    elif zeros:
        notes.append(f"coordinate scalar 0 in {zeros} live traces read as 1")
    map_ = LineMap(traces, live, grid.inline, grid.crossline, spec)
    extent = map_.extent()
    if not extent.any():
        finding = _elsewhere(map_)
        if finding is not None:
            return None, [finding], notes
        notes.append("no coordinates (all zero): line numbers are used in their place and the CRS is unknown")
        origin = (grid.inline.first, grid.crossline.first)
        vectors = ((grid.inline.step, 0.0), (0.0, grid.crossline.step))
        return _geometry(None, np.array([origin, *vectors]), 0.0, grid), [], notes
    unit = _geographic(traces, live, extent, notes)
    if unit is not None:
        return None, [unit], notes
    fit = map_.fit()
    if _are_degrees(extent, fit):
        return None, [_geographic_finding("degrees, by their size and that of the bins")], notes
    findings = _misfit(map_, fit) or _implausible_bins(fit, spec)
    if findings:
        return None, findings, notes
    if spec.crs is None:
        notes.append("no CRS in the spec: coordinates share one unnamed space with all such surveys")
    return _geometry(spec.crs, fit, map_.farthest(fit)[1], grid), [], notes


def handedness(geometry: Geometry) -> str:
    """``right`` when the turn from the inline step to the crossline step is counter-clockwise on the map."""
    (a, b), (c, d) = geometry.inline_vector, geometry.crossline_vector
    return "right" if a * d - b * c > 0 else "left"


def _misfit(map_: LineMap, fit: npt.NDArray[np.float64]) -> list[Finding]:
    traces = map_.traces
    release = "have the headers mended, or name other bytes or a `coordinate_scalar` in the survey spec"
    bins, limit = np.linalg.norm(fit[1:], axis=1), tolerance(fit)
    if not limit:
        found = f"inline step {_vector(fit[1])} and crossline step {_vector(fit[2])} span no area"
        return [hold("coordinates-degenerate", found, "coordinates that span the grid in two directions", release)]
    off = traces.where(lambda rows: map_.residuals(rows, fit) > limit)
    if not off.any():
        return []
    worst, distance = map_.farthest(fit)
    dropped = ", ".join(str(i + 1) for i in np.flatnonzero(off)[:20])
    return [
        hold(
            "coordinates-misfit",
            f"{np.count_nonzero(off)} of {np.count_nonzero(map_.live)} live traces lie more than half a bin "
            f"({limit:g}) from where their line numbers put them; the farthest is {traces.label(worst)}, "
            f"{distance:.6g} off",
            f"coordinates on one regular grid of {bins[0]:.6g} by {bins[1]:.6g}",
            f"{release}; `drop_traces: [{dropped}]` leaves these out",
            traces.labels(off),
        )
    ]


def _implausible_bins(fit: npt.NDArray[np.float64], spec: SurveySpec) -> list[Finding]:
    """Bins of no survey's size, unless the spec says in what unit they are right."""
    bins = np.linalg.norm(fit[1:], axis=1)
    if spec.coordinate_unit is not None or BIN_SIZES[0] <= usual_side(bins) <= BIN_SIZES[1]:
        return []
    return [
        hold(
            "bin-size-implausible",
            f"bins of {bins[0]:.6g} by {bins[1]:.6g} coordinate units",
            f"a side of {BIN_SIZES[0]:g} to {BIN_SIZES[1]:g}; others mostly mean a coordinate scalar (bytes 71-72) "
            "that is wrong or was left out",
            "write the true `coordinate_scalar` into the survey spec; or, when the bins are right, `coordinate_unit`: "
            "validation then asks whether a data set may mix them (`policy-bin-short`, `policy-bin-long`)",
        )
    ]


def usual_side(bins: npt.NDArray[np.float64]) -> float:
    """The side of a bin that is nearest to ``BIN_SIZES``: a wrong scalar or unit makes both sides wrong."""
    return float(bins[np.abs(bins - bins.clip(*BIN_SIZES)).argmin()])


def _elsewhere(map_: LineMap) -> Finding | None:
    """The source coordinates, when only these are filled and lie on the grid."""
    sources = replace(map_, fields=("source_x", "source_y"))
    if not sources.extent().any() or _misfit(sources, sources.fit()):
        return None
    return hold(
        "coordinates-elsewhere",
        f"zeros at bytes {map_.spec.cdp_x_byte} and {map_.spec.cdp_y_byte}; coordinates on the grid at bytes 73 and 77",
        "coordinates at the bytes that the survey spec names",
        "write `cdp_x_byte: 73` and `cdp_y_byte: 77` into the survey spec",
    )


def _geographic(traces: Traces, live: Mask, extent: npt.NDArray[np.float64], notes: list[str]) -> Finding | None:
    """Angles cannot be fitted; but many files carry such a unit code beside lengths, which the values give away."""
    codes, _ = traces.values(lambda rows: traces.table["coordinate_unit"][rows], live)
    for code in codes.tolist():
        if code not in _UNITS:
            continue
        name, most = _UNITS[code]
        if extent.max() <= most:
            return _geographic_finding(f"{name} (unit code {code}, bytes 89-90)")
        notes.append(f"coordinate unit code {code} says {name}, the values are too large for that: read as lengths")
    return None


def _are_degrees(extent: npt.NDArray[np.float64], fit: npt.NDArray[np.float64]) -> bool:
    """Whether places and bins have the size of degrees: 0.01° is a kilometre, and no survey in metres is so fine."""
    bins = np.linalg.norm(fit[1:], axis=1)
    return bool(extent[0] <= 360 and extent[1] <= 90 and 0 < bins.max() < 0.01)


def _geographic_finding(unit: str) -> Finding:
    return hold(
        "coordinates-geographic",
        f"coordinates in {unit}",
        "projected coordinates, so that distances and areas mean something",
        "have the coordinates projected",
    )


def _used(live: Mask, grid: Grid) -> Mask:
    """The live traces that the volume holds; of duplicates only those that the spec chose."""
    used = np.zeros_like(live)
    for i, (numbers_X, live_X) in enumerate(zip(grid.trace_IX, grid.live_IX, strict=True)):
        used[numbers_X[live_X]] = True
        used[grid.averaged(slice(i, i + 1), slice(0, grid.crossline.count))[1]] = True
    return used


def _geometry(crs: str | None, fit: npt.NDArray[np.float64], residual: float, grid: Grid) -> Geometry:
    origin, inline, crossline = ((float(x), float(y)) for x, y in fit)
    return Geometry(
        crs=crs,
        origin=origin,
        inline_vector=inline,
        crossline_vector=crossline,
        residual_max=residual,
        polygon=outline(grid.live_IX, fit),
    )


def outline(live_IX: npt.NDArray[np.bool_], fit: npt.NDArray[np.float64]) -> list[tuple[float, float]]:
    """Polygon around the first and last live trace of every inline, counter-clockwise, corners only."""
    rows = np.flatnonzero(live_IX.any(axis=1))
    first = live_IX.argmax(axis=1)[rows]
    last = live_IX.shape[1] - 1 - live_IX[:, ::-1].argmax(axis=1)[rows]
    there, back = np.stack([rows, first], axis=1), np.stack([rows, last], axis=1)[::-1]
    ring = _corners(np.concatenate([there, back]))
    points = design(ring) @ fit
    x, y = points.T
    if np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)) < 0:
        points = points[::-1]
    return [(float(px), float(py)) for px, py in points]


def _corners(ring: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """``ring`` without repeated points and without those where it goes straight on."""
    distinct = (ring != np.roll(ring, 1, axis=0)).any(axis=1)
    if not distinct.any():
        return ring[:1]
    ring = ring[distinct]
    before, after = ring - np.roll(ring, 1, axis=0), np.roll(ring, -1, axis=0) - ring
    turns = before[:, 0] * after[:, 1] != before[:, 1] * after[:, 0]
    returns = (before * after).sum(axis=1) < 0  # the tip of a single row of traces
    corners: npt.NDArray[np.int64] = ring[turns | returns]
    return corners


def _vector(step: npt.NDArray[np.float64]) -> str:
    return f"({step[0]:.6g}, {step[1]:.6g})"
