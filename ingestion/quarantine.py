"""Why a survey was held back, and what would release it: ``report.html`` for people, ``report.json`` for programs.

Ingestion and validation both write here. The report is complete when ``report.json`` exists: it is written last.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError

from ingestion.lake import Lake, LakeError
from ingestion.manifest import Contract, Digest, Finding, SafeName, quarantine_folder
from ingestion.quarantine_page import page


class Way(Contract):
    """One way out, and the command that takes it."""

    when: str
    command: str


logger = logging.getLogger(__name__)


class QuarantineReport(Contract):
    """``quarantine/<survey>/<digest>/report.json``."""

    schema_version: Literal[1] = 1
    survey: SafeName
    digest: Digest
    original_name: str
    created: datetime
    held_by: Literal["ingestion", "validation"]
    sources: list[str]  # URIs of the SEG-Y files
    findings: list[Finding]
    notes: list[str] = []  # what ingestion inferred or did by the spec
    acceptable: list[str] = []  # codes of findings that a person may accept
    ways: list[Way] = []  # how to release it


def report_key(survey: str, digest: str) -> str:
    """Where the report lies; the survey is quarantined under this digest when it exists."""
    return f"{quarantine_folder(survey, digest)}/report.json"


def quarantine(
    lake: Lake,
    survey: str,
    digest: str,
    findings: Sequence[Finding],
    *,
    pictures: Mapping[str, bytes] | None = None,
    original_name: str | None = None,
    sources: Sequence[str] = (),
    held_by: Literal["ingestion", "validation"] = "ingestion",
    acceptable: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> str:
    """Write both reports and return the key of ``report.json``. ``pictures``: PNG bytes by caption.

    ``acceptable`` names the codes that a person may accept as they are; ``notes`` say how the file was read.
    """
    held = [finding.code for finding in findings if finding.severity == "hold"]
    report = QuarantineReport(
        survey=survey,
        digest=digest,
        original_name=survey if original_name is None else original_name,
        created=datetime.now(UTC),
        held_by=held_by,
        sources=list(sources),
        findings=list(findings),
        notes=list(notes),
        acceptable=list(acceptable),
        ways=_ways(lake, survey, held, acceptable, held_by),
    )
    lake.write(f"{quarantine_folder(survey, digest)}/report.html", page(report, pictures or {}).encode())
    lake.write(report_key(survey, digest), report.to_bytes())
    return report_key(survey, digest)


def _ways(lake: Lake, survey: str, held: Sequence[str], acceptable: Sequence[str], held_by: str) -> list[Way]:
    """What a person may type, the plainest first."""
    start = f"survey release {shlex.quote(survey)} --lake {shlex.quote(lake.uri)}"
    end = "--by YOUR-NAME --reason 'WHY'"
    ways = [
        Way(
            when="When what is said above can be mended in the survey spec (a small YAML file; the whole of it, not "
            "only the new lines):",
            command=f"{start} --spec SPEC.yaml {end}",
        )
    ]
    if held_by == "ingestion":
        again = (
            "Once a mended file, or the mended spec beside it, lies under `incoming/`, the weekly run takes it in too."
        )
        return [ways[0].model_copy(update={"when": f"{again} {ways[0].when}"})]
    if set(held) <= set(acceptable):
        accepted = " ".join(f"--accept {code}" for code in held)
        ways.append(
            Way(
                when="When the survey is right as it is, and you take responsibility for that:",
                command=f"{start} {accepted} {end}",
            )
        )
    else:
        never = ", ".join(f"`{code}`" for code in held if code not in acceptable)
        ways.append(
            Way(
                when=f"Nobody may accept {never}. When objects on the lake were repaired, have them checked again:",
                command=f"{start} {end}",
            )
        )
    return ways


def load_report(lake: Lake, survey: str, digest: str) -> QuarantineReport:
    """The report on one held-back digest. Raises ``FileNotFoundError``, or ``LakeError`` when it is not readable."""
    key = report_key(survey, digest)
    try:
        return QuarantineReport.model_validate_json(lake.read(key))
    except ValidationError as error:
        raise LakeError(f"{lake.uri_of(key)} is no quarantine report that this version reads: {error}") from error


def reports(lake: Lake) -> list[QuarantineReport]:
    """All reports on the lake that can be read, by survey and age; others are warned of."""
    found = []
    for survey in lake.folders("quarantine"):
        for digest in lake.folders(f"quarantine/{survey}"):
            try:
                found.append(load_report(lake, survey, digest))
            except FileNotFoundError:  # a killed run left no report.json
                continue
            except LakeError as error:
                logger.warning("left out: %s", error)
    return sorted(found, key=lambda report: (report.survey, report.created))
