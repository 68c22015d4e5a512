"""Repairs of samples and of the vertical axis: format, interval, start, count, domain, traces that are no data."""

from __future__ import annotations

import re

import numpy as np

from ingestion.manifest import Finding
from ingestion.preflight.inspection import Inspection
from ingestion.preflight.plausibility import sample_words
from ingestion.preflight.vertical import delays
from ingestion.proposal.proposed import Confidence, Proposed, Repair, few, table_of
from ingestion.proposal.rescue import plausible_formats

_INTERVALS = (0.25, 20.0)  # usual sample intervals, ms or m
_INTERVAL = re.compile(
    r"SAMPL\w*\s*(?:RATE|INT\w*|PERIOD)\W*(\d+(?:\.\d+)?)\s*(MS|MSEC\w*|MILLI\w*|M|METRES?|METERS?)\b", re.I
)
_TIME_WORDS = re.compile(r"\b(TO|IN) (TWO.WAY )?TIME\b|\bTWT\b|\bMS\b|STRETCH", re.I)


def _format(found: Inspection, finding: Finding) -> list[Proposed]:
    """The one other format that the samples of all files look like."""
    if found.spec.sample_format is not None:
        return []
    traces, _ = table_of(found)
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
    traces, state = table_of(found)
    broken = int(np.count_nonzero(state.kept & (traces.non_finite > 0)))
    if not state.live.any():
        return []
    confidence: Confidence = "likely" if few(broken, len(traces)) else "guess"
    evidence = f"{finding.found}; the others are whole"
    return [Proposed(field="non_finite", value="dead", evidence=evidence, confidence=confidence)]


def _interval(found: Inspection, finding: Finding) -> list[Proposed]:
    """By the text header, else by nearly all trace headers, else a guess between what the headers say."""
    traces, state = table_of(found)
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
    if len(values) > 1 and few(int(counts.sum() - counts.max()), len(column)):
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


def _first_sample(found: Inspection, finding: Finding) -> list[Proposed]:
    """The delay of nearly all traces; another one in many traces may be true, and then no spec makes it one."""
    traces, state = table_of(found)
    values, counts = np.unique(delays(traces)[0][state.live], return_counts=True)
    slips = finding.code == "delay-differs" and few(int(counts.sum() - counts.max()), int(counts.sum()))
    return [
        Proposed(
            field="first_sample",
            value=float(values[counts.argmax()]),
            evidence=f"{finding.found}; {counts.max()} live traces have this",
            confidence="likely" if slips else "guess",
            alternatives=[f"{value:g}" for value in values[:4].tolist() if value != values[counts.argmax()]],
        )
    ]


def _sample_count(found: Inspection, finding: Finding) -> list[Proposed]:
    """Traces cannot differ in length when those behind a longer one still begin where they should."""
    traces, state = table_of(found)
    samples = found.layouts[0].samples
    counts = traces.column("sample_count")[state.live]
    other = int(np.count_nonzero((counts != 0) & (counts != samples)))
    if found.grid is None:
        return []
    evidence = (
        f"{finding.found}; with {samples} samples a trace the file ends with its last trace, and all trace headers "
        "lie where they should"
    )
    confidence: Confidence = "likely" if few(other, len(counts)) else "guess"
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
    _, state = table_of(found)
    if not state.live.any():
        return []
    return [Proposed(field="auxiliary", value="drop", evidence=finding.found, confidence="likely")]


FORMAT: dict[str, Repair] = {
    "sample-format-mismatch": _format,
    "implausible-amplitudes": _format,
    "amplitude-overflow": _format_or_dead,
    "all-zero": _format,
}
SAMPLES: dict[str, Repair] = {
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
