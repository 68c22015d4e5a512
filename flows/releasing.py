"""What ``survey release`` does: a survey that was held back, taken in again with a mended spec, or accepted as it is.

It writes a request that validation reads, and lets validation judge. Nothing here makes a survey pass: a data set takes
only digests whose verdict says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ingestion.manifest import Contract, Digest, Finding, SafeName
from ingestion.names import safe_identifier
from validation.releases import acceptable, record_request
from validation.rules import load
from validation.verdict import load_verdict

if TYPE_CHECKING:
    from ingestion.ingest import IngestResult
    from ingestion.lake import Lake
    from ingestion.manifest import Verdict
    from ingestion.quarantine import QuarantineReport
    from ingestion.spec import SurveySpec
    from ingestion.volume.conversion import Progress


class ReleaseError(Exception):
    """The survey cannot be released so; the message says what to type instead."""


class ReleaseOutcome(Contract):
    """What became of the survey."""

    survey: SafeName
    status: Literal["passed", "held", "uploading"]
    digest: Digest | None
    findings: list[Finding]
    report: str | None  # URI of the quarantine report, when it is held


@dataclass(frozen=True)
class Request:
    """What a person asked for."""

    codes: Sequence[str]
    by: str
    reason: str


def release_survey(
    lake: Lake, survey: str, request: Request, spec: SurveySpec | None, progress: Progress
) -> ReleaseOutcome:
    """Ask for what is held back of ``survey`` to be judged again. Raises ``ReleaseError``; then nothing was written."""
    report = _held_report(lake, survey)
    _check_codes(report, request.codes, again=spec is not None)
    if spec is None:
        return _judge(lake, report.survey, report.digest, request)
    result = _take_in_again(lake, report, spec, progress)
    if result.manifest is None or result.digest is None:
        status: Literal["held", "uploading"] = "uploading" if result.status == "uploading" else "held"
        return _outcome(lake, result.survey, status, result.digest, result.findings, result.report_key)
    outcome = _judge(lake, result.manifest.survey, result.manifest.digest, request)
    if outcome.status == "passed" and report.digest != outcome.digest:
        _remove(lake, report)
    return outcome


def _held_report(lake: Lake, survey: str) -> QuarantineReport:
    """The newest report on ``survey`` that no newer published version has overtaken."""
    from ingestion.catalog import versions
    from ingestion.quarantine import reports

    published = versions(lake, survey)
    held = [report for report in reports(lake) if report.survey == survey]
    if not published and not held:
        raise ReleaseError(f"no survey {survey!r} on {lake.uri}; `survey list --lake {lake.uri}` names them")
    if published:
        newest = published[0]
        held = [report for report in held if report.digest == newest.digest or report.created > newest.since]
    if not held:
        raise ReleaseError(f"nothing of survey {survey} is held back: {_state(lake, survey, published[0].digest)}")
    return max(held, key=lambda report: report.created)


def _state(lake: Lake, survey: str, digest: str) -> str:
    verdict = load_verdict(lake, survey, digest)
    if verdict is None:
        return f"{digest[:12]} is published and waits for its verdict, which the weekly run gives"
    return f"{digest[:12]} has {verdict.status} on {verdict.created:%Y-%m-%d}"


def _check_codes(report: QuarantineReport, codes: Sequence[str], *, again: bool) -> None:
    """Refuse codes that nobody gave, that do not hold the survey, or that a person may not accept."""
    suites = load()
    held = [finding.code for finding in report.findings if finding.severity == "hold"]
    reasons = f"{report.survey} is held back for {', '.join(held)}"
    for code in codes:
        rule = suites.rule(code)
        if rule is None and code not in held:
            raise ReleaseError(f"unknown code {code!r}; {reasons}")
        if rule is not None and rule.severity == "warn":
            raise ReleaseError(f"{code} is only a warning and holds nothing back; {reasons}")
        if not acceptable(suites, code):
            raise ReleaseError(
                f"{code} cannot be accepted: the volume is not what it says, or there is none. "
                f"What would release it: {_advice(report, code)}"
            )
        if code not in held and not again:
            raise ReleaseError(f"{code} was not found; {reasons}")
    if report.held_by == "ingestion" and not again:
        raise ReleaseError(
            f"{report.survey} was held back before it was converted ({', '.join(held)}): there is no volume to judge; "
            "give the mended survey spec with --spec, or put a mended file under incoming/"
        )


def _advice(report: QuarantineReport, code: str) -> str:
    found = next((finding.release for finding in report.findings if finding.code == code), "")
    return found or "deliver the survey again"


def _take_in_again(lake: Lake, report: QuarantineReport, spec: SurveySpec, progress: Progress) -> IngestResult:
    from ingestion.discover import sibling_uris
    from ingestion.ingest import ingest

    if not report.sources:
        raise ReleaseError(f"the report on {report.survey} names no files; put them under incoming/ with a usable name")
    uris = sibling_uris(report.sources[0], spec) if spec.files else report.sources
    try:
        return ingest(uris, lake, spec, name=_original_name(report), progress=progress)
    except FileNotFoundError as error:
        naming = "spec" if spec.files else "report"
        raise ReleaseError(
            f"{error}, though the {naming} names it; bring it back, or `survey ingest` it anew"
        ) from error


def _original_name(report: QuarantineReport) -> str:
    """What the survey was called before its name was made safe, so that it keeps its identifier."""
    names = (report.original_name, report.original_name.rpartition(".")[0], report.survey)
    return next(name for name in names if name and safe_identifier(name) == report.survey)


def _judge(lake: Lake, survey: str, digest: str, request: Request) -> ReleaseOutcome:
    from ingestion.quarantine import report_key
    from validation.checks import validate  # pandas
    from validation.data_docs import publish_index

    record_request(lake, survey, digest, request.codes, request.by, request.reason)
    verdict: Verdict = validate(lake, survey, digest)
    publish_index(lake)
    report = report_key(survey, digest) if verdict.status == "held" else None
    return _outcome(lake, survey, verdict.status, digest, verdict.findings, report)


def _outcome(
    lake: Lake,
    survey: str,
    status: Literal["passed", "held", "uploading"],
    digest: str | None,
    findings: list[Finding],
    report: str | None,
) -> ReleaseOutcome:
    page = None if report is None else lake.uri_of(f"{report.removesuffix('.json')}.html")
    return ReleaseOutcome(survey=survey, status=status, digest=digest, findings=findings, report=page)


def _remove(lake: Lake, report: QuarantineReport) -> None:
    """A report that was answered by another digest; the request and the verdict keep who and why."""
    from ingestion.manifest import quarantine_folder

    folder = quarantine_folder(report.survey, report.digest)
    lake.delete([f"{folder}/report.json", f"{folder}/report.html"])
