"""The quarantine report as one page that opens anywhere: what to do first, then why, then pictures.

Every value is escaped, since names and headers come from strangers.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ingestion.manifest import Finding
from ingestion.names import printable

if TYPE_CHECKING:
    from ingestion.quarantine import QuarantineReport

_STYLE = """:root{--ink:#1b2733;--soft:#5b6875;--line:#d7dde3;--stop:#b3261e;--care:#9a6b00}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:0 auto;padding:1.5rem;color:var(--ink)}
h1{font-size:1.7rem;margin:0}h2{font-size:1.2rem;margin:2rem 0 .6rem}h3{font-size:1rem;margin:0}
.stop{display:inline-block;background:var(--stop);color:#fff;font-weight:600;padding:.1rem .6rem;border-radius:.3rem}
.meta{color:var(--soft);font-size:.9rem;margin:.4rem 0 1.2rem;overflow-wrap:anywhere}
.do{background:#eef4fb;border:1px solid #c4d7ec;border-radius:.5rem;padding:.8rem 1.2rem 1rem}
.do h2{margin:.2rem 0 .4rem}
.do li{margin:.3rem 0}.do p{margin:.7rem 0 .2rem}
pre{background:#1b2733;color:#f4f7fa;padding:.6rem .9rem;border-radius:.3rem;white-space:pre-wrap;
overflow-wrap:anywhere;margin:.2rem 0;font-size:.85rem}pre span{display:inline-block}
code{background:#eef1f4;padding:0 .3em;border-radius:.2em;font-size:.9em}
section{border:1px solid var(--line);border-left:5px solid var(--stop);border-radius:.3rem;
padding:.6rem 1rem;margin:.7rem 0}
section.warn{border-left-color:var(--care)}
dl{display:grid;grid-template-columns:9rem 1fr;gap:.2rem 1rem;margin:.4rem 0 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.figures{display:grid;grid-template-columns:1fr 1fr;gap:1rem}
figure{margin:0;border:1px solid var(--line);border-radius:.3rem;
padding:.5rem}img{width:100%;display:block}figcaption{color:var(--soft);font-size:.9rem;text-align:center}
@media(max-width:45rem){.figures,dl{grid-template-columns:1fr}}"""


def page(report: QuarantineReport, pictures: Mapping[str, bytes]) -> str:
    """The report as HTML. ``pictures``: PNG bytes by caption."""
    held = [f for f in report.findings if f.severity == "hold"]
    warned = [f for f in report.findings if f.severity == "warn"]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
            "style-src 'unsafe-inline'\">",
            f"<title>Held back: {_text(report.original_name)}</title><style>{_STYLE}</style>",
            *_head(report),
            *_to_do(report, held),
            f"<h2>Why it is held back ({len(held)})</h2>",
            *map(_section, held),
            *([f"<h2>Warnings ({len(warned)}), which hold nothing back</h2>"] if warned else []),
            *map(_section, warned),
            *_notes(report.notes),
            *_figures(pictures),
            "</html>\n",
        ]
    )


def _head(report: QuarantineReport) -> list[str]:
    files = ", ".join(report.sources) or "none named"
    stage = {
        "ingestion": "Before it was converted: nothing of it is published",
        "validation": "After it was converted: the volume is on the lake, but no data set takes it",
    }[report.held_by]
    return [
        f'<p><span class="stop">HELD BACK</span></p><h1>{_text(report.original_name)}</h1>',
        f'<p class="meta">{stage}.<br>{report.created:%Y-%m-%d %H:%M} UTC · survey <code>{report.survey}</code> · '
        f"digest <code>{report.digest[:12]}</code><br>from {_text(files)}</p>",
    ]


def _to_do(report: QuarantineReport, held: Sequence[Finding]) -> list[str]:
    steps = "".join(f"<li>{_marked(finding.release)}</li>" for finding in held if finding.release)
    ways = "".join(f"<p>{_marked(way.when)}</p><pre>{_unbroken(way.command)}</pre>" for way in report.ways)
    return ['<div class="do"><h2>What to do</h2>', f"<ol>{steps}</ol>" if steps else "", ways, "</div>"]


def _unbroken(command: str) -> str:
    """A command whose lines break between its options only; copied, it is the same."""
    return " ".join(f"<span>{part}</span>" for part in re.split(" (?=--)", _text(command)))


def _section(finding: Finding) -> str:
    rows = [("Found", finding.found), ("Expected", finding.expected), ("To release it", finding.release)]
    listed = "".join(f"<dt>{name}</dt><dd>{_marked(value)}</dd>" for name, value in rows if value)
    if finding.examples:
        listed += f"<dt>First places</dt><dd>{'<br>'.join(map(_text, finding.examples))}</dd>"
    return f'<section class="{finding.severity}"><h3>{_text(finding.code)}</h3><dl>{listed}</dl></section>'


def _notes(notes: Sequence[str]) -> list[str]:
    listed = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return ["<h2>How the file was read</h2>", f"<ul>{listed}</ul>"] if notes else []


def _figures(pictures: Mapping[str, bytes]) -> list[str]:
    figures = [
        f'<figure><img alt="{_text(caption)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<figcaption>{_text(caption)}</figcaption></figure>"
        for caption, png in pictures.items()
    ]
    return ["<h2>What it looks like</h2>", f'<div class="figures">{"".join(figures)}</div>'] if figures else []


def _text(value: str) -> str:
    return html.escape(printable(value))


def _marked(value: str) -> str:
    """Escaped, with `words` between backticks as code."""
    parts = _text(value).split("`")
    if len(parts) % 2 == 0:  # a backtick of the survey's own
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
