"""Where the grid lies on the map: scaled coordinates, their affine fit, and the outline of the live traces."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Finding, Geometry
from ingestion.preflight.grid import Grid
from ingestion.preflight.traces import Mask, Rows, Traces
from ingestion.preflight.vertical import scaled
from ingestion.source import hold
from ingestion.spec import SurveySpec

Coordinates = npt.NDArray[np.float64]  # (traces, 2): x, y
_FITTED = 200_000  # traces at most: of a million, the fit alone takes 200 MB
_UNITS = {2: ("seconds of arc", 1_296_000), 3: ("decimal degrees", 360), 4: ("degrees, minutes, seconds", 36_000_000)}
BIN_SIZES = (0.5, 500.0)  # coordinate units; a test keeps validation/suites.yaml at these


def coordinates(
    traces: Traces, spec: SurveySpec, x: str = "cdp_x", y: str = "cdp_y", rows: Rows = slice(None)
) -> Coordinates:
    """(rows, 2) coordinates in their unit, each trace with its own scalar (bytes 71-72) unless the spec has one."""
    scalar = traces.column("coordinate_scalar", rows)
    if spec.coordinate_scalar is not None:
        scalar = np.full_like(scalar, spec.coordinate_scalar)
    return np.stack([scaled(traces.column(name, rows), scalar) for name in (x, y)], axis=1)


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
    map_ = _Map(traces, live, grid, spec)
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


@dataclass(frozen=True)
class _Map:
    """Line numbers and coordinates of the live traces, some at a time."""

    traces: Traces
    live: Mask
    grid: Grid
    spec: SurveySpec
    fields: tuple[str, str] = ("cdp_x", "cdp_y")

    def xy(self, rows: Rows) -> Coordinates:
        """(rows, 2) coordinates."""
        return coordinates(self.traces, self.spec, *self.fields, rows)

    def index(self, rows: Rows) -> npt.NDArray[np.int64]:
        """(rows, 2) indices of inline and crossline."""
        names = ("inline", "crossline")
        return np.stack([line_index(self.traces, name, self.grid, rows) for name in names], axis=1)

    def extent(self) -> npt.NDArray[np.float64]:
        """(2,) largest |x| and |y|."""
        found = [np.abs(self.xy(rows)[self.live[rows]]).max(axis=0, initial=0) for rows in self.traces.blocks()]
        return np.asarray(np.max(found, axis=0))

    def fit(self) -> npt.NDArray[np.float64]:
        """(3, 2) affine map of the grid; of many traces some of all parts of the survey decide."""
        every = -(-int(np.count_nonzero(self.live)) // _FITTED)
        parts = []
        for rows in self.traces.blocks():  # of all at once, every page of the table would come into memory
            chosen = rows.start + np.flatnonzero(self.live[rows])[::every]
            parts.append((self.index(chosen), self.xy(chosen)))
        index, xy = (np.concatenate(part) for part in zip(*parts, strict=True))
        return fit_affine(index, xy)

    def residuals(self, rows: slice, fit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """(rows,) distances from the fit; 0 for traces that do not count."""
        return np.where(self.live[rows], _residuals(self.index(rows), self.xy(rows), fit), 0.0)

    def farthest(self, fit: npt.NDArray[np.float64]) -> tuple[int, float]:
        """The trace that lies farthest from the fit, and how far."""
        worst, distance = 0, -1.0
        for rows in self.traces.blocks():
            distances = self.residuals(rows, fit)
            if distances.max() > distance:
                worst, distance = rows.start + int(distances.argmax()), float(distances.max())
        return worst, distance


def line_index(traces: Traces, name: str, grid: Grid, rows: Rows = slice(None)) -> npt.NDArray[np.int64]:
    """(rows,) grid index of traces by their header."""
    axis = grid.inline if name == "inline" else grid.crossline
    return (traces.column(name, rows) - int(axis.first)) // int(axis.step)


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


def _misfit(map_: _Map, fit: npt.NDArray[np.float64]) -> list[Finding]:
    traces = map_.traces
    release = "have the headers mended, or name other bytes or a `coordinate_scalar` in the survey spec"
    bins = np.linalg.norm(fit[1:], axis=1)
    area = abs(float(np.linalg.det(fit[1:])))
    if area <= 1e-3 * float(bins.max()) ** 2 or bins.min() == 0:
        found = f"inline step {_vector(fit[1])} and crossline step {_vector(fit[2])} span no area"
        return [hold("coordinates-degenerate", found, "coordinates that span the grid in two directions", release)]
    limit = 0.5 * float(bins.min())
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
    """Bins of no survey's size, by the limits of validation, unless the spec speaks of scalar or unit."""
    bins = np.linalg.norm(fit[1:], axis=1)
    if spec.coordinate_scalar is not None or spec.coordinate_unit is not None:
        return []
    if bins.min() <= BIN_SIZES[1] and bins.max() >= BIN_SIZES[0]:
        return []
    return [
        hold(
            "bin-size-implausible",
            f"bins of {bins[0]:.6g} by {bins[1]:.6g} coordinate units",
            f"{BIN_SIZES[0]:g} to {BIN_SIZES[1]:g}; others mostly mean a coordinate scalar (bytes 71-72) that is "
            "wrong or was left out",
            "write the true `coordinate_scalar` into the survey spec; or, when the bins are right, `coordinate_unit`",
        )
    ]


def _elsewhere(map_: _Map) -> Finding | None:
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
    for numbers_X, live_X in zip(grid.trace_IX, grid.live_IX, strict=True):
        used[numbers_X[live_X]] = True
    for numbers in grid.averaged.values():
        used[numbers] = True
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
