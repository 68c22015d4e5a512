"""Repairs of line numbers and coordinates: other header bytes, another scalar, traces left out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Finding
from ingestion.preflight.candidates import COORDINATES, find_candidates
from ingestion.preflight.grid import Grid
from ingestion.preflight.header_fields import Place, read_columns
from ingestion.preflight.inspection import Inspection
from ingestion.preflight.placement import coordinates, fit_affine, line_index
from ingestion.preflight.slips import stray_lines
from ingestion.preflight.traces import Liveness, Traces, placed_traces
from ingestion.preflight.vertical import scaled
from ingestion.proposal.proposed import Confidence, Proposed, Repair, few, table_of
from ingestion.spec import SurveySpec

_MOST_DROPPED = 2000  # a longer list is no repair
_BINS = (5.0, 60.0)  # usual bin sizes, m
_ODD_BINS = (2.0, 250.0)  # beyond these a scalar is doubted


def unfound(found: Inspection) -> list[Proposed]:
    """What no finding says: coordinates in an odd place, a scalar that is off by powers of ten."""
    traces, state, grid, geometry = found.traces, found.state, found.grid, found.geometry
    if traces is None or state is None or grid is None or geometry is None:
        return []
    if not coordinates(traces, found.spec)[state.live].any():
        return _other_coordinates(found, None)
    return _scalar(found, traces, state, np.array([geometry.inline_vector, geometry.crossline_vector]))


def _lines(found: Inspection, finding: Finding) -> list[Proposed]:
    """Other header bytes; the finding must not come from a few traces only."""
    _, state = table_of(found)
    candidates = find_candidates(found.sources, found.layouts, state.live, found.spec)
    if not candidates:
        return []
    best, *others = candidates
    confidence: Confidence = "guess"
    if best.located:
        confidence = "likely" if others else "certain"
    elif best.usual and best.fill >= 0.9 and not others:
        confidence = "likely"
    evidence = f"{finding.found}; these give {best.evidence}"
    return [
        Proposed(
            field=name, value=value, evidence=evidence, confidence=confidence, alternatives=[str(c) for c in others]
        )
        for name, value in best.fields.items()
    ]


def _exchanged(found: Inspection, finding: Finding) -> list[Proposed]:
    """Line numbers and coordinates in each other's place."""
    spec = found.spec
    values = {"inline_byte": spec.cdp_x_byte, "crossline_byte": spec.cdp_y_byte}
    values |= {"cdp_x_byte": spec.inline_byte, "cdp_y_byte": spec.crossline_byte}
    return [
        Proposed(field=name, value=byte, evidence=finding.found, confidence="likely") for name, byte in values.items()
    ]


def _duplicates(found: Inspection, finding: Finding) -> list[Proposed]:
    traces, state = table_of(found)
    pairs = np.stack([traces.column("inline"), traces.column("crossline")], axis=1)[state.live]
    _, cell, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    surplus = len(cell) - len(counts)
    if not few(surplus, len(cell)) and (elsewhere := _lines(found, finding)):
        return elsewhere
    cells_and_samples = len(
        np.unique(np.stack([cell.ravel().astype(np.uint64), traces.table["checksum"][state.live]]), axis=1).T
    )
    if cells_and_samples == len(counts):
        evidence = f"{finding.found}; all samples of the copies are the same"
        return [Proposed(field="duplicates", value="first", evidence=evidence, confidence="certain")]
    evidence = f"{finding.found}; their samples differ, and nothing in the file says which are right"
    return [
        Proposed(
            field="duplicates", value="first", evidence=evidence, confidence="guess", alternatives=["last", "mean"]
        )
    ]


def _slips(found: Inspection, finding: Finding) -> list[Proposed]:
    """Traces with a line number that no other has: these are left out."""
    traces, state = table_of(found)
    name = "inline" if "inline" in finding.code else "crossline"
    strays = np.isin(traces.column(name), stray_lines(traces, state, found.spec)[finding.code])
    return _dropped(found.spec, placed_traces(traces, state) & strays, finding)


def _dropped(spec: SurveySpec, where: npt.NDArray[np.bool_], finding: Finding) -> list[Proposed]:
    numbers = sorted({*spec.drop_traces, *(np.flatnonzero(where) + 1).tolist()})
    if len(numbers) > _MOST_DROPPED or len(numbers) == len(spec.drop_traces):
        return []
    evidence = f"{finding.found}; {len(numbers) - len(spec.drop_traces)} of {len(where)} traces are left out for it"
    alternatives = ["have the headers of these traces mended, which loses nothing"]
    return [
        Proposed(field="drop_traces", value=numbers, evidence=evidence, confidence="likely", alternatives=alternatives)
    ]


def _misplaced(found: Inspection, finding: Finding) -> list[Proposed]:
    """A few traces off the map are left out; for many, coordinates elsewhere in the headers."""
    traces, state = table_of(found)
    if (elsewhere := _other_coordinates(found, finding)) or found.grid is None:
        return elsewhere
    index = _index(traces, found.grid)[state.live]
    xy = coordinates(traces, found.spec)[state.live]
    fit = fit_affine(index, xy)
    if said := _one_scalar(found, traces, state, index, finding):
        return said
    off = np.zeros(len(traces), np.bool_)
    off[state.live] = _off(index, xy, fit) > 0.5
    return _dropped(found.spec, off, finding) if few(int(off.sum()), int(state.live.sum())) else []


