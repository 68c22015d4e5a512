"""The vertical axis of a survey and the sanity of its samples: what headers say together, and where they disagree."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Axis, Finding
from ingestion.preflight.plausibility import doubtful_samples
from ingestion.preflight.traces import Mask, Traces
from ingestion.segy.layout import Layout
from ingestion.segy.samples import SAMPLE_BYTES, TRACE_HEADER_BYTES
from ingestion.source import hold
from ingestion.spec import SurveySpec

_INTERVALS = (0.02, 32.767)  # ms or m; beyond lie ms written for µs and negative numbers
_TIME_SCALARS = (0, 1, 10, 100, 1000, 10_000)
_DEPTH_WORDS = re.compile(r"\bPSDM\b|\bDEPTH (MIGRAT|DOMAIN|SECTION|VOLUME|INTERVAL|SAMPL)|\bIN DEPTH\b", re.IGNORECASE)


def sample_axis(
    traces: Traces, live: npt.NDArray[np.bool_], spec: SurveySpec
) -> tuple[Axis | None, list[Finding], list[str]]:
    """The vertical axis in ms or m, exact to the microsecond or millimetre; None when findings forbid one."""
    notes: list[str] = []
    interval, findings = _interval(traces, live, spec, notes)
    first, more = _first_sample(traces, live, spec, notes)
    findings += more + _sample_counts(traces, live, spec, notes) + _domain(traces, spec)
    if interval is None or first is None or findings:
        return None, findings, notes
    layout = traces.scans[0].layout
    if spec.domain == "depth" and spec.depth_unit is None and layout.measurement_system not in (1, 2):
        notes.append("depths taken as metres: neither the spec nor the measurement system (bytes 3255-3256) says so")
    return Axis(first=first, step=interval, count=layout.samples, unit=_unit(layout, spec)), [], notes


def _unit(layout: Layout, spec: SurveySpec) -> Literal["ms", "m", "ft"]:
    if spec.domain != "depth":
        return "ms"
    return spec.depth_unit or ("ft" if layout.measurement_system == 2 else "m")


def _interval(
    traces: Traces, live: npt.NDArray[np.bool_], spec: SurveySpec, notes: list[str]
) -> tuple[float | None, list[Finding]]:
    declared = traces.scans[0].layout.interval
    if spec.sample_interval is not None:
        if spec.sample_interval != declared:
            notes.append(f"sample interval {spec.sample_interval:g} by the spec; the binary header says {declared:g}")
        return spec.sample_interval, []
    of_traces = traces.table["sample_interval"]
    said = live & traces.where(lambda rows: of_traces[rows] != 0)
    counted = traces.values(lambda rows: of_traces[rows], said)
    values = counted[0] / 1000
    release = "write the true `sample_interval` (ms or m) into the survey spec"
    if len(values) > 1:
        most = _most_common(*counted)
        other = said & traces.where(lambda rows: of_traces[rows] != most)
        count = f"{np.count_nonzero(other)} of {np.count_nonzero(live)}"
        found = f"{count} live traces say another one than {most / 1000:g} ms or m"
        examples = traces.labels(other, "sample_interval")
        return None, [hold("sample-interval-differs", found, "one sample interval for all traces", release, examples)]
    if declared == 0 and len(values) == 0:
        found = "0 in the binary header and in all trace headers"
        expected = "the interval in bytes 3217-3218 or 117-118"
        return None, [hold("sample-interval-missing", found, expected, release)]
    if declared and len(values) and abs(values[0] - declared) >= 0.001:
        found = f"{declared:g} in the binary header, {values[0]:g} in all trace headers that say it"
        return None, [hold("sample-interval-conflict", found, "the same interval in both", release)]
    interval = declared or float(values[0])
    if not _INTERVALS[0] <= interval <= _INTERVALS[1]:
        found = f"{interval:g} ms or m by the headers, which hold thousandths of them"
        expected = f"{_INTERVALS[0]:g} to {_INTERVALS[1]:g}"
        return None, [hold("sample-interval-implausible", found, expected, release)]
    return interval, []


def _first_sample(
    traces: Traces, live: npt.NDArray[np.bool_], spec: SurveySpec, notes: list[str]
) -> tuple[float | None, list[Finding]]:
    """Recording delay (bytes 109-110), times the scalar for times (bytes 215-216) where that is set."""
    values, counts = traces.values(lambda rows: delays(traces, rows)[0], live)
    if spec.first_sample is not None:
        if len(values) != 1 or values[0] != spec.first_sample:
            said = ", ".join(f"{value:g}" for value in values[:3])
            notes.append(f"first sample at {spec.first_sample:g} by the spec; the trace headers say {said}")
        return spec.first_sample, []
    findings = []
    odd = live & traces.where(lambda rows: (traces.column("delay", rows) != 0) & ~delays(traces, rows)[1])
    if odd.any():
        found = f"{np.count_nonzero(odd)} live traces with a delay and an odd scalar for times (bytes 215-216)"
        expected = "0, or 1, 10, 100, 1000 or 10000 with either sign; none in revision 0"
        release = "write the true `first_sample` (ms or m) into the survey spec"
        findings.append(hold("times-scalar-unknown", found, expected, release, traces.labels(odd, "times_scalar")))
    if len(values) > 1:
        most = _most_common(values, counts)
        other = live & traces.where(lambda rows: delays(traces, rows)[0] != most)
        others = values[values != most]
        findings.append(
            hold(
                "delay-differs",
                f"{np.count_nonzero(other)} of {np.count_nonzero(live)} live traces do not start at {most:g} "
                f"but between {others.min():g} and {others.max():g}; the first is "
                f"{traces.label(int(np.flatnonzero(other)[0]))}",
                "one recording delay (bytes 109-110) for all live traces",
                "have the traces shifted to one start, or write `first_sample` into the survey spec when the "
                "headers are wrong",
                traces.labels(other, "delay"),
            )
        )
    if findings or not len(values):
        return (None if findings else 0.0), findings
    if (live & traces.where(lambda rows: delays(traces, rows)[0] != traces.column("delay", rows))).any():
        notes.append(f"first sample at {values[0]:g}: the recording delay with its scalar for times")
    return float(values[0]), []


def delays(traces: Traces, rows: slice = slice(None)) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """(rows,) recording delays in ms or m, and whether their scalar is a standard one (else read as 1)."""
    scalar = traces.column("times_scalar", rows)
    known = np.isin(np.abs(scalar), _TIME_SCALARS)
    if traces.scans[0].layout.revision[0] == 0:  # which leaves these bytes to anyone's use
        known = np.isin(scalar, (0, 1))
    return scaled(traces.column("delay", rows), np.where(known, scalar, 1)), known


def _sample_counts(traces: Traces, live: npt.NDArray[np.bool_], spec: SurveySpec, notes: list[str]) -> list[Finding]:
    """Counts in trace headers. One other value in all of them is a cropped file where only its size fits the header."""
    layout = traces.scans[0].layout
    counts = traces.table["sample_count"]
    other = live & traces.where(lambda rows: (counts[rows] != 0) & (counts[rows] != layout.samples))
    if not other.any():
        return []
    if spec.samples_per_trace is not None:
        notes.append(f"{np.count_nonzero(other)} live traces say another number of samples than the spec")
        return []
    values, _ = traces.values(lambda rows: counts[rows], live)
    uniform = len(values) == 1
    if uniform and not any(_fits(s.layout, s.source.size, int(values[0])) for s in traces.scans):
        notes.append(
            f"all trace headers say {values[0]} samples; the binary header says {layout.samples} "
            "and only this fits the size of the file, so it is used"
        )
        return []
    return [
        hold(
            "sample-count-differs",
            f"{np.count_nonzero(other)} of {np.count_nonzero(live)} live traces do not have the "
            f"{layout.samples} samples of the binary header",
            "the same number of samples in all traces (bytes 115-116)",
            "have the file written with traces of one length, or with correct counts",
            traces.labels(other, "sample_count"),
        )
    ]


def _fits(layout: Layout, size: int, samples: int) -> bool:
    trace_bytes = TRACE_HEADER_BYTES + samples * SAMPLE_BYTES[layout.sample_format]
    return (size - layout.data_start) % trace_bytes == 0


def _domain(traces: Traces, spec: SurveySpec) -> list[Finding]:
    match = next((said for s in traces.scans if (said := _DEPTH_WORDS.search(s.layout.text))), None)
    if spec.domain is not None or match is None:
        return []
    return [
        hold(
            "domain-unclear",
            f"the text header speaks of depth ({match.group(0)!r})",
            "a survey spec that names the domain of such a file",
            "write `domain: depth` or `domain: time` into the survey spec",
        )
    ]


def sample_findings(traces: Traces, live: npt.NDArray[np.bool_], spec: SurveySpec) -> list[Finding]:
    """Samples that are of another format than declared, out of all proportion, constant, or rounded."""
    findings: list[Finding] = []
    for scan in traces.scans:
        facts, declared = scan.facts, scan.layout.sample_format
        doubts = [] if spec.sample_format else doubtful_samples(scan)
        if not doubts and not spec.sample_format and facts.extreme > 0.01 * facts.nonzero:
            doubts = [
                hold(
                    "implausible-amplitudes",
                    f"{scan.source.name}: {facts.extreme / facts.nonzero:.0%} of the samples that are not zero "
                    "are beyond 1e20 or below 1e-20 in magnitude",
                    "amplitudes of one order; such a spread means another sample format or byte order",
                    f"write the true `sample_format` into the survey spec (`{declared}` when it is right)",
                )
            ]
        findings += doubts
        if facts.inexact and not doubts:
            found = f"{facts.inexact} {declared} samples that float32 cannot hold exactly were rounded"
            findings.append(Finding(code="samples-rounded", severity="warn", found=found, expected="", release=""))
    low, high = extremes(traces, live)
    if low == high:
        found = f"every sample of the live traces is {low:g}"
        findings.append(hold("constant-amplitude", found, "amplitudes that vary", "upload real data"))
    return findings


def extremes(traces: Traces, where: Mask) -> tuple[float, float]:
    """Smallest and largest finite sample; infinite where there is none."""
    low, high = np.inf, -np.inf
    for rows in traces.blocks():
        low = min(low, traces.table["lowest"][rows].min(where=where[rows], initial=np.inf))
        high = max(high, traces.table["highest"][rows].max(where=where[rows], initial=-np.inf))
    return float(low), float(high)


def scaled(values: npt.NDArray[np.int64], scalar: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Header values times their SEG-Y scalar: positive multiplies, negative divides, 0 means 1. Per trace."""
    divisor = np.where(scalar < 0, -scalar, 1)
    factor = np.where(scalar > 0, scalar, 1)
    return values * factor / divisor


def _most_common(values: npt.NDArray[np.generic], counts: npt.NDArray[np.int64]) -> float:
    return float(values[counts.argmax()])
