"""Data Docs: Great Expectations' pages on every validated survey, on the lake and in a folder to open offline."""

from __future__ import annotations

import html
import re
import tempfile
from pathlib import Path

from ingestion.catalog import digests
from ingestion.lake import Lake
from ingestion.manifest import Manifest, Verdict, quarantine_folder
from ingestion.names import printable
from validation.expectations import Session, run_name
from validation.verdict import load_verdict

FOLDER = "datadocs"

_CUT = re.compile(
    r"<script\b.*?</script>"  # the pages read well without
    r"|<(?:link|img)\b[^>]*?(?:href|src)=\"(?:https?://|[./]*static/)[^>]*>"
    r"|url\('?https?://[^)]*\)"
    r"|<p>[^<]*newsletter.*?</p>"
    r"|Data asset: None<br>"
    r"|\d{8}T\d{6}\.\d{6}Z"  # when a data frame was loaded: the same check gives the same page
    r"|(?<=collapse-body)-[0-9a-f-]{36}",
    re.DOTALL,
)
_STYLE = """<style>
:root{--ink:#1b2733;--soft:#5b6875;--line:#d7dde3;--stop:#b3261e;--good:#1a7f37;--care:#9a6b00}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:0 auto;padding:1rem 1.5rem;color:var(--ink)}
h1{font-size:1.6rem;margin:.2rem 0}h4{font-size:1.3rem;margin:.4rem 0}
h5{font-size:1.1rem;margin:1.4rem 0 .3rem}h6,.h6{font-size:.95rem;margin:.6rem 0 .2rem;font-weight:600}
table{border-collapse:collapse;margin:.5rem 0}
td,th{border:1px solid var(--line);padding:.3rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}
.index td:nth-child(2){white-space:nowrap}.index td:nth-child(1),.index td:nth-child(4){min-width:13rem}
th{background:#f3f6f8;white-space:nowrap}a{color:#0b5cad}hr{display:none}ul,ol{padding-left:1.2rem}
nav.sticky-top{height:auto!important;border-bottom:1px solid var(--line);margin-bottom:1rem}
.breadcrumb{list-style:none;padding:0;margin:.2rem 0}.breadcrumb li{display:inline}
.breadcrumb li+li:before{content:" / ";color:var(--soft)}
.container-fluid>.row{display:grid;grid-template-columns:15rem 1fr;gap:2rem}
.ge-section .row{display:block}.ge-navigation-sidebar-content{list-style:none;padding:0}
.lead,.summary{color:var(--soft)}
.card-header{color:var(--soft)}.btn-group,.modal,.card:has(.btn-group),p:has(>[data-toggle=collapse]),
#section-1 [id$=collapse-body]{display:none}
.held{color:var(--stop);font-weight:600}.passed{color:var(--good);font-weight:600}.warn{color:var(--care)}
.fa-times:before{content:"✗";color:var(--stop)}.fa-check-circle:before{content:"✓";color:var(--good)}
.fa-exclamation-triangle:before{content:"!";color:var(--care)}
@media(max-width:50rem){.container-fluid>.row{grid-template-columns:1fr}.index{display:block;overflow-x:auto}}</style>"""


def publish_pages(lake: Lake, session: Session) -> None:
    """Put the pages of one survey's checks on the lake, beside those of all others.

    The pages come with scripts, fonts and styles from other hosts; they are cut off, so that a page opens without a
    network and nothing in it can run.
    """
    with tempfile.TemporaryDirectory() as folder:
        session.write_pages(Path(folder))
        for page in sorted(Path(folder).rglob("*.html")):
            key = page.relative_to(folder).as_posix()
            if key != "index.html":
                lake.write(f"{FOLDER}/{key}", _self_contained(page.read_text()).encode())


def publish_index(lake: Lake) -> None:
    """Renew ``datadocs/index.html`` over every validated survey: a few reads for each, so not after each survey."""
    pages = sorted(entry.key.removeprefix(f"{FOLDER}/") for entry in lake.objects(FOLDER))
    lake.write(f"{FOLDER}/index.html", _index(lake, pages).encode())


def data_docs(lake: Lake, folder: Path) -> Path:
    """Copy all pages on the lake into ``folder`` with a new index; the path of the index."""
    publish_index(lake)
    for entry in lake.objects(FOLDER):
        target = folder / entry.key.removeprefix(f"{FOLDER}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(lake.read(entry.key))
    return folder / "index.html"


def _self_contained(page: str) -> str:
    return _CUT.sub("", page).replace("</head>", f"{_STYLE}</head>", 1)


def _index(lake: Lake, pages: list[str]) -> str:
    rows, held = [], 0
    for survey in lake.folders("surveys"):
        for manifest in digests(lake, survey):
            verdict = load_verdict(lake, survey, manifest.digest)
            if verdict is not None:
                rows.append(_row(lake, manifest, verdict, pages))
                held += verdict.status == "held"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Data Docs</title>{_STYLE}</head>",
            f'<h1>Data Docs</h1><p class="summary">{html.escape(lake.uri)}: {len(rows)} surveys were converted '
            f"and validated, {held} of them are held back. What could not be converted is under quarantine/.</p>",
            '<table class="index"><tr><th>Survey</th><th>Verdict</th><th>Findings</th><th>What was checked</th></tr>',
            *rows,
            "</table></html>\n",
        ]
    )


def _row(lake: Lake, manifest: Manifest, verdict: Verdict, pages: list[str]) -> str:
    links = [
        f'<a href="{html.escape(page)}">{html.escape(page.split("/")[1])}</a>'
        for page in pages
        if page.startswith("validations/") and page.split("/")[2] == run_name(manifest)
    ]
    said = [
        f'<span class="{"held" if finding.severity == "hold" else "warn"}">{html.escape(finding.code)}</span> '
        f"({finding.severity}): {html.escape(finding.found)}"
        for finding in verdict.findings
    ]
    if verdict.status == "held":
        report = f"{quarantine_folder(manifest.survey, manifest.digest)}/report.html"
        said.append(f"what would release it: {html.escape(lake.uri_of(report))}")
    return (
        f"<tr><td>{html.escape(printable(manifest.sources[0].original_name))}<br>"
        f'<span class="summary">{manifest.survey} · {manifest.digest[:12]}</span></td>'
        f'<td><span class="{verdict.status}">{verdict.status}</span><br>'
        f'<span class="summary">{verdict.created:%Y-%m-%d}</span></td>'
        f"<td>{'<br>'.join(said) or 'none'}</td><td>{' · '.join(links)}</td></tr>"
    )
