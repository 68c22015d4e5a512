"""Line numbers of a few traces that are not those of the survey: far from all others, or between their steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Finding
from ingestion.preflight.placement import LineMap, line_axis, tolerance
from ingestion.preflight.traces import Liveness, Mask, Traces, placed_traces, span
from ingestion.source import hold
from ingestion.spec import SurveySpec

Lines = npt.NDArray[np.int64]
_NAMES = ("inline", "crossline")
_FEW = 3  # traces that may be a slip; or one in a thousand


def slips(traces: Traces, state: Liveness, spec: SurveySpec) -> list[Finding]:
    """What is wrong with the line numbers of a few traces; of either direction one finding."""
    placed = placed_traces(traces, state)
    return [_finding(traces, placed, code, lines) for code, lines in stray_lines(traces, state, spec).items()]


def stray_lines(traces: Traces, state: Liveness, spec: SurveySpec) -> dict[str, Lines]:
    """By reason code, the line numbers that few traces have and that are not those of the survey."""
    placed = placed_traces(traces, state)
    counted = {name: traces.numbers(name, placed) for name in _NAMES}
    suspects = {name: _suspects(*counted[name]) for name in _NAMES}
    main = state.live & ~_with(traces, {name: np.concatenate(both) for name, both in suspects.items()})
    found = {}
    for name, (apart, lonely) in suspects.items():
        unconfirmed = [line for line in lonely.tolist() if not _confirmed(traces, placed, main, spec, {name: line})]
        wild, off = np.array(sorted([*apart.tolist(), *unconfirmed]), np.int64), _off_step(*counted[name])
        if len(wild):
            found[f"wild-{name}"] = wild
        elif len(off):
            found[f"{name}-off-step"] = off
    return found


def _suspects(lines: Lines, counts: Lines) -> tuple[Lines, Lines]:
    """Lines of a few traces apart from the main body; and nearly empty ones beyond a gap at its edge."""
    apart, lonely = np.zeros((2, len(lines)), np.bool_)
    if len(lines) >= 4:
        gaps = np.diff(lines)
        step = int(np.median(gaps))
        few = max(_FEW, int(counts.sum()) // 1000)
        cluster = np.concatenate([[0], np.cumsum(gaps > 10 * step)])
        sizes = np.bincount(cluster, counts)
        apart = (sizes <= few)[cluster] & (cluster != sizes.argmax())
        if np.median(counts) >= 8:
            lonely[0] = counts[0] <= 2 and gaps[0] > step
            lonely[-1] = counts[-1] <= 2 and gaps[-1] > step
    return lines[apart], lines[lonely & ~apart]


def _confirmed(traces: Traces, placed: Mask, main: Mask, spec: SurveySpec, line: dict[str, int]) -> bool:
    """Whether all traces of a line lie where the affine map of the ``main`` ones, without it, puts them."""
    if not main.any():
        return False
    inline, crossline = (line_axis(traces.numbers(name, main)[0]) for name in _NAMES)
    map_ = LineMap(traces, main, inline, crossline, spec)
    fit = map_.fit()
    rows = np.flatnonzero(placed & _with(traces, line))
    return tolerance(fit) > 0 and bool((map_.distances(rows, fit) <= tolerance(fit)).all())


def _off_step(lines: Lines, counts: Lines) -> Lines:
    """Lines of a few traces that are not on the step of all others."""
    if len(lines) < 4:
        return lines[:0]
    steps, frequency = np.unique(np.diff(lines), return_counts=True)
    step = int(steps[frequency.argmax()])
    rest = (lines - lines[0]) % step
    main = int(np.bincount(rest.astype(np.int64), counts).argmax()) if step <= 10_000 else 0
    few = max(_FEW, int(counts.sum()) // 1000)
    return lines[rest != main] if counts[rest != main].sum() <= few else lines[:0]


def _finding(traces: Traces, placed: Mask, code: str, lines: Lines) -> Finding:
    name = next(name for name in _NAMES if name in code)
    where = placed & _with(traces, {name: lines})
    if code.startswith("wild"):
        others, expected = f"; the others have {span(traces.numbers(name, placed & ~where)[0])}", "range"
    else:
        others, expected = ", between the lines of all others", "step"
    dropping = ", ".join(str(i + 1) for i in np.flatnonzero(where)[:20])
    return hold(
        code,
        f"{np.count_nonzero(where)} traces with {name} {span(lines)}{others}",
        f"{name} numbers of one {expected}",
        f"have the header mended, write `drop_traces: [{dropping}]` into the survey spec, or name other header bytes "
        "there",
        traces.labels(where),
    )


def _with(traces: Traces, lines: dict[str, Lines] | dict[str, int]) -> Mask:
    """Traces with one of the ``lines``, which are named by their direction."""

    def of(rows: slice) -> Mask:
        return np.asarray(np.any([np.isin(traces.table[name][rows], n) for name, n in lines.items()], axis=0))

    return traces.where(of)
