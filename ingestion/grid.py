"""From inline and crossline numbers to a regular grid, or to the reason why they give none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Axis, Finding
from ingestion.source import hold
from ingestion.spec import SurveySpec
from ingestion.traces import Liveness, Traces

MAX_EMPTY = 20  # grid cells per trace
_COORDINATE = 100_000  # line numbers mostly lie below, coordinates as they are stored above
_FEW = 3  # traces that may be a slip; or one in a thousand


@dataclass(frozen=True)
class Grid:
    """Where each trace belongs. Trace numbers count from 0; -1 is none."""

    inline: Axis
    crossline: Axis
    trace_IX: npt.NDArray[np.int64]  # the trace of each cell, live before dead
    live_IX: npt.NDArray[np.bool_]
    averaged: dict[tuple[int, int], list[int]]  # cells whose samples are the mean of several live traces

    @property
    def shape(self) -> tuple[int, int]:
        """(inlines, crosslines)."""
        return (self.inline.count, self.crossline.count)


def build_grid(traces: Traces, state: Liveness, spec: SurveySpec) -> tuple[Grid | None, list[Finding], list[str]]:
    """The grid of the kept traces; None when findings forbid one."""
    inlines, crosslines = traces.column("inline"), traces.column("crossline")
    # Padding is often written with empty headers; a dead trace with numbers is part of the grid.
    placed = state.kept & (state.live | ((inlines != 0) & (crosslines != 0)))
    if not state.live.any():
        return None, [], []
    findings = _exchanged(traces, state.live, spec) or _no_grid(traces, state.live, inlines, crosslines, spec)
    if not findings:
        findings += _slips(traces, placed, "inline", inlines) + _slips(traces, placed, "crossline", crosslines)
    if findings:
        return None, findings, []
    inline, crossline = line_axis(inlines[placed]), line_axis(crosslines[placed])
    if inline.count * crossline.count > MAX_EMPTY * np.count_nonzero(placed):
        return None, [_sparse(inline, crossline, int(np.count_nonzero(placed)))], []
    cells = _index(inlines, inline) * crossline.count + _index(crosslines, crossline)
    findings, notes = _duplicates(traces, state.live, cells, spec)
    if findings:
        return None, findings, notes
    return _fill(placed, state.live, cells, inline, crossline, spec), [], notes


def line_axis(values: npt.NDArray[np.int64]) -> Axis:
    """The regular, ascending axis through all ``values``."""
    lines = np.unique(values)
    step = int(np.gcd.reduce(np.diff(lines))) if len(lines) > 1 else 1
    return Axis(first=int(lines[0]), step=step, count=int((lines[-1] - lines[0]) // step) + 1, unit="line")


def _exchanged(traces: Traces, live: npt.NDArray[np.bool_], spec: SurveySpec) -> list[Finding]:
    """Line numbers and coordinates in each other's place, which would give a grid as regular as the true one."""
    lines = [np.abs(traces.column(name)[live]) for name in ("inline", "crossline")]
    places = [np.abs(traces.column(name)[live]) for name in ("cdp_x", "cdp_y")]
    swapped = all(
        line.min() >= _COORDINATE > place.max() and place.min() != place.max()
        for line, place in zip(lines, places, strict=True)
    )
    if not swapped:
        return []
    return [
        hold(
            "lines-are-coordinates",
            f"inline and crossline {_range(lines[0])} and {_range(lines[1])} (bytes {spec.inline_byte} and "
            f"{spec.crossline_byte}), coordinates {_range(places[0])} and {_range(places[1])} (bytes "
            f"{spec.cdp_x_byte} and {spec.cdp_y_byte})",
            "line numbers smaller than the coordinates",
            f"write `inline_byte: {spec.cdp_x_byte}`, `crossline_byte: {spec.cdp_y_byte}`, `cdp_x_byte: "
            f"{spec.inline_byte}` and `cdp_y_byte: {spec.crossline_byte}` into the survey spec",
        )
    ]


def _no_grid(
    traces: Traces,
    live: npt.NDArray[np.bool_],
    inlines: npt.NDArray[np.int64],
    crosslines: npt.NDArray[np.int64],
    spec: SurveySpec,
) -> list[Finding]:
    distinct = len(np.unique(inlines[live])), len(np.unique(crosslines[live]))
    if min(distinct) >= 2:
        return []
    offsets = np.unique(traces.column("offset")[live])
    before_stack = f"; {len(offsets)} different offsets from {offsets[0]} to {offsets[-1]}" if len(offsets) > 1 else ""
    return [
        hold(
            "no-3d-grid",
            f"{distinct[0]} inline values at byte {spec.inline_byte} ({_range(inlines[live])}) and {distinct[1]} "
            f"crossline values at byte {spec.crossline_byte} ({_range(crosslines[live])}) in "
            f"{np.count_nonzero(live)} live traces{before_stack}",
            "a post-stack volume of at least 2 inlines and 2 crosslines",
            "write the true `inline_byte` and `crossline_byte` into the survey spec",
        )
    ]


def _slips(traces: Traces, placed: npt.NDArray[np.bool_], name: str, values: npt.NDArray[np.int64]) -> list[Finding]:
    """A few traces whose line number lies far from all others, or between the steps of all others."""
    wild = placed & np.isin(values, wild_lines(values[placed]))
    if wild.any():
        return [
            hold(
                f"wild-{name}",
                f"{np.count_nonzero(wild)} traces with {name} {_range(values[wild])}; "
                f"the others have {_range(values[placed & ~wild])}",
                f"{name} numbers of one range",
                "have the header mended, write `drop_traces: "
                f"[{', '.join(str(i + 1) for i in np.flatnonzero(wild)[:20])}]` into the survey spec, or name other "
                "header bytes there",
                traces.labels(wild),
            )
        ]
    off = placed & np.isin(values, off_step(values[placed]))
    if off.any():
        return [
            hold(
                f"{name}-off-step",
                f"{np.count_nonzero(off)} traces with {name} {_range(values[off])}, between the lines of all others",
                f"{name} numbers of one step",
                "have the header mended, or write `drop_traces: "
                f"[{', '.join(str(i + 1) for i in np.flatnonzero(off)[:20])}]` into the survey spec",
                traces.labels(off),
            )
        ]
    return []


