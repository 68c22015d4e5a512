"""Data Docs: Great Expectations' pages on every validated survey, on the lake and in a folder to open offline."""

from __future__ import annotations

import html
import re
import tempfile
from pathlib import Path

from ingestion.catalog import digests
from ingestion.lake import Lake
from ingestion.manifest import Manifest, Verdict
from ingestion.spec import printable
from validation.expectations import Session, run_name
from validation.verdict import load_verdict

FOLDER = "datadocs"

_CUT = re.compile(
    r"<script\b.*?</script>"  # the pages read well without
    r"|<(?:link|img)\b[^>]*?(?:href|src)=\"https?://[^>]*>"
    r"|url\('?https?://[^)]*\)"
    r"|<p>[^<]*newsletter.*?</p>"
    r"|\d{8}T\d{6}\.\d{6}Z"  # when a data frame was loaded: the same check gives the same page
    r"|(?<=collapse-body)-[0-9a-f-]{36}",
    re.DOTALL,
)
_STYLE = """<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:1rem auto;padding:0 1rem;color:#1b2733}
table{border-collapse:collapse;margin:.5rem 0}td,th{border:1px solid #ccd4db;padding:.3rem .6rem;text-align:left;
vertical-align:top}ul,ol{padding-left:1.2rem}nav ol{list-style:none}a{color:#0b5cad}.btn-group,.modal{display:none}
.held{color:#b3261e;font-weight:600}.passed{color:#1a7f37;font-weight:600}.fa-times:before{content:"✗";color:#b3261e}
.fa-check-circle:before{content:"✓";color:#1a7f37}.fa-exclamation-triangle:before{content:"!";color:#b58900}</style>"""


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


def data_docs(lake: Lake, folder: Path) -> Path:
    """Copy all pages on the lake into ``folder`` with an index over every validated survey; the path of the index."""
    pages = sorted(entry.key for entry in lake.objects(FOLDER))
    for key in pages:
        target = folder / key.removeprefix(f"{FOLDER}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(lake.read(key))
    index = folder / "index.html"
    index.write_text(_index(lake, [key.removeprefix(f"{FOLDER}/") for key in pages]))
    return index


def _self_contained(page: str) -> str:
    return _CUT.sub("", page).replace("</head>", f"{_STYLE}</head>", 1)


def _index(lake: Lake, pages: list[str]) -> str:
    rows = []
    for survey in lake.folders("surveys"):
        for manifest in digests(lake, survey):
            verdict = load_verdict(lake, survey, manifest.digest)
            if verdict is not None:
                rows.append(_row(manifest, verdict, pages))
    return "\n".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Data Docs</title>{_STYLE}</head>',
            f"<h1>Data Docs</h1><p>{html.escape(lake.uri)}: {len(rows)} validated surveys.</p>",
            "<table><tr><th>Survey</th><th>Digest</th><th>Verdict</th><th>Findings</th><th>Results</th></tr>",
            *rows,
            "</table></html>\n",
        ]
    )


def _row(manifest: Manifest, verdict: Verdict, pages: list[str]) -> str:
    name = run_name(manifest)
    links = [
        f'<a href="{html.escape(page)}">{html.escape(page.split("/")[1])}</a>'
        for page in pages
        if page.startswith("validations/") and page.split("/")[2] == name
    ]
    codes = ", ".join(f"{finding.code} ({finding.severity})" for finding in verdict.findings) or "none"
    return (
        f"<tr><td>{html.escape(printable(manifest.sources[0].original_name))}</td><td>{manifest.digest[:12]}</td>"
        f'<td class="{verdict.status}">{verdict.status}</td><td>{html.escape(codes)}</td>'
        f"<td>{' '.join(links)}</td></tr>"
    )
