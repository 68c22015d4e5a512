"""Everything that can be said of a survey before anything is written: one pass over its files, and the judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ingestion.manifest import Axis, Finding, Geometry
from ingestion.preflight.candidates import find_candidates
from ingestion.preflight.geometry import handedness, locate
from ingestion.preflight.grid import Grid, build_grid
from ingestion.preflight.scan import Progress, scan, trace_table
from ingestion.preflight.traces import Liveness, Traces, liveness
from ingestion.preflight.vertical import extremes, sample_axis, sample_findings
from ingestion.segy.layout import Layout, read_layout
from ingestion.source import HeldError, Source, hold
from ingestion.spec import SurveySpec

_GRID_CODES = ("no-3d-grid", "duplicate-traces", "grid-sparse", "wild-inline", "wild-crossline")


@dataclass(frozen=True)
class Survey:
    """A survey that nothing holds back: all that conversion needs."""

    sources: list[Source]
    spec: SurveySpec
    layouts: list[Layout]
    traces: Traces
    grid: Grid
    axis: Axis
    geometry: Geometry
    notes: list[str]

    @property
    def domain(self) -> Literal["time", "depth"]:
        """Name of the vertical axis."""
        return self.spec.domain or "time"

    @property
    def shape(self) -> tuple[int, int, int]:
        """(inlines, crosslines, samples)."""
        return (*self.grid.shape, self.axis.count)


@dataclass
class Inspection:
    """What was found. It can be published when there is no finding of severity ``hold``: then no part is None."""

    sources: list[Source]
    spec: SurveySpec
    layouts: list[Layout] = field(default_factory=list)
    traces: Traces | None = None
    state: Liveness | None = None
    grid: Grid | None = None
    axis: Axis | None = None
    geometry: Geometry | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether anything holds the survey back."""
        return any(finding.severity == "hold" for finding in self.findings)

    def survey(self) -> Survey:
        """The survey to convert. Raises ``HeldError`` when something holds it back."""
        if self.held or self.traces is None or self.grid is None or self.axis is None or self.geometry is None:
            raise HeldError(*self.findings)
        notes = [*self.notes, *(f"{finding.code}: {finding.found}" for finding in self.findings)]  # only warnings
        return Survey(self.sources, self.spec, self.layouts, self.traces, self.grid, self.axis, self.geometry, notes)

    def source_sha256(self) -> list[str]:
        """Digests of the files, from the pass over them or, when they were held before it, from a pass now."""
        if self.traces is not None:
            return [s.sha256 for s in self.traces.scans]
        return [source.sha256() for source in self.sources]

    def summary(self) -> dict[str, object]:
        """All of it as JSON values, for ``survey inspect --json``."""
        first = self.layouts[0] if self.layouts else None
        live = None if self.state is None else int(self.state.live.sum())
        return {
            "sources": [{"uri": s.uri, "name": s.name, "size": s.size} for s in self.sources],
            "would_be": "held" if self.held else "published",
            "revision": None if first is None else f"{first.revision[0]}.{first.revision[1]}",
            "format": None if first is None else first.source_format,
            "traces": sum(layout.traces for layout in self.layouts),
            "live_traces": live,
            "samples": None if first is None else first.samples,
            "inline": None if self.grid is None else self.grid.inline.model_dump(),
            "crossline": None if self.grid is None else self.grid.crossline.model_dump(),
            "sample": None if self.axis is None else self.axis.model_dump(),
            "geometry": None if self.geometry is None else self.geometry.model_dump(),
            "handedness": None if self.geometry is None else handedness(self.geometry),
            "amplitude_range": self.amplitude_range(),
            "findings": [finding.model_dump() for finding in self.findings],
            "notes": self.notes,
            "text_header": None if first is None else first.text.splitlines(),
        }

    def amplitude_range(self) -> list[float] | None:
        """Smallest and largest finite sample; None when there is none."""
        if self.traces is None or not len(self.traces):
            return None
        low, high = extremes(self.traces, np.ones(len(self.traces), np.bool_))
        return [low, high] if low <= high else None


