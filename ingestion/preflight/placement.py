"""Where line numbers put traces on the map: scaled coordinates, and the affine map from lines to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Axis
from ingestion.preflight.traces import Mask, Rows, Traces
from ingestion.preflight.vertical import scaled
from ingestion.spec import SurveySpec

Coordinates = npt.NDArray[np.float64]  # (traces, 2): x, y
_FITTED = 200_000  # traces at most: of a million, the fit alone takes 200 MB


def coordinates(
    traces: Traces, spec: SurveySpec, x: str = "cdp_x", y: str = "cdp_y", rows: Rows = slice(None)
) -> Coordinates:
    """(rows, 2) coordinates in their unit, each trace with its own scalar (bytes 71-72) unless the spec has one."""
    scalar = traces.column("coordinate_scalar", rows)
    if spec.coordinate_scalar is not None:
        scalar = np.full_like(scalar, spec.coordinate_scalar)
    return np.stack([scaled(traces.column(name, rows), scalar) for name in (x, y)], axis=1)


def line_axis(values: npt.NDArray[np.int64]) -> Axis:
    """The regular, ascending axis through all ``values``."""
    lines = np.unique(values)
    step = int(np.gcd.reduce(np.diff(lines))) if len(lines) > 1 else 1
    return Axis(first=int(lines[0]), step=step, count=int((lines[-1] - lines[0]) // step) + 1, unit="line")


def line_index(traces: Traces, name: str, axis: Axis, rows: Rows = slice(None)) -> npt.NDArray[np.int64]:
    """(rows,) indices on ``axis`` of traces by the field ``name`` of their header."""
    return (traces.column(name, rows) - int(axis.first)) // int(axis.step)


@dataclass(frozen=True)
class LineMap:
    """Line numbers and coordinates of the live traces, some at a time."""

    traces: Traces
    live: Mask
    inline: Axis
    crossline: Axis
    spec: SurveySpec
    fields: tuple[str, str] = ("cdp_x", "cdp_y")

    def xy(self, rows: Rows) -> Coordinates:
        """(rows, 2) coordinates."""
        return coordinates(self.traces, self.spec, *self.fields, rows)

    def index(self, rows: Rows) -> npt.NDArray[np.int64]:
        """(rows, 2) indices of inline and crossline."""
        axes = {"inline": self.inline, "crossline": self.crossline}
        return np.stack([line_index(self.traces, name, axis, rows) for name, axis in axes.items()], axis=1)

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

    def distances(self, rows: Rows, fit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """(rows,) distances from the fit."""
        return _residuals(self.index(rows), self.xy(rows), fit)

    def residuals(self, rows: slice, fit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """As ``distances``; 0 for traces that do not count."""
        return np.where(self.live[rows], self.distances(rows, fit), 0.0)

    def farthest(self, fit: npt.NDArray[np.float64]) -> tuple[int, float]:
        """The trace that lies farthest from the fit, and how far."""
        worst, distance = 0, -1.0
        for rows in self.traces.blocks():
            distances = self.residuals(rows, fit)
            if distances.max() > distance:
                worst, distance = rows.start + int(distances.argmax()), float(distances.max())
        return worst, distance


def fit_affine(index: npt.NDArray[np.int64], xy: Coordinates) -> npt.NDArray[np.float64]:
    """(3, 2) origin, inline vector and crossline vector by least squares, refitted without what lies far off."""
    kept = np.ones(len(index), np.bool_)
    fit = _least_squares(index, xy)
    for _ in range(5):
        residuals = _residuals(index, xy, fit)
        closer = residuals <= max(6 * float(np.median(residuals)), 1e-9)
        if (closer == kept).all() or np.linalg.matrix_rank(design(index[closer])) < 3:
            break
        kept = closer
        fit = _least_squares(index[kept], xy[kept])
    return fit


def design(index: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """(traces, 3) that times a fit gives coordinates: a one and both indices."""
    return np.column_stack([np.ones(len(index)), index])


def _least_squares(index: npt.NDArray[np.int64], xy: Coordinates) -> npt.NDArray[np.float64]:
    """Centred first: coordinates of millions with millimetres would lose digits in the normal equations."""
    mean_index, mean_xy = index.mean(axis=0), xy.mean(axis=0)
    vectors = np.linalg.lstsq(index - mean_index, xy - mean_xy, rcond=None)[0]
    return np.vstack([mean_xy - mean_index @ vectors, vectors])


def _residuals(index: npt.NDArray[np.int64], xy: Coordinates, fit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    distances: npt.NDArray[np.float64] = np.linalg.norm(xy - design(index) @ fit, axis=1)
    return distances


def tolerance(fit: npt.NDArray[np.float64]) -> float:
    """How far a trace may lie from the fit: half the shorter side of a bin; 0 when the two steps span no area."""
    bins = np.linalg.norm(fit[1:], axis=1)
    area = abs(float(np.linalg.det(fit[1:])))
    return 0.0 if area <= 1e-3 * float(bins.max()) ** 2 else 0.5 * float(bins.min())
