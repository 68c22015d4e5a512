"""For each finding that a spec can release: what to write, on which evidence, and how sure that is.

A repair that the file does not show is a ``guess``: it is said, and never part of what a proposal applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ingestion.candidates import COORDINATES, Place, find_candidates, read_columns
from ingestion.geometry import coordinates, fit_affine, line_index
from ingestion.grid import Grid, off_step, placed_traces, wild_lines
from ingestion.inspect import Inspection
from ingestion.manifest import Contract, Finding
from ingestion.plausibility import sample_words
from ingestion.rescue import Arrangement, arrangement, is_regular, plausible_formats, some_words
from ingestion.samples import SAMPLE_BYTES
from ingestion.segy import read_layout
from ingestion.source import HeldError
from ingestion.spec import SurveySpec
from ingestion.traces import Liveness, Traces
from ingestion.vertical import delays, scaled

Confidence = Literal["certain", "likely", "guess"]
_FEW = 3  # traces that may be a slip; or one in a hundred
_MOST_DROPPED = 2000  # a longer list is no repair
_BINS = (5.0, 60.0)  # usual bin sizes, m
_INTERVALS = (0.25, 20.0)  # usual sample intervals, ms or m
_ODD_BINS = (2.0, 250.0)  # beyond these a scalar is doubted
_INTERVAL = re.compile(
    r"SAMPL\w*\s*(?:RATE|INT\w*|PERIOD)\W*(\d+(?:\.\d+)?)\s*(MS|MSEC\w*|MILLI\w*|M|METRES?|METERS?)\b", re.I
)
_TIME_WORDS = re.compile(r"\b(TO|IN) (TWO.WAY )?TIME\b|\bTWT\b|\bMS\b|STRETCH", re.I)


class Proposed(Contract):
    """One line of a proposed spec."""

    field: str
    value: Any
    evidence: str
    confidence: Confidence
    alternatives: list[str] = []


Repair = Callable[[Inspection, Finding], list[Proposed]]


def proposals(found: Inspection) -> list[Proposed]:
    """What would release the most basic of the findings; empty when nothing can be said.

    Samples in a wrong format look broken in other ways too, and wrong line numbers make geometry wrong: so what
    comes first is repaired first, and the survey is judged again.
    """
    held = [finding for finding in found.findings if finding.severity == "hold"]
    codes = {finding.code for finding in held}
    if "byte-order-mixed" in codes:  # which no spec can say, and which makes everything else look wrong
        return []
    irregular = bool(held) and found.traces is not None and not is_regular(found.sources[0], _way(found))
    if irregular and (said := _rescued(found, held[0])):
        return said
    for group in (_LAYOUT, _FORMAT, _REST) if found.traces is not None else (_LAYOUT,):
        said = [
            proposed for finding in held if finding.code in group for proposed in group[finding.code](found, finding)
        ]
        if said:
            return said
    return [] if found.held else _unfound(found)


def _unfound(found: Inspection) -> list[Proposed]:
    """What no finding says: coordinates in an odd place, a scalar that is off by powers of ten."""
    traces, state, grid, geometry = found.traces, found.state, found.grid, found.geometry
    if traces is None or state is None or grid is None or geometry is None:
        return []
    if not coordinates(traces, found.spec)[state.live].any():
        return _other_coordinates(found, None)
    return _scalar(found, traces, state, np.array([geometry.inline_vector, geometry.crossline_vector]))


def _rescued(found: Inspection, finding: Finding) -> list[Proposed]:
    """A file that cannot be read by its headers: byte order, format, count and start that its bytes show."""
    [source, *_] = found.sources
    way = arrangement(source)
    if way is None or found.spec.samples_per_trace is not None:
        return []
    formats = plausible_formats(some_words(source, way), way.order)
    if len(formats) != 1:
        return []
    evidence = f"{finding.found}; {way.evidence}"
    order = "big" if way.order == ">" else "little"
    values = {
        "endianness": order,
        "sample_format": formats[0],
        "samples_per_trace": way.samples,
        "first_trace_byte": way.start + 1,
    }
    reasons = {"sample_format": f"of the formats of {way.sample_bytes} bytes the samples look like {formats[0]} only"}
    needed = _least(found, values, way)
    return [
        Proposed(field=name, value=value, evidence=reasons.get(name, evidence), confidence="likely")
        for name, value in needed.items()
    ]


def _least(found: Inspection, values: dict[str, Any], way: Arrangement) -> dict[str, Any]:
    """``values`` without those that the headers say as well."""
    needed = dict(values)
    try:
        read_layout(found.sources[0], found.spec.model_copy(update=values))
    except HeldError:  # for a reason that no spec changes
        return {}
    for name in values:
        fewer = {one: value for one, value in needed.items() if one != name}
        try:
            layout = read_layout(found.sources[0], found.spec.model_copy(update=fewer))
        except HeldError:
            continue
        read = (layout.order, layout.data_start, layout.samples, layout.traces, layout.sample_format)
        if read == (way.order, way.start, way.samples, way.traces, values["sample_format"]):
            needed = fewer
    return needed


def _format(found: Inspection, finding: Finding) -> list[Proposed]:
    """The one other format that the samples of all files look like."""
    if found.spec.sample_format is not None:
        return []
    traces, _ = _table(found)
    declared = found.layouts[0].sample_format
    seen = {tuple(plausible_formats(sample_words(scan), scan.layout.order)) for scan in traces.scans}
    if len(seen) != 1 or len(formats := next(iter(seen))) != 1 or formats[0] == declared:
        return []
    evidence = f"{finding.found}; of the formats of this size, they look like {formats[0]} only"
    alternatives = [f"{declared} when the header is right"]
    return [
        Proposed(
            field="sample_format", value=formats[0], evidence=evidence, confidence="likely", alternatives=alternatives
        )
    ]


def _format_or_dead(found: Inspection, finding: Finding) -> list[Proposed]:
    return _format(found, finding) or _non_finite(found, finding)


def _non_finite(found: Inspection, finding: Finding) -> list[Proposed]:
    traces, state = _table(found)
    broken = int(np.count_nonzero(state.kept & (traces.non_finite > 0)))
    if not state.live.any():
        return []
    confidence: Confidence = "likely" if _few(broken, len(traces)) else "guess"
    evidence = f"{finding.found}; the others are whole"
    return [Proposed(field="non_finite", value="dead", evidence=evidence, confidence=confidence)]


def _lines(found: Inspection, finding: Finding) -> list[Proposed]:
    """Other header bytes; the finding must not come from a few traces only."""
    _, state = _table(found)
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


def _duplicates(found: Inspection, finding: Finding) -> list[Proposed]:
    traces, state = _table(found)
    pairs = np.stack([traces.column("inline"), traces.column("crossline")], axis=1)[state.live]
    _, cell, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    surplus = len(cell) - len(counts)
    if not _few(surplus, len(cell)) and (elsewhere := _lines(found, finding)):
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
    traces, state = _table(found)
    name = "inline" if "inline" in finding.code else "crossline"
    values = traces.column(name)
    placed = placed_traces(traces, state)
    chosen = off_step if finding.code.endswith("off-step") else wild_lines
    return _dropped(
        found.spec, placed & np.isin(values, chosen(*np.unique(values[placed], return_counts=True))), finding
    )


def _misplaced(found: Inspection, finding: Finding) -> list[Proposed]:
    """A few traces off the map are left out; for many, coordinates elsewhere in the headers."""
    traces, state = _table(found)
    if (elsewhere := _other_coordinates(found, finding)) or found.grid is None:
        return elsewhere
    index = _index(traces, found.grid)[state.live]
    xy = coordinates(traces, found.spec)[state.live]
    fit = fit_affine(index, xy)
    if said := _one_scalar(found, traces, state, index, finding):
        return said
    off = np.zeros(len(traces), np.bool_)
    off[state.live] = _off(index, xy, fit) > 0.5
    return _dropped(found.spec, off, finding) if _few(int(off.sum()), int(state.live.sum())) else []


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


def _dropped(spec: SurveySpec, where: npt.NDArray[np.bool_], finding: Finding) -> list[Proposed]:
    numbers = sorted({*spec.drop_traces, *(np.flatnonzero(where) + 1).tolist()})
    if len(numbers) > _MOST_DROPPED or len(numbers) == len(spec.drop_traces):
        return []
    evidence = f"{finding.found}; {len(numbers) - len(spec.drop_traces)} of {len(where)} traces are left out for it"
    alternatives = ["have the headers of these traces mended, which loses nothing"]
    return [
        Proposed(field="drop_traces", value=numbers, evidence=evidence, confidence="likely", alternatives=alternatives)
    ]


def _other_coordinates(found: Inspection, finding: Finding | None) -> list[Proposed]:
    """The usual pair of coordinates under which the traces lie on their grid."""
    traces, state = _table(found)
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


def _bin_size(found: Inspection, finding: Finding) -> list[Proposed]:
    traces, state = _table(found)
    if found.grid is None:
        return []
    fit = fit_affine(_index(traces, found.grid)[state.live], coordinates(traces, found.spec)[state.live])
    return _scalar(found, traces, state, fit[1:])


def _interval(found: Inspection, finding: Finding) -> list[Proposed]:
    """By the text header, else by nearly all trace headers, else a guess between what the headers say."""
    traces, state = _table(found)
    column = traces.column("sample_interval")[state.live] / 1000
    values, counts = np.unique(column[column > 0], return_counts=True)
    declared = found.layouts[0].interval
    match = _INTERVAL.search(found.layouts[0].text.replace("\n", " "))
    said = float(match.group(1)) if match else None
    choices = [*([declared] if declared else []), *values[np.argsort(-counts, kind="stable")].tolist()]
    if match and said and (not choices or any(abs(said - choice) < 0.001 for choice in choices)):
        evidence = f"{finding.found}; the text header says {match.group(0).strip()!r}"
        return [Proposed(field="sample_interval", value=said, evidence=evidence, confidence="likely")]
    if not choices:
        return []
    confidence: Confidence = "guess"
    if len(values) > 1 and _few(int(counts.sum() - counts.max()), len(column)):
        choices, confidence = [float(values[counts.argmax()])], "likely"
    return [
        Proposed(
            field="sample_interval",
            value=choices[0],
            evidence=finding.found,
            confidence=confidence,
            alternatives=[f"{choice:g}" for choice in dict.fromkeys(choices[1:]) if choice != choices[0]],
        )
    ]


def _interval_in_other_units(found: Inspection, finding: Finding) -> list[Proposed]:
    """Milliseconds where microseconds belong, or a negative number."""
    if said := [one for one in _interval(found, finding) if one.confidence == "likely"]:
        return said
    declared = found.layouts[0].interval
    readings = {"milliseconds": declared * 1000, "a negative number of microseconds": 65.536 - declared}
    usual = {
        how: round(value, 3)
        for how, value in readings.items()
        if _INTERVALS[0] <= value <= _INTERVALS[1] and abs(4 * value - round(4 * value)) < 1e-6
    }
    return [
        Proposed(
            field="sample_interval",
            value=value,
            evidence=f"{finding.found}; read as {how} it is one that surveys have",
            confidence="likely" if len(usual) == 1 else "guess",
        )
        for how, value in list(usual.items())[:1]
    ]


def _exchanged(found: Inspection, finding: Finding) -> list[Proposed]:
    """Line numbers and coordinates in each other's place."""
    spec = found.spec
    values = {"inline_byte": spec.cdp_x_byte, "crossline_byte": spec.cdp_y_byte}
    values |= {"cdp_x_byte": spec.inline_byte, "cdp_y_byte": spec.crossline_byte}
    return [
        Proposed(field=name, value=byte, evidence=finding.found, confidence="likely") for name, byte in values.items()
    ]