def inspect(
    sources: Sequence[Source], spec: SurveySpec, progress: Progress = lambda _: None, traces: Traces | None = None
) -> Inspection:
    """Read and judge ``sources``, the files of one survey in order. Raises ``SourceChangedError``; writes nothing.

    ``traces`` of an earlier inspection are judged again without reading, by a spec that reads the same bytes.
    """
    found = Inspection(list(sources), spec)
    try:
        found.layouts = [read_layout(source, spec) for source in sources]
        _check_files_agree(found)
        _check_units_agree(found)
    except HeldError as held:
        found.findings += held.findings
        return found
    found.traces = traces = _read(found, progress) if traces is None else traces
    for layout in found.layouts:
        found.notes += [note for note in layout.notes if note not in found.notes]

    found.state, findings, notes = liveness(traces, spec)
    _add(found, findings, notes)
    found.axis, findings, notes = sample_axis(traces, found.state.live, spec)
    _add(found, findings, notes)
    _add(found, sample_findings(traces, found.state.live, spec), [])
    found.grid, findings, notes = build_grid(traces, found.state, spec)
    _add(found, [_with_evidence(finding, found) for finding in findings], notes)
    if found.grid is not None:
        found.geometry, findings, notes = locate(traces, found.state.live, found.grid, spec)
        _add(found, findings, notes)
    return found


def _read(found: Inspection, progress: Progress) -> Traces:
    table = trace_table(found.layouts, found.spec)
    firsts = np.cumsum([0] + [layout.traces for layout in found.layouts])
    files = zip(found.sources, found.layouts, firsts.tolist(), strict=False)
    return Traces([scan(source, layout, found.spec, table, first, progress) for source, layout, first in files], table)


def _add(found: Inspection, findings: list[Finding], notes: list[str]) -> None:
    found.findings += findings
    found.notes += notes


def _check_files_agree(found: Inspection) -> None:
    first = found.layouts[0]
    for source, layout in zip(found.sources[1:], found.layouts[1:], strict=True):
        facts = [(one.samples, one.interval, one.source_format) for one in (layout, first)]
        if facts[0] != facts[1]:
            mine, theirs = (f"{n} samples at {dt:g}, {kind}" for n, dt, kind in facts)
            raise HeldError(
                hold(
                    "files-differ",
                    f"{source.name} has {mine}; {found.sources[0].name} has {theirs}",
                    "files of one survey with the same samples, interval and format",
                    "list only files that belong together under `files` in the survey spec",
                )
            )


def _check_units_agree(found: Inspection) -> None:
    """Metres in one file and feet in another would make one survey of both."""
    spec, names = found.spec, {1: "metres", 2: "feet"}
    systems = [names[layout.measurement_system] for layout in found.layouts if layout.measurement_system in names]
    if len(set(systems)) > 1 and (not spec.coordinate_unit or (spec.domain == "depth" and not spec.depth_unit)):
        raise HeldError(
            hold(
                "files-differ",
                f"{systems.count('metres')} files in metres, {systems.count('feet')} in feet (bytes 3255-3256)",
                "files of one survey in one unit",
                "write the true `coordinate_unit`, of depth also `depth_unit`, into the survey spec, or convert a file",
            )
        )


def _with_evidence(finding: Finding, found: Inspection) -> Finding:
    """The finding with other header bytes that would give a grid, where the file shows any."""
    if finding.code not in _GRID_CODES or found.traces is None or found.state is None:
        return finding
    candidates = find_candidates(found.sources, found.layouts, found.state.live, found.spec)
    proposals = [str(candidate) for candidate in candidates]
    if not proposals:
        return finding
    return finding.model_copy(
        update={
            "release": finding.release + "; proposed: " + "; or ".join(proposals),
            "examples": [*finding.examples, *proposals],
        }
    )