def _one_scalar(
    found: Inspection, traces: Traces, state: Liveness, index: npt.NDArray[np.int64], finding: Finding
) -> list[Proposed]:
    """The scalar of most traces, when it puts those of the others on the grid too."""
    scalars, counts = np.unique(traces.column("coordinate_scalar")[state.live], return_counts=True)
    if found.spec.coordinate_scalar is not None or len(scalars) == 1:
        return []
    most = int(scalars[counts.argmax()]) or 1
    xy = coordinates(traces, found.spec.model_copy(update={"coordinate_scalar": most}))[state.live]
    if (_off(index, xy, fit_affine(index, xy)) > 0.5).any():
        return []
    evidence = f"{finding.found}; with the scalar of {counts.max()} of them, {most}, all lie on one grid"
    return [Proposed(field="coordinate_scalar", value=most, evidence=evidence, confidence="likely")]


def _other_coordinates(found: Inspection, finding: Finding | None) -> list[Proposed]:
    """The usual pair of coordinates under which the traces lie on their grid."""
    traces, state = table_of(found)
    if found.grid is None:
        return []
    current = (found.spec.cdp_x_byte, found.spec.cdp_y_byte)
    pairs = [pair for pair in COORDINATES if pair != current]
    columns = read_columns(found.sources, found.layouts, {Place(byte) for pair in pairs for byte in pair})
    index = _index(traces, found.grid)[state.live]
    scalar = traces.column("coordinate_scalar")
    for pair in pairs:
        xy = np.stack([scaled(columns[Place(byte)].astype(np.int64), scalar) for byte in pair], axis=1)[state.live]
        if not (np.ptp(xy, axis=0) > 0).all():
            continue
        off = _off(index, xy, fit_affine(index, xy))
        if (off <= 0.5).all():
            evidence = (
                f"{finding.found if finding else f'zeros at bytes {current[0]} and {current[1]}'}; those at "
                f"{pair[0]} and {pair[1]} lie within {off.max():.2g} bins of a regular grid"
            )
            names = ("cdp_x_byte", "cdp_y_byte")
            return [
                Proposed(field=name, value=byte, evidence=evidence, confidence="likely")
                for name, byte in zip(names, pair, strict=True)
            ]
    return []


def _bin_size(found: Inspection, finding: Finding) -> list[Proposed]:
    traces, state = table_of(found)
    if found.grid is None:
        return []
    fit = fit_affine(_index(traces, found.grid)[state.live], coordinates(traces, found.spec)[state.live])
    return _scalar(found, traces, state, fit[1:])


def _scalar(found: Inspection, traces: Traces, state: Liveness, vectors: npt.NDArray[np.float64]) -> list[Proposed]:
    """A scalar that is off by powers of ten shows in the size of the bins."""
    bins = np.linalg.norm(vectors, axis=1)
    scalars = np.unique(traces.column("coordinate_scalar")[state.live])
    if found.spec.coordinate_scalar is not None or len(scalars) != 1:
        return []
    if _ODD_BINS[0] <= bins.min() and bins.max() <= _ODD_BINS[1]:
        return []
    now = float(scaled(np.ones(1, np.int64), scalars)[0])
    fitting = [
        scalar
        for scalar in (-10_000, -1000, -100, -10, 1, 10, 100, 1000)
        if (sizes := bins / now * (1 / -scalar if scalar < 0 else scalar)).min() >= _BINS[0] and sizes.max() <= _BINS[1]
    ]
    if not fitting:
        return []
    factor = 1 / -fitting[0] if fitting[0] < 0 else fitting[0]
    sizes = bins / now * factor
    evidence = (
        f"the headers' scalar {scalars[0]} makes bins of {bins[0]:.4g} by {bins[1]:.4g}; this one makes them "
        f"{sizes[0]:.4g} by {sizes[1]:.4g}, as surveys have"
    )
    return [
        Proposed(
            field="coordinate_scalar",
            value=fitting[0],
            evidence=evidence,
            confidence="likely" if len(fitting) == 1 else "guess",
            alternatives=[f"{scalar}" for scalar in fitting[1:]],
        )
    ]


def _index(traces: Traces, grid: Grid) -> npt.NDArray[np.int64]:
    return np.stack(
        [line_index(traces, "inline", grid.inline), line_index(traces, "crossline", grid.crossline)], axis=1
    )


def _off(
    index: npt.NDArray[np.int64], xy: npt.NDArray[np.float64], fit: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """(traces,) distance from the grid in bins; infinite when that has no area."""
    bins = np.linalg.norm(fit[1:], axis=1)
    if bins.min() == 0 or abs(float(np.linalg.det(fit[1:]))) <= 1e-3 * float(bins.max()) ** 2:
        return np.full(len(index), np.inf)
    distances: npt.NDArray[np.float64] = np.linalg.norm(
        xy - np.column_stack([np.ones(len(index)), index]) @ fit, axis=1
    )
    return distances / float(bins.min())


GEOMETRY: dict[str, Repair] = {
    "no-3d-grid": _lines,
    "grid-sparse": _lines,
    "lines-are-coordinates": _exchanged,
    "wild-inline": _slips,
    "wild-crossline": _slips,
    "inline-off-step": _slips,
    "crossline-off-step": _slips,
    "duplicate-traces": _duplicates,
    "coordinates-misfit": _misplaced,
    "coordinates-degenerate": _misplaced,
    "coordinates-elsewhere": _other_coordinates,
    "bin-size-implausible": _bin_size,
}
