"""Validation's word on one published survey, and all that follows from it."""

from __future__ import annotations

from datetime import UTC, datetime

from ingestion.catalog import load_manifest
from ingestion.lake import Lake
from ingestion.manifest import Finding, Manifest, Verdict, quarantine_folder
from ingestion.quarantine import load_report, quarantine
from validation import tables
from validation.data_docs import publish_pages
from validation.expectations import Session
from validation.pictures import survey_pictures
from validation.rules import load
from validation.verdict import record_verdict
from validation.volume import PublishedVolume


def validate(lake: Lake, survey: str, digest: str) -> Verdict:
    """Check one published digest against all expectations and write ``verdict.json``, last.

    A survey that is held back gets a quarantine report with its pictures; one that passes now loses the report that
    an earlier validation wrote. Data Docs pages go to ``datadocs/``. Killed and run again, it writes the same; when
    nothing has changed, the earlier verdict stays as it is. Raises ``FileNotFoundError`` when the digest is not
    published.
    """
    manifest = load_manifest(lake, survey, digest)
    session = Session(load(), manifest)
    findings = examine(lake, manifest, session)
    publish_pages(lake, session)
    held = any(finding.severity == "hold" for finding in findings)
    verdict = Verdict(
        survey=survey,
        digest=digest,
        status="held" if held else "passed",
        findings=findings,
        suite_version=load().version,
        created=datetime.now(UTC),
    )
    if held:
        _hold_back(lake, manifest, findings)
    else:
        _release(lake, manifest)
    return record_verdict(lake, verdict)


def examine(lake: Lake, manifest: Manifest, session: Session) -> list[Finding]:
    """Findings on all tables of one published survey; nothing is written to the lake."""
    damage = session.check("objects", tables.objects(lake, manifest))
    if damage:  # arrays of a damaged store say nothing
        return damage
    volume = PublishedVolume(lake, manifest)
    lines, amplitudes = tables.lines_and_amplitudes(volume)
    return [
        *session.check("headers", tables.headers(volume)),
        *session.check("geometry", tables.geometry(volume)),
        *session.check("lines", lines),
        *session.check("amplitudes", amplitudes),
    ]


def _hold_back(lake: Lake, manifest: Manifest, findings: list[Finding]) -> None:
    damaged = any(finding.code.startswith("object-") for finding in findings)
    quarantine(
        lake,
        manifest.survey,
        manifest.digest,
        findings,
        pictures={} if damaged else survey_pictures(lake, manifest),
        original_name=manifest.sources[0].original_name,
        sources=[source.uri for source in manifest.sources],
        held_by="validation",
    )


def _release(lake: Lake, manifest: Manifest) -> None:
    try:
        report = load_report(lake, manifest.survey, manifest.digest)
    except FileNotFoundError:
        return
    if report.held_by == "validation":
        folder = quarantine_folder(manifest.survey, manifest.digest)
        lake.delete([f"{folder}/report.json", f"{folder}/report.html"])
