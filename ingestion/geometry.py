"""Where the grid lies on the map: scaled coordinates, their affine fit, and the outline of the live traces."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingestion.grid import Grid
from ingestion.manifest import Finding, Geometry
from ingestion.source import hold
from ingestion.spec import SurveySpec
from ingestion.traces import Traces
from ingestion.vertical import scaled

Coordinates = npt.NDArray[np.float64]  # (traces, 2): x, y
_UNITS = {2: ("seconds of arc", 1_296_000), 3: ("decimal degrees", 360), 4: ("degrees, minutes, seconds", 36_000_000)}


def coordinates(traces: Traces, spec: SurveySpec, x: str = "cdp_x", y: str = "cdp_y") -> Coordinates:
    """(traces, 2) coordinates in their unit, each trace with its own scalar (bytes 71-72) unless the spec has one."""
    scalar = traces.column("coordinate_scalar")
    if spec.coordinate_scalar is not None:
        scalar = np.full_like(scalar, spec.coordinate_scalar)
    return np.stack([scaled(traces.column(name), scalar) for name in (x, y)], axis=1)


def coordinates_of(traces: Traces, number_N: npt.NDArray[np.int64], spec: SurveySpec) -> Coordinates:
    """(n, 2) coordinates of the traces with these numbers, from 0."""
    scalar = traces.table["coordinate_scalar"][number_N].astype(np.int64)
    if spec.coordinate_scalar is not None:
        scalar = np.full_like(scalar, spec.coordinate_scalar)
    columns = [scaled(traces.table[name][number_N].astype(np.int64), scalar) for name in ("cdp_x", "cdp_y")]
    return np.stack(columns, axis=1)


def locate(
    traces: Traces, live: npt.NDArray[np.bool_], grid: Grid, spec: SurveySpec
) -> tuple[Geometry | None, list[Finding], list[str]]:
    """The geometry of ``grid``; None when findings forbid one.

    Without any coordinates the line numbers themselves are used, and that is said.
    """
    notes: list[str] = []
    live = _used(live, grid)
    xy = coordinates(traces, spec)
    if spec.coordinate_scalar is not None:
        notes.append(f"coordinate scalar {spec.coordinate_scalar} by the spec")
    elif (zeros := int(np.count_nonzero(traces.column("coordinate_scalar")[live] == 0))) and xy[live].any():
        notes.append(f"coordinate scalar 0 in {zeros} live traces read as 1")
    index = np.stack([line_index(traces, "inline", grid), line_index(traces, "crossline", grid)], axis=1)
    if not xy[live].any():
        finding = _elsewhere(traces, live, index, spec)
        if finding is not None:
            return None, [finding], notes
        if 0 in traces.column("coordinate_scalar")[live]:
            notes.append("coordinate scalar 0 read as 1")
        notes.append("no coordinates (all zero): line numbers are used in their place and the CRS is unknown")
        origin = (grid.inline.first, grid.crossline.first)
        vectors = ((grid.inline.step, 0.0), (0.0, grid.crossline.step))
        return _geometry(None, np.array([origin, *vectors]), 0.0, grid), [], notes
    unit = _geographic(traces, live, xy, notes)
    if unit is not None:
        return None, [unit], notes
    fit = fit_affine(index[live], xy[live])
    if _are_degrees(xy[live], fit):
        return None, [_geographic_finding("degrees, by their size and that of the bins")], notes
    findings = _misfit(traces, live, index, xy, fit)
    if findings:
        return None, findings, notes
    if spec.crs is None:
        notes.append("no CRS in the spec: coordinates share one unnamed space with all such surveys")
    residual = float(_residuals(index[live], xy[live], fit).max())
    return _geometry(spec.crs, fit, residual, grid), [], notes


def line_index(traces: Traces, name: str, grid: Grid) -> npt.NDArray[np.int64]:
    """(traces,) grid index of each trace by its header."""
    axis = grid.inline if name == "inline" else grid.crossline
    return (traces.column(name) - int(axis.first)) // int(axis.step)


def fit_affine(index: npt.NDArray[np.int64], xy: Coordinates) -> npt.NDArray[np.float64]:
    """(3, 2) origin, inline vector and crossline vector by least squares, refitted without what lies far off."""
    kept = np.ones(len(index), np.bool_)
    fit = _least_squares(index, xy)
    for _ in range(5):
        residuals = _residuals(index, xy, fit)
        closer = residuals <= max(6 * float(np.median(residuals)), 1e-9)
        if (closer == kept).all() or np.linalg.matrix_rank(_design(index[closer])) < 3:
            break
        kept = closer
        fit = _least_squares(index[kept], xy[kept])
    return fit


def _design(index: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.column_stack([np.ones(len(index)), index])


def _least_squares(index: npt.NDArray[np.int64], xy: Coordinates) -> npt.NDArray[np.float64]:
    """Centred first: coordinates of millions with millimetres would lose digits in the normal equations."""
    mean_index, mean_xy = index.mean(axis=0), xy.mean(axis=0)
    vectors = np.linalg.lstsq(index - mean_index, xy - mean_xy, rcond=None)[0]
    return np.vstack([mean_xy - mean_index @ vectors, vectors])


def _residuals(index: npt.NDArray[np.int64], xy: Coordinates, fit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    distances: npt.NDArray[np.float64] = np.linalg.norm(xy - _design(index) @ fit, axis=1)
    return distances


def handedness(geometry: Geometry) -> str:
    """``right`` when the turn from the inline step to the crossline step is counter-clockwise on the map."""
    (a, b), (c, d) = geometry.inline_vector, geometry.crossline_vector
    return "right" if a * d - b * c > 0 else "left"


def _misfit(
    traces: Traces,
    live: npt.NDArray[np.bool_],
    index: npt.NDArray[np.int64],
    xy: Coordinates,
    fit: npt.NDArray[np.float64],
) -> list[Finding]:
    release = "have the headers mended, or name other bytes or a `coordinate_scalar` in the survey spec"
    bins = np.linalg.norm(fit[1:], axis=1)
    area = abs(float(np.linalg.det(fit[1:])))
    if area <= 1e-3 * float(bins.max()) ** 2 or bins.min() == 0:
        found = f"inline step {_vector(fit[1])} and crossline step {_vector(fit[2])} span no area"
        return [hold("coordinates-degenerate", found, "coordinates that span the grid in two directions", release)]
    residuals = np.zeros(len(live))
    residuals[live] = _residuals(index[live], xy[live], fit)
    limit = 0.5 * float(bins.min())
    off = residuals > limit
    if not off.any():
        return []
    worst = traces.label(int(residuals.argmax()))
    dropped = ", ".join(str(i + 1) for i in np.flatnonzero(off)[:20])
    return [
        hold(
            "coordinates-misfit",
            f"{np.count_nonzero(off)} of {np.count_nonzero(live)} live traces lie more than half a bin "
            f"({limit:g}) from where their line numbers put them; the farthest is {worst}, {residuals.max():.6g} off",
            f"coordinates on one regular grid of {bins[0]:.6g} by {bins[1]:.6g}",
            f"{release}; `drop_traces: [{dropped}]` leaves these out",
            traces.labels(off),
        )
    ]


def _elsewhere(
    traces: Traces, live: npt.NDArray[np.bool_], index: npt.NDArray[np.int64], spec: SurveySpec
) -> Finding | None:
    """The source coordinates, when only these are filled and lie on the grid."""
    xy = coordinates(traces, spec, "source_x", "source_y")
    if not xy[live].any() or _misfit(traces, live, index, xy, fit_affine(index[live], xy[live])):
        return None
    return hold(
        "coordinates-elsewhere",
        f"zeros at bytes {spec.cdp_x_byte} and {spec.cdp_y_byte}; coordinates on the grid at bytes 73 and 77",
        "coordinates at the bytes that the survey spec names",
        "write `cdp_x_byte: 73` and `cdp_y_byte: 77` into the survey spec",
    )


def _geographic(traces: Traces, live: npt.NDArray[np.bool_], xy: Coordinates, notes: list[str]) -> Finding | None:
    """Angles cannot be fitted; but many files carry such a unit code beside lengths, which the values give away."""
    codes = np.unique(traces.column("coordinate_unit")[live])
    for code in codes.tolist():
        if code not in _UNITS:
            continue
        name, most = _UNITS[code]
        if np.abs(xy[live]).max() <= most:
            return _geographic_finding(f"{name} (unit code {code}, bytes 89-90)")
        notes.append(f"coordinate unit code {code} says {name}, the values are too large for that: read as lengths")
    return None


def _are_degrees(xy: Coordinates, fit: npt.NDArray[np.float64]) -> bool:
    """Whether places and bins have the size of degrees: 0.01° is a kilometre, and no survey in metres is so fine."""
    within = np.abs(xy).max(axis=0)
    bins = np.linalg.norm(fit[1:], axis=1)
    return bool(within[0] <= 360 and within[1] <= 90 and 0 < bins.max() < 0.01)


def _geographic_finding(unit: str) -> Finding:
    return hold(
        "coordinates-geographic",
        f"coordinates in {unit}",
        "projected coordinates, so that distances and areas mean something",
        "have the coordinates projected",
    )


def _used(live: npt.NDArray[np.bool_], grid: Grid) -> npt.NDArray[np.bool_]:
    """The live traces that the volume holds; of duplicates only those that the spec chose."""
    used = np.zeros_like(live)
    used[grid.trace_IX[grid.live_IX]] = True
    for traces in grid.averaged.values():
        used[traces] = True
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
    first = live_IX[rows].argmax(axis=1)
    last = live_IX.shape[1] - 1 - live_IX[rows, ::-1].argmax(axis=1)
    there, back = np.stack([rows, first], axis=1), np.stack([rows, last], axis=1)[::-1]
    ring = _corners(np.concatenate([there, back]))
    points = _design(ring) @ fit
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
