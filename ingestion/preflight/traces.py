"""The trace table of a survey (all its files in order), and what is wrong with single traces in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Finding
from ingestion.preflight.scan import Scan
from ingestion.preflight.table import Table
from ingestion.source import hold
from ingestion.spec import SurveySpec

_AUXILIARY = range(3, 9)  # dummy, time break, uphole, sweep, timing, water break (trace id, bytes 29-30)
_NAMED = 5  # examples in a finding
_BLOCK = 1 << 18  # traces looked at together


Rows = slice | npt.NDArray[np.int64]  # some traces, by their numbers from 0
Mask = npt.NDArray[np.bool_]  # one a trace
OfRows = Callable[[slice], npt.NDArray[Any]]


@dataclass(frozen=True)
class Traces:
    """All traces of a survey. Arrays have one entry a trace; trace numbers in messages and specs count from 1."""

    scans: list[Scan]
    table: Table

    def __len__(self) -> int:
        return self.table.rows

    @property
    def zero(self) -> npt.NDArray[np.bool_]:
        """Where all samples are zero."""
        return self.table["zero"]

    @property
    def non_finite(self) -> npt.NDArray[np.int32]:
        """NaN or infinite samples."""
        return self.table["non_finite"]

    def column(self, name: str, rows: Rows = slice(None)) -> npt.NDArray[np.int64]:
        """One header field of some traces as 64-bit integers, so that no arithmetic overflows."""
        return self.table[name][rows].astype(np.int64)

    def blocks(self) -> Iterator[slice]:
        """All rows, so many at a time that what is made of them takes little memory."""
        for first in range(0, len(self), _BLOCK):
            yield slice(first, min(first + _BLOCK, len(self)))
            self.table.forget()

    def where(self, condition: OfRows) -> Mask:
        """(traces,) where ``condition``, which is asked for some rows at a time, holds."""
        found = np.empty(len(self), np.bool_)
        for rows in self.blocks():
            found[rows] = condition(rows)
        return found

    def values(self, of: OfRows, where: Mask) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """The different values of ``of``, which is asked for some rows at a time, and how often each occurs."""
        found, times = of(slice(0, 0)), np.zeros(0, np.int64)
        for rows in self.blocks():
            values, counts = np.unique(of(rows)[where[rows]], return_counts=True)
            found, place = np.unique(np.concatenate([found, values]), return_inverse=True)
            sums = np.zeros(len(found), np.int64)
            np.add.at(sums, place, np.concatenate([times, counts]))
            times = sums
        return found, times

    def numbers(self, name: str, where: Mask) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The different values of a header field, and how often each occurs."""
        return self.values(lambda rows: self.column(name, rows), where)

    def label(self, trace: int) -> str:
        """``trace 17 (inline 1005, crossline 960)``; ``trace`` counts from 0."""
        inline, crossline = self.table["inline"][trace], self.table["crossline"][trace]
        return f"trace {trace + 1} (inline {inline}, crossline {crossline})"

    def labels(self, where: npt.NDArray[np.bool_], field: str | None = None) -> list[str]:
        """The first few traces at ``where``, with the value of ``field``."""
        chosen = np.flatnonzero(where)[:_NAMED]
        return [self.label(i) + (f": {field} {self.table[field][i]}" if field else "") for i in chosen.tolist()]


@dataclass(frozen=True)
class Liveness:
    """Which traces count. (traces,) each."""

    kept: npt.NDArray[np.bool_]  # not dropped by the spec
    live: npt.NDArray[np.bool_]  # kept, and neither dead nor empty


def placed_traces(traces: Traces, state: Liveness) -> Mask:
    """Live traces, and dead ones with line numbers: padding is often written with empty headers."""

    def numbered(rows: slice) -> npt.NDArray[np.bool_]:
        return np.asarray((traces.table["inline"][rows] != 0) & (traces.table["crossline"][rows] != 0))

    return state.kept & (state.live | traces.where(numbered))


