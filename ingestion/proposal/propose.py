"""A survey spec proposed for SEG-Y files, with the evidence for every value; nothing of it is applied.

The files are read as ``inspect`` reads them. What holds the survey back is repaired in the spec, and the survey
judged again, until nothing can be said any more. Files are read again only when a repair changes how they are read.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from ingestion.manifest import Manifest
from ingestion.names import printable
from ingestion.preflight.inspection import Inspection, inspect
from ingestion.preflight.placement import coordinates
from ingestion.preflight.scan import Progress
from ingestion.proposal.proposed import Proposed
from ingestion.proposal.repairs import proposals
from ingestion.proposal.rescue import counts_tried
from ingestion.source import Source
from ingestion.spec import SurveySpec

_READING = {"inline_byte", "inline_type", "crossline_byte", "crossline_type", "cdp_x_byte", "cdp_y_byte", "endianness"}
_READING |= {"sample_format", "samples_per_trace", "first_trace_byte"}  # fields that change what is read
_FREE_TEXT = {"name", "licence", "amplitude_unit"}  # which YAML could take for anything
_LINE_ENDS = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")  # that JSON leaves as they are
_ROUNDS = 12
_WIDTH = 110
_HINTS = {  # what no header field says, the words that tell of it, and where else to look
    "crs": (
        r"\bCRS\b|EPSG|DATUM|SPHEROID|ELLIPSOID|PROJECTION|\bUTM\b|\bZONE\b|WGS.?\d\d|\bED50\b|\bNAD.?\d\d|\bGDA",
        "the survey's navigation report or the licence's map",
    ),
    "polarity": (r"POLARITY|SEG.NORMAL|SEG.REVERSE|ZERO.?PHASE", "the processing report"),
    "amplitude_unit": (r"AMPLITUDE (UNIT|SCAL)|MILLIVOLT|PASCAL|REFLECTIVITY", "the processing report"),
    "domain": (r"DEPTH|PSDM|PSTM|TWO.WAY|\bTWT\b", "the processing report"),
    "licence": (r"LICEN[CS]E|COPYRIGHT|CONFIDENTIAL|PROPRIETARY", "the contract under which the data came"),
}
_EXAMPLES = {name: (SurveySpec.model_fields[name].examples or [""])[0] for name in _HINTS}


@dataclass(frozen=True)
class Proposal:
    """What was found out."""

    values: list[Proposed]  # that the proposed spec holds
    guesses: list[Proposed]  # that a person must choose
    hints: dict[str, list[str]]  # field: lines that speak of it
    unresolved: list[str]  # what holds the survey back even with ``values``
    found: Inspection  # by the proposed spec

    @property
    def spec(self) -> SurveySpec:
        """The proposed spec."""
        return self.found.spec

    @property
    def publishable(self) -> bool:
        """Whether nothing holds the survey back with the proposed spec."""
        return not self.found.held

    def summary(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "sources": [source.uri for source in self.found.sources],
            "publishable": self.publishable,
            "spec": {one.field: one.value for one in self.values},
            "values": [one.model_dump(mode="json") for one in self.values],
            "guesses": [one.model_dump(mode="json") for one in self.guesses],
            "unresolved": self.unresolved,
            "hints": self.hints,
        }


def propose(
    sources: Sequence[Source],
    progress: Progress = lambda _: None,
    published: Sequence[Manifest] = (),
    spec: SurveySpec | None = None,
) -> Proposal:
    """The spec under which ``sources``, the files of one survey in order, can be published, as far as they show it.

    What ``spec`` says stays, and is added to. ``published`` surveys tell of the CRS where one overlaps. Raises
    ``SourceChangedError``; writes nothing.
    """
    values = _said(spec or SurveySpec())
    if len(sources) > 1 and "files" not in values:
        names = [source.name for source in sources]
        evidence = "in the order given; it is the order of the traces"
        values["files"] = Proposed(field="files", value=names, evidence=evidence, confidence="certain")
    found = inspect(sources, _spec(values), progress)
    guesses: list[Proposed] = []
    for _ in range(_ROUNDS):
        said = proposals(found)
        guesses = [one for one in said if one.confidence == "guess" and one.field not in values]
        sure = [one for one in said if one.confidence != "guess" and _new(one, values)]
        if not sure:
            break
        values |= {one.field: _joined(one, values) for one in sure}
        again = found.traces if not any(one.field in _READING for one in sure) else None
        found = inspect(sources, _spec(values), progress, again)
    return Proposal(list(values.values()), guesses, _hints(found, published), _unresolved(found, guesses), found)


def _said(spec: SurveySpec) -> dict[str, Proposed]:
    """The lines of a spec that is there."""
    said = {name: getattr(spec, name) for name in SurveySpec.model_fields if name in spec.model_fields_set}
    return {
        name: Proposed(field=name, value=value, evidence="stands in the spec that is there", confidence="certain")
        for name, value in said.items()
    }


def _spec(values: dict[str, Proposed]) -> SurveySpec:
    return SurveySpec(**{name: one.value for name, one in values.items()})


def _new(one: Proposed, values: dict[str, Proposed]) -> bool:
    """Only a list may be proposed again, longer."""
    return one.field not in values or (isinstance(one.value, list) and len(one.value) > len(values[one.field].value))


def _joined(one: Proposed, values: dict[str, Proposed]) -> Proposed:
    """``one`` with the evidence of what was proposed for the field before."""
    if one.field not in values:
        return one
    before = values[one.field]
    joined = sorted({*before.value, *one.value})
    return one.model_copy(update={"value": joined, "evidence": f"{before.evidence}; {one.evidence}"})


def _unresolved(found: Inspection, guesses: list[Proposed]) -> list[str]:
    reasons = [f"{one.code}: {one.found}; {one.release}" for one in found.findings if one.severity == "hold"]
    codes = {one.code for one in found.findings}
    if codes & {"no-3d-grid", "grid-sparse", "coordinates-degenerate"} and not guesses and (shape := _no_volume(found)):
        reasons.append(shape)
    if "sample-count-missing" in codes:
        reasons.append(counts_tried(found.sources[0]))
    return reasons


def _no_volume(found: Inspection) -> str | None:
    """Whether the traces are a line or gathers, when they are no volume."""
    if found.traces is None or found.state is None:
        return None
    live = found.state.live
    offsets = np.unique(found.traces.column("offset")[live])
    if len(offsets) > 1:
        return (
            f"{len(offsets)} different offsets ({offsets[0]} to {offsets[-1]}, bytes 37-40): traces before the stack, "
            "whose shot and channel numbers are no inlines and crosslines"
        )
    xy = coordinates(found.traces, found.spec)[live]
    if (np.ptp(xy, axis=0) > 0).any():
        spread = np.linalg.svd(xy - xy.mean(axis=0), compute_uv=False)
        if spread[1] <= 0.02 * spread[0]:
            return "all traces lie along one line on the map: a 2D line, which is no volume"
    return "no other header bytes number the traces so that each has its own cell of a grid"


def _hints(found: Inspection, published: Sequence[Manifest]) -> dict[str, list[str]]:
    lines = found.layouts[0].text.splitlines() if found.layouts else []
    hints = {
        name: [f"text header: {line.strip()}" for line in lines if re.search(words, line, re.IGNORECASE)][:4]
        for name, (words, _) in _HINTS.items()
    }
    hints["crs"] += [
        f"published survey {one.survey} has {one.geometry.crs}, and its outline overlaps by these coordinates"
        for one in published
        if one.geometry.crs and found.geometry is not None and _overlap(one.geometry.polygon, found.geometry.polygon)
    ][:4]
    return hints


def _overlap(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> bool:
    """Whether the boxes around two outlines do."""
    a, b = np.array(one), np.array(other)
    return bool((a.min(axis=0) <= b.max(axis=0)).all() and (b.min(axis=0) <= a.max(axis=0)).all())


def as_yaml(proposal: Proposal, today: date) -> str:
    """The proposed spec, with its evidence as comments."""
    found = proposal.found
    names = ", ".join(source.name for source in found.sources)
    lines = _comment(
        f"Proposed for {names} on {today}; nothing here is applied until you save it as NAME.yaml beside NAME.sgy, "
        "or give it with --spec."
    )
    lines += _comment(
        "With it the survey can be published."
        if proposal.publishable
        else "With it the survey is still held back, for what stands at the end."
    )
    for one in proposal.values:
        lines += ["", *_comment(f"{one.confidence}: {one.evidence}")]
        lines += _comment(f"or: {'; '.join(one.alternatives)}") if one.alternatives else []
        lines.append(_line(one.field, one.value))
    if not proposal.values:
        nothing = (
            "Nothing needs to be said for the file." if proposal.publishable else "The file shows no value to write."
        )
        lines += ["", *_comment(nothing)]
    for one in proposal.guesses:
        lines += ["", *_comment(f"a guess, for you to decide: {one.evidence}")]
        lines += _comment(f"or: {'; '.join(one.alternatives)}") if one.alternatives else []
        lines.append(f"# {_line(one.field, one.value)}")
    lines += ["", *_comment("What a file does not say:")]
    known = {one.field for one in (*proposal.values, *proposal.guesses)}
    for name, (_, elsewhere) in _HINTS.items():
        if name in known or (name == "domain" and not proposal.hints[name]):
            continue
        lines.append(f"# {name}:    # such as {_EXAMPLES[name]}; look into {elsewhere}")
        for hint in proposal.hints[name]:
            lines += _comment(hint, "#     ")
    if said := _as_the_file_says(found):
        lines += ["", *_comment(f"As the file says: {said}.")]
    for reason in proposal.unresolved:
        lines += ["", *_comment(f"NOT RESOLVED: {reason}")]
    return "\n".join(lines) + "\n"


def _as_the_file_says(found: Inspection) -> str:
    parts = []
    if found.layouts:
        parts.append(f"{found.layouts[0].source_format}, {found.layouts[0].samples} samples")
    for name, axis in (
        ("inlines", found.grid and found.grid.inline),
        ("crosslines", found.grid and found.grid.crossline),
    ):
        if axis:
            parts.append(f"{axis.count} {name} {axis.first:g} to {axis.values()[-1]:g} step {axis.step:g}")
    if found.axis is not None:
        parts.append(f"from {found.axis.first:g} {found.axis.unit} every {found.axis.step:g} {found.axis.unit}")
    return ", ".join(parts)


def _comment(text: str, mark: str = "# ") -> list[str]:
    """Comment lines; whatever a file's words hold, they stay in them."""
    clean = " ".join(printable(text).split())
    return textwrap.wrap(
        clean,
        _WIDTH,
        initial_indent=mark,
        subsequent_indent=mark if mark == "# " else mark + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _line(field: str, value: Any) -> str:
    if isinstance(value, str) and field not in _FREE_TEXT:
        return f"{field}: {value}"
    quoted = json.dumps(value, ensure_ascii=False)
    return f"{field}: " + _LINE_ENDS.sub(lambda end: f"\\u{ord(end[0]):04x}", quoted)