def _first_sample(found: Inspection, finding: Finding) -> list[Proposed]:
    """The delay of nearly all traces; another one in many traces may be true, and then no spec makes it one."""
    traces, state = _table(found)
    values, counts = np.unique(delays(traces)[0][state.live], return_counts=True)
    few = finding.code == "delay-differs" and _few(int(counts.sum() - counts.max()), int(counts.sum()))
    return [
        Proposed(
            field="first_sample",
            value=float(values[counts.argmax()]),
            evidence=f"{finding.found}; {counts.max()} live traces have this",
            confidence="likely" if few else "guess",
            alternatives=[f"{value:g}" for value in values[:4].tolist() if value != values[counts.argmax()]],
        )
    ]


def _sample_count(found: Inspection, finding: Finding) -> list[Proposed]:
    """Traces cannot differ in length when those behind a longer one still begin where they should."""
    traces, state = _table(found)
    samples = found.layouts[0].samples
    counts = traces.column("sample_count")[state.live]
    other = int(np.count_nonzero((counts != 0) & (counts != samples)))
    if found.grid is None:
        return []
    evidence = (
        f"{finding.found}; with {samples} samples a trace the file ends with its last trace, and all trace headers "
        "lie where they should"
    )
    confidence: Confidence = "likely" if _few(other, len(counts)) else "guess"
    return [Proposed(field="samples_per_trace", value=samples, evidence=evidence, confidence=confidence)]


