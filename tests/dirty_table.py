"""docs/dirty-input.md from the matrix; ``python tests/dirty_table.py`` writes it, and a test holds it to the matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from clean_kinds import CLEAN
from dirty_kinds import HELD, Kind

PAGE = Path(__file__).parents[1] / "docs" / "dirty-input.md"
REMEDIES = {  # by reason code, where the table names no spec
    "all-zero": "upload real data",
    "amplitude-overflow": "`sample_format`, when that is wrong; else `non_finite: dead`",
    "auxiliary-traces": "`drop_traces` with the numbers in the report",
    "bin-size-implausible": "`coordinate_scalar`, or `coordinate_unit` when the bins are right; a data set takes bins "
    "of 2 to 200 only, or what a person accepts (`policy-bin-short`, `policy-bin-long`)",
    "byte-order-mixed": "have the file written in one byte order",
    "clipped": "nothing, it is a warning",
    "constant-amplitude": "upload real data",
    "coordinates-degenerate": "`cdp_x_byte`, `cdp_y_byte` where the coordinates are, or mended headers",
    "coordinates-elsewhere": "`cdp_x_byte: 73` and `cdp_y_byte: 77`",
    "coordinates-geographic": "have the coordinates projected",
    "coordinates-misfit": "`drop_traces` with the numbers in the report, `coordinate_scalar`, or mended headers",
    "crossline-off-step": "`drop_traces` with the numbers in the report",
    "data-trailer-unknown": "have the file written with the number of its trailer stanzas",
    "delay-differs": "have the traces shifted to one start, or `first_sample` when the headers are wrong",
    "domain-unclear": "`domain: depth` or `domain: time`",
    "drop-traces-unknown": "mend `drop_traces`",
    "duplicate-traces": "`duplicates: first`, `last` or `mean`, or one file for each volume",
    "extended-headers-invalid": "`first_trace_byte`, or a correct count in bytes 3505-3506",
    "extended-trace-headers": "have the file written without trace header extensions",
    "file-empty": "upload the file again",
    "files-differ": "list only files that belong together under `files`",
    "grid-sparse": "`inline_byte` and `crossline_byte`, or one file for each area",
    "inline-off-step": "`drop_traces` with the numbers in the report",
    "implausible-amplitudes": "the true `sample_format` (the declared one when it is right)",
    "known-under-another-name": "the `name` of the survey that has the same bytes",
    "lines-are-coordinates": "the four bytes in the report",
    "name-given-twice": "a `name` in each spec",
    "name-unusable": "rename the file",
    "no-3d-grid": "`inline_byte` and `crossline_byte`, where other bytes hold them; 2D lines are not taken in",
    "no-live-traces": "upload the survey with its data",
    "no-traces": "upload the file with its traces",
    "non-finite-samples": "`non_finite: dead`, or a mended file",
    "not-segy": "upload the SEG-Y file itself, whole and unpacked",
    "older-version": "nothing, it is a warning; `survey restore` brings the version back",
    "prestack": "upload its stack",
    "sample-count-differs": "`samples_per_trace` when the headers are wrong; else traces of one length",
    "sample-count-missing": "`samples_per_trace`",
    "sample-format-mismatch": "`sample_format`, as proposed in the report",
    "sample-format-unknown": "`sample_format` and `endianness`",
    "sample-format-unsupported": "have the file written as IEEE float32",
    "sample-interval-conflict": "`sample_interval`",
    "sample-interval-differs": "`sample_interval`, when the headers are wrong",
    "sample-interval-implausible": "`sample_interval`",
    "sample-interval-missing": "`sample_interval`",
    "samples-rounded": "nothing, it is a warning",
    "spec-invalid": "mend the spec",
    "still-uploading": "nothing, the next run takes it in",
    "times-scalar-unknown": "`first_sample`",
    "trace-too-long": "have the file written with shorter traces",
    "truncated": "upload the whole file; `samples_per_trace` or `first_trace_byte` when the headers are wrong",
    "withdrawn": "`survey restore`, when it may be used again",
    "wild-crossline": "`drop_traces` with the numbers in the report",
    "wild-inline": "`drop_traces` with the numbers in the report",
}
HEAD = """# Dirty input

What becomes of every kind of input that the tests make, in both byte orders and several revisions and formats.
`make proof` takes all of them in and compares every sample; this page is written by `python tests/dirty_table.py`.
A survey that is held back is released by a line in its survey spec or by a better file, never by a change of the code.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Held back\n", _table(HELD), "## Published\n", _table(CLEAN), "## Reason codes\n"]
    codes = [f"| `{code}` | {REMEDIES[code]} |\n" for code in sorted(REMEDIES)]
    return "\n".join([*parts, "| code | what releases it |\n|---|---|\n" + "".join(codes)])


def _table(kinds: dict[str, Kind]) -> str:
    head = "| kind | outcome | reason code | what releases it |\n|---|---|---|---|\n"
    return head + "".join(
        f"| {name} | {_outcome(kind)} | {_codes(kind)} | {_release(kind)} |\n" for name, kind in kinds.items()
    )


def _outcome(kind: Kind) -> str:
    if kind.outcome == "held":
        return "held back"
    if kind.outcome == "uploading":
        return "left for the next run"
    return "published with a warning" if kind.codes else "published"


def _codes(kind: Kind) -> str:
    return ", ".join(f"`{code}`" for code in kind.codes)


def _release(kind: Kind) -> str:
    if kind.outcome == "published":
        return f"spec: {_lines(kind.spec)}" if kind.spec else ""
    if kind.release is not None:
        return _lines(kind.release)
    return "; ".join(dict.fromkeys(REMEDIES[code] for code in kind.codes))


def _lines(spec: dict[str, Any]) -> str:
    return " and ".join(
        f"`{yaml.safe_dump({name: value}, default_flow_style=None).strip()}`" for name, value in spec.items()
    )


if __name__ == "__main__":
    PAGE.write_text(page())