def wild_lines(values: npt.NDArray[np.int64]) -> list[int]:
    """Lines of a few traces apart from the main body, or a nearly empty line beyond a gap at its edge."""
    lines, counts = np.unique(values, return_counts=True)
    if len(lines) < 4:
        return []
    gaps = np.diff(lines)
    step = int(np.median(gaps))
    few = max(_FEW, len(values) // 1000)
    cluster = np.concatenate([[0], np.cumsum(gaps > 10 * step)])
    sizes = np.bincount(cluster, counts)
    apart = (sizes <= few)[cluster] & (cluster != sizes.argmax())
    lonely = np.zeros(len(lines), np.bool_)
    if np.median(counts) >= 8:
        lonely[0] = counts[0] <= 2 and gaps[0] > step
        lonely[-1] = counts[-1] <= 2 and gaps[-1] > step
    wild: list[int] = lines[apart | lonely].tolist()
    return wild


def off_step(values: npt.NDArray[np.int64]) -> list[int]:
    """Lines of a few traces that are not on the step of all others."""
    lines, counts = np.unique(values, return_counts=True)
    if len(lines) < 4:
        return []
    steps, frequency = np.unique(np.diff(lines), return_counts=True)
    step = int(steps[frequency.argmax()])
    rest = (lines - lines[0]) % step
    main = int(np.bincount(rest.astype(np.int64), counts).argmax()) if step <= 10_000 else 0
    off: list[int] = lines[rest != main].tolist()
    few = max(_FEW, len(values) // 1000)
    return off if counts[rest != main].sum() <= few else []


def _sparse(inline: Axis, crossline: Axis, traces: int) -> Finding:
    return hold(
        "grid-sparse",
        f"{inline.count} × {crossline.count} cells for {traces} traces",
        f"at least one trace in {MAX_EMPTY} cells",
        "write the true `inline_byte` and `crossline_byte` into the survey spec, or split the file by area",
    )


def _duplicates(
    traces: Traces, live: npt.NDArray[np.bool_], cells: npt.NDArray[np.int64], spec: SurveySpec
) -> tuple[list[Finding], list[str]]:
    used, inverse, counts = np.unique(cells[live], return_inverse=True, return_counts=True)
    surplus = int(counts.sum() - len(used))
    if not surplus:
        return [], []
    repeated = np.zeros(len(traces), np.bool_)
    repeated[np.flatnonzero(live)] = (counts > 1)[inverse]
    offsets = np.unique(traces.column("offset")[repeated])
    if len(offsets) > 1 and np.count_nonzero(counts > 1) >= 0.5 * len(used):
        named = ", ".join(map(str, offsets[:8])) + (", …" if len(offsets) > 8 else "")
        return [
            hold(
                "prestack",
                f"{counts.max()} traces a cell with offsets {named} (bytes 37-40)",
                "a post-stack volume: one trace for each inline and crossline",
                "stack the survey, or upload its stack",
            )
        ], []
    if spec.duplicates != "hold":
        return [], [f"{surplus} duplicate traces: {spec.duplicates} used, by the spec"]
    order = np.flatnonzero(repeated)[np.argsort(cells[repeated], kind="stable")]
    first_pairs = [traces.label(i) for i in order[:6].tolist()]
    return [
        hold(
            "duplicate-traces",
            f"{surplus} traces too many in {np.count_nonzero(counts > 1)} of {len(used)} cells",
            "one live trace for each inline and crossline",
            "write `duplicates: first`, `last` or `mean` into the survey spec, or other header bytes",
            first_pairs,
        )
    ], []


def _fill(
    placed: npt.NDArray[np.bool_],
    live: npt.NDArray[np.bool_],
    cells: npt.NDArray[np.int64],
    inline: Axis,
    crossline: Axis,
    spec: SurveySpec,
) -> Grid:
    flat = np.full(inline.count * crossline.count, -1, np.int64)
    dead = np.flatnonzero(placed & ~live)
    flat[cells[dead]] = dead
    order = np.flatnonzero(live)
    if spec.duplicates != "last":
        order = order[::-1]  # of repeated indices numpy keeps the last assignment
    flat[cells[order]] = order
    alive = np.zeros(len(flat), np.bool_)
    alive[cells[live]] = True
    shape = (inline.count, crossline.count)
    averaged: dict[tuple[int, int], list[int]] = {}
    if spec.duplicates == "mean":
        used, counts = np.unique(cells[live], return_counts=True)
        for trace in np.flatnonzero(live & np.isin(cells, used[counts > 1])).tolist():
            i, x = divmod(int(cells[trace]), crossline.count)
            averaged.setdefault((i, x), []).append(trace)
    return Grid(inline, crossline, flat.reshape(shape), alive.reshape(shape), averaged)


def _index(values: npt.NDArray[np.int64], axis: Axis) -> npt.NDArray[np.int64]:
    """Line numbers as indices; only meaningful for traces that are placed."""
    return (values - int(axis.first)) // int(axis.step)


def _range(values: npt.NDArray[np.int64]) -> str:
    if len(values) == 0:
        return "none"
    return str(values.min()) if values.min() == values.max() else f"{values.min()} to {values.max()}"
