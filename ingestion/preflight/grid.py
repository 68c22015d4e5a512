"""From inline and crossline numbers to a regular grid, or to the reason why they give none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Axis, Finding
from ingestion.preflight.placement import line_axis, line_index
from ingestion.preflight.slips import slips
from ingestion.preflight.table import Table
from ingestion.preflight.traces import Liveness, Mask, Traces, placed_traces, span
from ingestion.source import hold
from ingestion.spec import SurveySpec

MAX_EMPTY = 20  # grid cells per trace
_COORDINATE = 100_000  # line numbers mostly lie below, coordinates as they are stored above


@dataclass(frozen=True)
class Grid:
    """Where each trace belongs. Trace numbers count from 0; -1 is none."""

    inline: Axis
    crossline: Axis
    trace_IX: npt.NDArray[np.int64]  # the trace of each cell, live before dead
    live_IX: npt.NDArray[np.bool_]
    traces: int  # of the survey
    shared_S: npt.NDArray[np.int64]  # cell * traces + trace of all whose mean is a cell's samples, ascending

    @property
    def shape(self) -> tuple[int, int]:
        """(inlines, crosslines)."""
        return (self.inline.count, self.crossline.count)

    def averaged(self, inlines: slice, crosslines: slice) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the mean of traces counts: (S,) their cells, ascending and counted within this part, and numbers."""
        across, width = self.crossline.count, crosslines.stop - crosslines.start
        first_I = np.arange(inlines.start, inlines.stop) * across + crosslines.start
        begin_I, end_I = np.searchsorted(self.shared_S, np.stack([first_I, first_I + width]) * self.traces)
        parts = [self.shared_S[begin:end] for begin, end in zip(begin_I, end_I, strict=True)]
        cell_S, number_S = np.divmod(np.concatenate(parts), self.traces)
        return (cell_S // across - inlines.start) * width + cell_S % across - crosslines.start, number_S


def build_grid(traces: Traces, state: Liveness, spec: SurveySpec) -> tuple[Grid | None, list[Finding], list[str]]:
    """The grid of the kept traces; None when findings forbid one."""
    placed = placed_traces(traces, state)
    if not state.live.any():
        return None, [], []
    findings = _exchanged(traces, state.live, spec) or _no_grid(traces, state.live, spec)
    if not findings:
        findings = slips(traces, state, spec)
    if findings:
        return None, findings, []
    inline, crossline = (line_axis(traces.numbers(name, placed)[0]) for name in ("inline", "crossline"))
    if inline.count * crossline.count > MAX_EMPTY * np.count_nonzero(placed):
        return None, [_sparse(inline, crossline, int(np.count_nonzero(placed)))], []
    cells = _Cells(traces, inline, crossline)
    times = cells.times(state.live)
    findings, notes = _duplicates(traces, state.live, cells, times, spec)
    if findings:
        return None, findings, notes
    if left_out := int(np.count_nonzero(state.kept & ~placed)):
        notes.append(f"{left_out} dead traces with inline or crossline 0 left out of the grid, as padding")
    return _fill(traces, placed, state.live, cells, times, spec), [], notes


@dataclass(frozen=True)
class _Cells:
    """The cell of each trace, inline by inline; only meaningful for traces that are placed."""

    traces: Traces
    inline: Axis
    crossline: Axis

    def of(self, rows: slice) -> npt.NDArray[np.int64]:
        """(rows,) cells."""
        i = line_index(self.traces, "inline", self.inline, rows)
        return i * self.crossline.count + line_index(self.traces, "crossline", self.crossline, rows)

    def times(self, live: Mask) -> npt.NDArray[np.uint16]:
        """(cells,) live traces of each."""
        found = np.zeros(self.inline.count * self.crossline.count, np.uint16)
        for rows in self.traces.blocks():
            cells, counts = np.unique(self.of(rows)[live[rows]], return_counts=True)
            found[cells] = np.minimum(found[cells].astype(np.int64) + counts, np.iinfo(np.uint16).max)
        return found

    def shared(self, live: Mask, times: npt.NDArray[np.uint16]) -> Mask:
        """Live traces whose cell has more than one."""

        def of_rows(rows: slice) -> npt.NDArray[np.bool_]:
            found = np.zeros(rows.stop - rows.start, np.bool_)
            found[live[rows]] = times[self.of(rows)[live[rows]]] > 1
            return found

        return self.traces.where(of_rows)


def _exchanged(traces: Traces, live: npt.NDArray[np.bool_], spec: SurveySpec) -> list[Finding]:
    """Line numbers and coordinates in each other's place, which would give a grid as regular as the true one."""
    lines = [np.abs(_ends(traces, name, live)) for name in ("inline", "crossline")]
    places = [np.abs(_ends(traces, name, live)) for name in ("cdp_x", "cdp_y")]
    swapped = all(
        line.min() >= _COORDINATE > place.max() and place.min() != place.max()
        for line, place in zip(lines, places, strict=True)
    )
    if not swapped:
        return []
    return [
        hold(
            "lines-are-coordinates",
            f"inline and crossline {span(lines[0])} and {span(lines[1])} (bytes {spec.inline_byte} and "
            f"{spec.crossline_byte}), coordinates {span(places[0])} and {span(places[1])} (bytes "
            f"{spec.cdp_x_byte} and {spec.cdp_y_byte})",
            "line numbers smaller than the coordinates",
            f"write `inline_byte: {spec.cdp_x_byte}`, `crossline_byte: {spec.cdp_y_byte}`, `cdp_x_byte: "
            f"{spec.inline_byte}` and `cdp_y_byte: {spec.crossline_byte}` into the survey spec",
        )
    ]


def _ends(traces: Traces, name: str, where: Mask) -> npt.NDArray[np.int64]:
    """(2,) smallest and largest value of a field."""
    ends = [
        (found.min(), found.max()) for rows in traces.blocks() if (found := traces.column(name, rows)[where[rows]]).size
    ]
    return np.array([min(low for low, _ in ends), max(high for _, high in ends)])


def _no_grid(traces: Traces, live: Mask, spec: SurveySpec) -> list[Finding]:
    inlines, crosslines = (traces.numbers(name, live)[0] for name in ("inline", "crossline"))
    distinct = len(inlines), len(crosslines)
    if min(distinct) >= 2:
        return []
    offsets, _ = traces.numbers("offset", live)
    before_stack = f"; {len(offsets)} different offsets from {offsets[0]} to {offsets[-1]}" if len(offsets) > 1 else ""
    return [
        hold(
            "no-3d-grid",
            f"{distinct[0]} inline values at byte {spec.inline_byte} ({span(inlines)}) and {distinct[1]} "
            f"crossline values at byte {spec.crossline_byte} ({span(crosslines)}) in "
            f"{np.count_nonzero(live)} live traces{before_stack}",
            "a post-stack volume of at least 2 inlines and 2 crosslines",
            "write the true `inline_byte` and `crossline_byte` into the survey spec",
        )
    ]


def _sparse(inline: Axis, crossline: Axis, traces: int) -> Finding:
    return hold(
        "grid-sparse",
        f"{inline.count} × {crossline.count} cells for {traces} traces",
        f"at least one trace in {MAX_EMPTY} cells",
        "write the true `inline_byte` and `crossline_byte` into the survey spec, or split the file by area",
    )


def _duplicates(
    traces: Traces, live: Mask, cells: _Cells, times: npt.NDArray[np.uint16], spec: SurveySpec
) -> tuple[list[Finding], list[str]]:
    used, doubled = int(np.count_nonzero(times)), int(np.count_nonzero(times > 1))
    surplus = int(np.count_nonzero(live)) - used
    if not surplus:
        return [], []
    repeated = cells.shared(live, times)
    offsets, _ = traces.numbers("offset", repeated)
    if len(offsets) > 1 and doubled >= 0.5 * used:
        named = ", ".join(map(str, offsets[:8])) + (", …" if len(offsets) > 8 else "")
        return [
            hold(
                "prestack",
                f"{times.max()} traces a cell with offsets {named} (bytes 37-40)",
                "a post-stack volume: one trace for each inline and crossline",
                "stack the survey, or upload its stack",
            )
        ], []
    if spec.duplicates != "hold":
        return [], [f"{surplus} duplicate traces: {spec.duplicates} used, by the spec"]
    return [
        hold(
            "duplicate-traces",
            f"{surplus} traces too many in {doubled} of {used} cells",
            "one live trace for each inline and crossline",
            "write `duplicates: first`, `last` or `mean` into the survey spec, or other header bytes",
            _first_pairs(traces, live, cells, np.flatnonzero(times > 1)[:3]),
        )
    ], []


def _first_pairs(traces: Traces, live: Mask, cells: _Cells, chosen: npt.NDArray[np.int64]) -> list[str]:
    """Labels of the traces that share the ``chosen`` cells, cell by cell."""
    sharing = np.flatnonzero(live & traces.where(lambda rows: np.isin(cells.of(rows), chosen)))
    of_each = np.array([cells.of(slice(i, i + 1))[0] for i in sharing.tolist()])
    return [traces.label(i) for i in sharing[np.argsort(of_each, kind="stable")][:6].tolist()]


def _fill(
    traces: Traces, placed: Mask, live: Mask, cells: _Cells, times: npt.NDArray[np.uint16], spec: SurveySpec
) -> Grid:
    table = Table(len(times), {"trace": "i8", "live": "?"})
    number_C, live_C = table["trace"], table["live"]
    number_C[:] = -1
    live_C[:] = times > 0
    blocks = list(traces.blocks())  # which forgets nothing by itself
    for rows in blocks:
        dead = np.flatnonzero(placed[rows] & ~live[rows])
        number_C[cells.of(rows)[dead]] = rows.start + dead
        traces.table.forget()
    last = spec.duplicates == "last"
    for rows in blocks if last else blocks[::-1]:  # of repeated indices numpy keeps the last assignment
        used = np.flatnonzero(live[rows])[:: 1 if last else -1]
        number_C[cells.of(rows)[used]] = rows.start + used
        traces.table.forget()
    shape = (cells.inline.count, cells.crossline.count)
    shared_S = _shared(traces, live, cells, times) if spec.duplicates == "mean" else np.zeros(0, np.int64)
    return Grid(cells.inline, cells.crossline, number_C.reshape(shape), live_C.reshape(shape), len(traces), shared_S)


def _shared(traces: Traces, live: Mask, cells: _Cells, times: npt.NDArray[np.uint16]) -> npt.NDArray[np.int64]:
    """``Grid.shared_S``, which cells and traces of no survey overflow; on disk, since all may be doubled."""
    shared = cells.shared(live, times)
    if not shared.any():
        return np.zeros(0, np.int64)
    table, done = Table(int(np.count_nonzero(shared)), {"shared": "i8"}), 0
    for rows in traces.blocks():
        found = np.flatnonzero(shared[rows])
        table["shared"][done : done + len(found)] = cells.of(rows)[found] * len(traces) + rows.start + found
        done += len(found)
    table["shared"].sort()
    table.forget()
    return table["shared"]