def liveness(traces: Traces, spec: SurveySpec) -> tuple[Liveness, list[Finding], list[str]]:
    """Dead are: trace id 2, all samples zero, and non-finite ones where the spec says so. Trace id 0 is live."""
    findings: list[Finding] = []
    notes: list[str] = []
    kept = np.ones(len(traces), np.bool_)
    beyond = [number for number in spec.drop_traces if number > len(traces)]
    if beyond:
        findings.append(
            hold(
                "drop-traces-unknown",
                f"the spec drops trace {beyond[0]}; the survey has {len(traces)}",
                f"trace numbers from 1 to {len(traces)}",
                "mend `drop_traces` in the survey spec",
            )
        )
    kept[[number - 1 for number in spec.drop_traces if number <= len(traces)]] = False
    if not kept.all():
        notes.append(f"{np.count_nonzero(~kept)} traces dropped by the spec")
    auxiliary = kept & traces.where(lambda rows: np.isin(traces.table["trace_id"][rows], _AUXILIARY))
    by_trace_id = traces.where(lambda rows: traces.table["trace_id"][rows] == 2)
    if auxiliary.any() and spec.auxiliary == "drop":
        notes.append(f"{np.count_nonzero(auxiliary)} auxiliary traces (trace ids 3 to 8) dropped, by the spec")
        kept &= ~auxiliary
    broken = kept & (traces.non_finite > 0)
    findings += _auxiliary(traces, kept & auxiliary)
    if broken.any() and spec.non_finite == "hold":
        findings.append(_non_finite(traces, broken))
    live = kept & ~by_trace_id & ~traces.zero & ~broken
    if broken.any() and spec.non_finite == "dead":
        notes.append(f"{np.count_nonzero(broken)} traces with NaN or infinite samples taken as dead, by the spec")
    notes += _unknown_ids(traces, live)
    dead = int(np.count_nonzero(kept & ~live & ~broken))
    if dead:
        by_id = int(np.count_nonzero(kept & by_trace_id))
        notes.append(f"{dead} dead traces ({by_id} by trace id 2, the others all zero)")
    if not live.any() and not findings:
        findings.append(_nothing_live(traces))
    return Liveness(kept, live), findings, notes


def _unknown_ids(traces: Traces, live: Mask) -> list[str]:
    """What was taken as seismic data although no revision before 2 knows its trace id."""
    ids, counts = traces.values(lambda rows: traces.table["trace_id"][rows], live)
    unknown = [f"{count} with {each}" for each, count in zip(ids, counts, strict=True) if not 0 <= each <= 8]
    if not unknown:
        return []
    named, more = unknown[:_NAMED], ", …" if len(unknown) > _NAMED else ""
    return [f"live traces of unknown trace ids taken as seismic data: {', '.join(named)}{more}"]


def _auxiliary(traces: Traces, where: npt.NDArray[np.bool_]) -> list[Finding]:
    if not where.any():
        return []
    return [
        hold(
            "auxiliary-traces",
            f"{np.count_nonzero(where)} of {len(traces)} traces are no seismic data (trace ids 3 to 8)",
            "trace id 0 (unknown), 1 (seismic) or 2 (dead) in bytes 29-30",
            "write `auxiliary: drop` into the survey spec to leave them out",
            traces.labels(where, "trace_id"),
        )
    ]


def _non_finite(traces: Traces, where: npt.NDArray[np.bool_]) -> Finding:
    samples = int(traces.non_finite[where].sum())
    overflow = sum(s.facts.overflow for s in traces.scans)
    if overflow == samples:
        return hold(
            "amplitude-overflow",
            f"{samples} samples in {np.count_nonzero(where)} traces are larger than float32 holds (3.4e38)",
            "amplitudes within ±3.4e38; larger ones mostly mean another sample format",
            "write the true `sample_format`, or `non_finite: dead`, into the survey spec",
            traces.labels(where),
        )
    return hold(
        "non-finite-samples",
        f"{samples} NaN or infinite samples in {np.count_nonzero(where)} of {len(traces)} traces",
        "finite samples",
        "repair the file, or write `non_finite: dead` into the survey spec to treat these traces as dead",
        traces.labels(where),
    )


def _nothing_live(traces: Traces) -> Finding:
    if traces.zero.all():
        return hold("all-zero", f"all samples of all {len(traces)} traces are zero", "amplitudes", "upload real data")
    return hold(
        "no-live-traces",
        f"none of {len(traces)} traces is live: all are zero, dead by trace id 2, or dropped",
        "live traces",
        "upload the survey with its data",
    )


def span(values: npt.NDArray[np.int64]) -> str:
    """``100 to 105``."""
    if len(values) == 0:
        return "none"
    return str(values.min()) if values.min() == values.max() else f"{values.min()} to {values.max()}"
