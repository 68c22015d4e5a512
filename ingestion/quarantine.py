"""Why a survey was held back, and what would release it: ``report.html`` for people, ``report.json`` for programs.

Ingestion and validation both write here. The report is complete when ``report.json`` exists: it is written last.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError

from ingestion.lake import Lake, LakeError
from ingestion.manifest import Contract, Digest, Finding, SafeName, quarantine_folder
from ingestion.spec import printable


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
) -> str:
    """Write both reports and return the key of ``report.json``. ``pictures``: PNG bytes by caption."""
    report = QuarantineReport(
        survey=survey,
        digest=digest,
        original_name=survey if original_name is None else original_name,
        created=datetime.now(UTC),
        held_by=held_by,
        sources=list(sources),
        findings=list(findings),
    )
    page = _page(report, pictures or {})
    lake.write(f"{quarantine_folder(survey, digest)}/report.html", page.encode())
    lake.write(report_key(survey, digest), report.to_bytes())
    return report_key(survey, digest)


def load_report(lake: Lake, survey: str, digest: str) -> QuarantineReport:
    """The report on one held-back digest. Raises ``FileNotFoundError``, or ``LakeError`` when it is not readable."""
    key = report_key(survey, digest)
    try:
        return QuarantineReport.model_validate_json(lake.read(key))
    except ValidationError as error:
        raise LakeError(f"{lake.uri_of(key)} is no quarantine report that this version reads: {error}") from error


def reports(lake: Lake) -> list[QuarantineReport]:
    """All reports on the lake, by survey and age."""
    found = []
    for survey in lake.folders("quarantine"):
        for digest in lake.folders(f"quarantine/{survey}"):
            try:
                found.append(load_report(lake, survey, digest))
            except FileNotFoundError:  # a killed run left no report.json
                continue
    return sorted(found, key=lambda report: (report.survey, report.created))


_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b2733}
section{border-left:4px solid #b3261e;padding:.2rem 1rem;margin:1rem 0;background:#faf6f5}
section.warn{border-color:#b58900}
dt{font-weight:600}code{background:#eef1f4;padding:0 .3em}img{max-width:100%}"""


def _page(report: QuarantineReport, pictures: Mapping[str, bytes]) -> str:
    """One self-contained page; every value is escaped, since names and headers come from strangers."""
    held = [f for f in report.findings if f.severity == "hold"]
    warned = [f for f in report.findings if f.severity == "warn"]
    figures = [
        f'<figure><img alt="{_text(caption)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<figcaption>{_text(caption)}</figcaption></figure>"
        for caption, png in pictures.items()
    ]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
            "style-src 'unsafe-inline'\">",
            f"<title>Held back: {_text(report.original_name)}</title><style>{_STYLE}</style>",
            f"<h1>Held back: {_text(report.original_name)}</h1>",
            f"<p>By {report.held_by}, {report.created:%Y-%m-%d %H:%M} UTC. Survey <code>{report.survey}</code>, "
            f"digest <code>{report.digest[:12]}</code>. Files: {_text(', '.join(report.sources)) or 'none named'}.</p>",
            *map(_section, [*held, *warned]),
            *figures,
            "</html>\n",
        ]
    )


def _section(finding: Finding) -> str:
    rows = [("Found", finding.found), ("Expected", finding.expected), ("To release it", finding.release)]
    listed = "".join(f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in rows if value)
    examples = "".join(f"<li>{_text(example)}</li>" for example in finding.examples)
    return (
        f'<section class="{finding.severity}"><h2>{_text(finding.code)}</h2><dl>{listed}</dl>'
        f"{f'<ul>{examples}</ul>' if examples else ''}</section>"
    )


def _text(value: str) -> str:
    return html.escape(printable(value))