def _domain(found: Inspection, finding: Finding) -> list[Proposed]:
    time = _TIME_WORDS.search(found.layouts[0].text)
    evidence = finding.found + (f", but also of time ({time.group(0)!r})" if time else "")
    return [
        Proposed(
            field="domain",
            value="depth",
            evidence=evidence,
            confidence="guess" if time else "likely",
            alternatives=["time"],
        )
    ]


def _auxiliary(found: Inspection, finding: Finding) -> list[Proposed]:
    _, state = _table(found)
    if not state.live.any():
        return []
    return [Proposed(field="auxiliary", value="drop", evidence=finding.found, confidence="likely")]


def _way(found: Inspection, number: int = 0) -> Arrangement:
    """How a file was read."""
    layout = found.layouts[number]
    size = SAMPLE_BYTES[layout.sample_format]
    return Arrangement(layout.order, layout.data_start, layout.samples, size, layout.traces)


def _table(found: Inspection) -> tuple[Traces, Liveness]:
    if found.traces is None or found.state is None:  # never of a finding about traces
        raise AssertionError("no traces were read")
    return found.traces, found.state


def _few(count: int, of: int) -> bool:
    return count <= max(_FEW, of // 100)


def _index(traces: Traces, grid: Grid) -> npt.NDArray[np.int64]:
    return np.stack([line_index(traces, "inline", grid), line_index(traces, "crossline", grid)], axis=1)


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


_LAYOUT: dict[str, Repair] = dict.fromkeys(
    [
        "not-segy",
        "sample-format-unknown",
        "sample-format-unsupported",
        "sample-count-missing",
        "truncated",
        "extended-headers-invalid",
    ],
    _rescued,
)
_FORMAT: dict[str, Repair] = {
    "sample-format-mismatch": _format,
    "implausible-amplitudes": _format,
    "amplitude-overflow": _format_or_dead,
    "all-zero": _format,
}
_REST: dict[str, Repair] = {
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
    "sample-interval-missing": _interval,
    "sample-interval-conflict": _interval,
    "sample-interval-differs": _interval,
    "sample-interval-implausible": _interval_in_other_units,
    "delay-differs": _first_sample,
    "times-scalar-unknown": _first_sample,
    "sample-count-differs": _sample_count,
    "domain-unclear": _domain,
    "auxiliary-traces": _auxiliary,
    "non-finite-samples": _format_or_dead,
}
