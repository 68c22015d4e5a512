"""Where else in the trace headers inline and crossline may stand, ranked, with the evidence for each.

A sample of whole runs of traces, spread over the files, is searched at every 4-byte and 2-byte position; the best
few pairs are then held against all traces. Offered is only a pair under which each live trace has a cell of its own
on a well filled grid, which lies on the map where the coordinates say, as far as there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from ingestion.preflight.header_fields import Headers, Numbers, Place, read_columns, sampled
from ingestion.preflight.placement import fit_affine
from ingestion.preflight.vertical import scaled
from ingestion.segy.layout import Layout
from ingestion.segy.samples import Order
from ingestion.source import Source
from ingestion.spec import SurveySpec

USUAL = ((189, 193), (9, 21), (17, 13), (221, 225))  # (inline, crossline) bytes that files in use have
COORDINATES = ((181, 185), (73, 77), (81, 85))  # of the CDP, the source and the receiver group
_MOST_COLUMNS = 40
_VERIFIED = 3  # pairs held against all traces
_OFFERED = 3
_LARGEST = 10_000_000  # line numbers are smaller, and
_WIDEST_STEP = 1000  # closer; coordinates and shifted bytes are not
_NO_LINES = ((25, 36), (69, 180))  # bytes that the standard gives another meaning: only coordinates speak for these
_SEQUENCES = ((1, 8), (25, 28))  # traces of a line, of the file, of an ensemble
_CLOCK = ((157, 168),)
_CROSSLINES = (21, 193, 225)  # where 1, 2, 3 … in every line may be crosslines, without coordinates to show it


@dataclass(frozen=True)
class Candidate:
    """A pair of header fields under which the live traces form a grid."""

    inline: Place
    crossline: Place
    evidence: str
    fill: float  # live cells of all cells
    located: bool  # agrees with coordinates

    @property
    def usual(self) -> bool:
        """Whether files in use have inline and crossline there."""
        return (self.inline.byte, self.crossline.byte) in USUAL

    @property
    def fields(self) -> dict[str, int | str]:
        """The lines for a survey spec."""
        said: dict[str, int | str] = {"inline_byte": self.inline.byte, "crossline_byte": self.crossline.byte}
        kinds = {"inline_type": self.inline.kind, "crossline_type": self.crossline.kind}
        return said | {name: kind for name, kind in kinds.items() if kind != "int32"}

    def __str__(self) -> str:
        said = " and ".join(f"{name}: {value}" for name, value in self.fields.items())
        return f"{said} give {self.evidence}"


@dataclass(frozen=True)
class _Trial:
    """A pair on the way to be a candidate, with the map position that was fitted to it."""

    pair: tuple[Place, Place]
    located: bool
    residual: float  # bins
    rank: tuple[bool, bool, int, int, int, int]


def find_candidates(
    sources: Sequence[Source],
    layouts: Sequence[Layout],
    live: npt.NDArray[np.bool_],
    spec: SurveySpec,
) -> list[Candidate]:
    """The best few other places for inline and crossline, best first; ``live`` (traces,) through all files in order.

    Reads a bounded part of the files, and all of them again when that gave any pair to verify.
    """
    numbers, headers = zip(*sampled(sources, layouts), strict=True)
    sample, order = np.concatenate(headers)[live[np.concatenate(numbers)]], layouts[0].order
    offsets = Place(37).numbers(sample, order)
    if len(sample) < 4 or offsets.min() != offsets.max():
        return []  # pre-stack numbering (shot, channel) looks like a grid as well
    trials = _trials(sample, order, spec)[:_VERIFIED]
    if not trials:
        return []
    columns = read_columns(sources, layouts, {place for trial in trials for place in trial.pair} | {Place(37)})
    if len(np.unique(columns[Place(37)][live])) > 1:
        return []
    found = [_verified(trial, columns, live) for trial in trials]
    return [candidate for candidate in found if candidate is not None][:_OFFERED]


def _trials(sample: Headers, order: Order, spec: SurveySpec) -> list[_Trial]:
    """Pairs that make a grid of the sample, best first."""
    points = _points(sample, order, spec)
    columns = _columns(sample, order, spec)
    current = {Place(spec.inline_byte, spec.inline_type), Place(spec.crossline_byte, spec.crossline_type)}
    found = []
    for one, other in combinations(columns, 2):
        if {one, other} == current or (one.byte <= other.stop and other.byte <= one.stop):
            continue
        if not _unique(columns[one], columns[other]):
            continue
        pair = _ordered(one, other, columns)
        usual = (pair[0].byte, pair[1].byte) in USUAL
        residual = _residual(columns[pair[0]], columns[pair[1]], points)
        if residual is None and not all(_speaks_for_itself(place, columns[place], usual) for place in pair):
            continue
        if residual is not None and residual > 0.5:  # there are coordinates, and they say otherwise
            continue
        odd = sum(place.byte % 4 != 1 for place in pair)
        narrow = sum(place.kind == "int16" for place in pair)
        rank = (residual is None, not usual, odd, narrow, pair[0].byte, pair[1].byte)
        found.append(_Trial(pair, residual is not None, residual or 0.0, rank))
    return sorted(found, key=lambda trial: trial.rank)


def _columns(sample: Headers, order: Order, spec: SurveySpec) -> dict[Place, Numbers]:
    """Fields that can be line numbers; of several that say the same, the most usual one."""
    places = [Place(byte) for byte in range(1, 238)] + [Place(byte, "int16") for byte in range(1, 240)]
    mapped = [Place(byte) for pair in _coordinate_bytes(spec) for byte in pair]
    points = [place.numbers(sample, order) for place in mapped]
    mapped += [p for p in places if p.kind == "int32" and _any_multiple(p.numbers(sample, order), points)]
    taken = [(place.byte, place.stop) for place in mapped]
    usual = {byte for pair in USUAL for byte in pair}
    ranked = []
    for place in places:
        values = place.numbers(sample, order)
        if _line_like(values) and not place.within(taken) and not _never(place, values):
            narrow = place.kind == "int16"
            key = (place.byte not in usual or narrow, int(np.abs(values).max()), narrow, place.byte)
            ranked.append((key, place, values))
    ranked.sort(key=lambda row: row[0])
    kept: dict[Place, Numbers] = {}
    patterns: set[bytes] = set()
    for _, place, values in ranked:
        pattern = _pattern(values)
        if pattern not in patterns and len(kept) < _MOST_COLUMNS:
            patterns.add(pattern)
            kept[place] = values
    return kept


def _line_like(values: Numbers) -> bool:
    """At least two values, shared by traces, of the size and step that line numbers have."""
    if values.min() == values.max() or np.abs(values).max() > _LARGEST:
        return False
    lines = np.unique(values)
    step = int(np.gcd.reduce(np.diff(lines)))
    return len(lines) <= len(values) / 2 and step <= _WIDEST_STEP and step % 256 != 0  # else: read a byte too late


def _speaks_for_itself(place: Place, values: Numbers, usual: bool) -> bool:
    """Whether a field may be a line number without coordinates that show it."""
    if _counts_traces(values) and place.byte not in _CROSSLINES:
        return False
    return usual or not place.within(_NO_LINES)


def _never(place: Place, values: Numbers) -> bool:
    """Clocks, and counts of traces where the standard has them."""
    return place.within(_CLOCK) or (place.within(_SEQUENCES) and _counts_traces(values))


def _counts_traces(values: Numbers) -> bool:
    """1, 2, 3 … again and again: a count of the traces of each line, whatever is missing in the line."""
    steps = np.diff(values)
    restarts = steps != 1
    return bool(values[0] == 1 and (values[1:][restarts] == 1).all())


def _any_multiple(values: Numbers, mapped: list[Numbers]) -> bool:
    """Whether ``values`` are a coordinate, shifted by digits."""
    return any(
        column.any() and ((values * 10**power == column).all() or (values == column * 10**power).all())
        for column in mapped
        for power in range(4)
    )


def _pattern(values: Numbers) -> bytes:
    """The same for columns that differ by a factor and an offset only."""
    least = values - values.min()
    step = int(np.gcd.reduce(np.unique(least)))
    return bytes((least // step).data)


def _unique(one: Numbers, other: Numbers) -> bool:
    """Whether no two traces have the same pair, and the pairs fill a part of their grid."""
    first, second = (np.unique(values, return_inverse=True) for values in (one, other))
    cells = len(first[0]) * len(second[0])
    if not len(one) <= cells <= 20 * len(one):
        return False
    return len(np.unique(first[1].astype(np.int64) * len(second[0]) + second[1])) == len(one)


def _ordered(one: Place, other: Place, columns: dict[Place, Numbers]) -> tuple[Place, Place]:
    """(inline, crossline): as usual, else the inline is what changes less from trace to trace."""
    for pair in ((one, other), (other, one)):
        if (pair[0].byte, pair[1].byte) in USUAL:
            return pair
    changes = [int(np.count_nonzero(np.diff(columns[place]))) for place in (one, other)]
    return (one, other) if changes[0] <= changes[1] else (other, one)


def _coordinate_bytes(spec: SurveySpec) -> list[tuple[int, int]]:
    return list(dict.fromkeys([(spec.cdp_x_byte, spec.cdp_y_byte), *COORDINATES]))


def _points(sample: Headers, order: Order, spec: SurveySpec) -> list[npt.NDArray[np.float64]]:
    """(traces, 2) for each pair of coordinates that says anything of the place of every trace."""
    scalar = Place(71, "int16").numbers(sample, order)
    if spec.coordinate_scalar is not None:
        scalar = np.full_like(scalar, spec.coordinate_scalar)
    pairs = [[scaled(Place(byte).numbers(sample, order), scalar) for byte in pair] for pair in _coordinate_bytes(spec)]
    return [np.stack(pair, axis=1) for pair in pairs if all(column.all() and np.ptp(column) > 0 for column in pair)]


def _residual(inline: Numbers, crossline: Numbers, points: list[npt.NDArray[np.float64]]) -> float | None:
    """Distance in bins, of all but one trace in a hundred, from the grid on the map; None without coordinates.

    Of several kinds of coordinates the best one speaks. Infinite where the grid would have no area.
    """
    if not points:
        return None
    index = np.stack([_steps(inline), _steps(crossline)], axis=1)
    design = np.column_stack([np.ones(len(index)), index])
    best = np.inf
    for xy in points:
        fit = fit_affine(index, xy)
        bins = np.linalg.norm(fit[1:], axis=1)
        if bins.min() > 1e-6 and abs(float(np.linalg.det(fit[1:]))) > 1e-2 * bins.prod():
            off = np.linalg.norm(xy - design @ fit, axis=1) / bins.min()
            best = min(best, float(np.quantile(off, 0.99)))
    return best


def _steps(values: Numbers) -> Numbers:
    """Line numbers as counts of their step."""
    lines = np.unique(values)
    steps: Numbers = (values - lines[0]) // int(np.gcd.reduce(np.diff(lines)))
    return steps


def _verified(
    trial: _Trial, columns: dict[Place, npt.NDArray[np.int32]], live: npt.NDArray[np.bool_]
) -> Candidate | None:
    """The pair with its evidence from all live traces; None where these do not form a grid."""
    numbers = [columns[place][live].astype(np.int64) for place in trial.pair]
    axes = [np.unique(values) for values in numbers]
    steps = [int(np.gcd.reduce(np.diff(lines))) for lines in axes]
    counts = [int(lines[-1] - lines[0]) // step + 1 for lines, step in zip(axes, steps, strict=True)]
    codes = _steps(numbers[0]) * counts[1] + _steps(numbers[1])
    fill = len(codes) / (counts[0] * counts[1])
    if len(np.unique(codes)) < len(codes) or fill < (0.2 if trial.located else 0.5):
        return None
    ranges = [f"{a[0]} to {a[-1]} step {step}" for a, step in zip(axes, steps, strict=True)]
    evidence = (
        f"{counts[0]} × {counts[1]} lines ({ranges[0]}, {ranges[1]}), each of {len(codes)} live traces its own cell, "
        f"{fill:.0%} filled"
    )
    if trial.located:
        evidence += f", within {trial.residual:.2g} bins of the coordinates"
    return Candidate(*trial.pair, evidence, fill, trial.located)
