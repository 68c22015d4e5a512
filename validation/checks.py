"""Validation's word on one published survey, and all that follows from it."""

from __future__ import annotations

from datetime import UTC, datetime

from ingestion.catalog import load_manifest
from ingestion.lake import Lake
from ingestion.manifest import Finding, Manifest, Verdict, quarantine_folder
from ingestion.quarantine import load_report, quarantine
from validation import tables
from validation.amplitudes import measure
from validation.data_docs import publish_pages
from validation.drift import drift, frozen_facts
from validation.expectations import Session
from validation.facts import Facts, facts_key, facts_of
from validation.headers import header_parts, headers
from validation.overlap import neighbours, overlap
from validation.pictures import survey_pictures
from validation.releases import acceptable, after_acceptance, load_request
from validation.rules import Limits, Suites, load
from validation.tally import Tally
from validation.verdict import record_verdict
from validation.volume import PublishedVolume


def validate(lake: Lake, survey: str, digest: str) -> Verdict:
    """Check one published digest against all expectations and write ``facts.json``, then ``verdict.json``, last.

    What a person accepted by ``survey release`` holds nothing back. A survey that is held back gets a quarantine report
    with its pictures; one that passes now loses the report that an earlier validation wrote. Data Docs pages go to
    ``datadocs/``. Killed and run again, it writes the same; when nothing has changed, and nobody asked again, the
    earlier verdict stays as it is. Raises ``FileNotFoundError`` when the digest is not published.
    """
    manifest = load_manifest(lake, survey, digest)
    session = Session(load(), manifest)
    findings, facts = examine(lake, manifest, session)
    publish_pages(lake, session)
    if facts is not None:
        lake.write(facts_key(survey, digest), facts.to_bytes())
    while True:
        created = datetime.now(UTC)  # before the request is read: a later one is newer than the verdict
        request = load_request(lake, survey, digest)
        verdict = _judge(manifest, after_acceptance(findings, request, session.suites), session.suites, created)
        if verdict.status == "held":
            _hold_back(lake, manifest, verdict.findings, damaged=facts is None)
        else:
            _release(lake, manifest)
        if load_request(lake, survey, digest) == request:  # else one was given while the report was written
            return record_verdict(lake, verdict, asked=request.created if request else None)


def _judge(manifest: Manifest, findings: list[Finding], suites: Suites, created: datetime) -> Verdict:
    return Verdict(
        survey=manifest.survey,
        digest=manifest.digest,
        status="held" if any(finding.severity == "hold" for finding in findings) else "passed",
        findings=findings,
        suite_version=suites.version,
        created=created,
    )


def examine(lake: Lake, manifest: Manifest, session: Session) -> tuple[list[Finding], Facts | None]:
    """Findings on all tables of one published survey, and what was measured; nothing is written to the lake.

    There are no facts of a damaged volume: its arrays say nothing.
    """
    damage = session.check("objects", tables.objects(lake, manifest))
    if damage:
        return damage, None
    volume = PublishedVolume(lake, manifest)
    found = measure(volume)
    facts = facts_of(manifest, found)
    frozen, limits = frozen_facts(lake, but=manifest.survey), session.suites.limits
    findings = [
        *_check_headers(session, volume, limits),
        *session.check("geometry", tables.geometry(volume)),
        *session.check("lines", tables.lines(manifest, found)),
        *session.check("amplitudes", tables.amplitudes(manifest, found, facts)),
        *session.check("plausibility", tables.plausibility(manifest, facts)),
        *session.check("drift", drift(facts, frozen, limits.surveys_to_compare)),
        *session.check("policy", tables.policy(facts)),
        *session.check("overlap", overlap(manifest, neighbours(lake, manifest))),
    ]
    return findings, facts


def _check_headers(session: Session, volume: PublishedVolume, limits: Limits) -> list[Finding]:
    """Row by row, or counted by inline where there are so many traces that rows would fill the memory."""
    if volume.live.size <= limits.rows_at_most:
        return session.check("headers", headers(volume))
    tally = Tally(session.suites.tables["headers"])
    for part in header_parts(volume):
        tally.add(part)
    return session.check_counts("headers", tally)


def _hold_back(lake: Lake, manifest: Manifest, findings: list[Finding], *, damaged: bool) -> None:
    quarantine(
        lake,
        manifest.survey,
        manifest.digest,
        findings,
        pictures={} if damaged else survey_pictures(lake, manifest),
        original_name=manifest.sources[0].original_name,
        sources=[source.uri for source in manifest.sources],
        held_by="validation",
        notes=manifest.notes,
        acceptable=[finding.code for finding in findings if acceptable(load(), finding.code)],
    )


def _release(lake: Lake, manifest: Manifest) -> None:
    try:
        report = load_report(lake, manifest.survey, manifest.digest)
    except FileNotFoundError:
        return
    if report.held_by == "validation":
        folder = quarantine_folder(manifest.survey, manifest.digest)
        lake.delete([f"{folder}/report.json", f"{folder}/report.html"])
