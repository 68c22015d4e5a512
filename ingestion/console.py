"""What the ``survey`` command prints. Everything that comes from a file is made printable first."""

from __future__ import annotations

import click

from ingestion.ingest import IngestResult
from ingestion.lake import Lake
from ingestion.manifest import Axis, Finding, Manifest
from ingestion.names import printable
from ingestion.preflight.geometry import handedness
from ingestion.preflight.inspection import Inspection


def echo_inspection(found: Inspection) -> None:
    """What ``survey inspect`` found."""
    facts: dict[str, str | None] = {
        "file": ", ".join(source.uri for source in found.sources),
        "would be": "held" if found.held else "published",
    }
    if found.layouts:
        first = found.layouts[0]
        facts["format"] = f"{first.source_format}, revision {first.revision[0]}.{first.revision[1]}"
    if found.traces is not None and found.state is not None:
        facts["traces"] = f"{len(found.traces)}, {found.state.live.sum()} live"
    if found.grid is not None:
        facts |= {"inlines": axis(found.grid.inline), "crosslines": axis(found.grid.crossline)}
    if found.axis is not None:
        facts["samples"] = axis(found.axis)
    limits = found.amplitude_range()
    if limits is not None:
        facts["amplitudes"] = f"{limits[0]:g} to {limits[1]:g}"
    if found.geometry is not None:
        place = found.geometry
        facts["corner"] = _pair(place.origin, 10)
        facts["inline step"] = _pair(place.inline_vector, 6)
        facts["crossline step"] = f"{_pair(place.crossline_vector, 6)}, {handedness(place)}-handed"
        facts["off the grid"] = f"at most {place.residual_max:.3g}"
    echo_table(facts)
    echo_findings(found.findings, found.notes)


def axis(values: Axis) -> str:
    """``75: 4 to 300 step 4 ms``."""
    return f"{values.count}: {values.first:g} to {values.values()[-1]:g} step {values.step:g} {values.unit}"


def echo_table(rows: dict[str, str | None]) -> None:
    """Name and value of every row that has one."""
    for name, value in rows.items():
        if value is not None:
            click.echo(f"{name:15} {printable(value)}")


def echo_findings(findings: list[Finding], notes: list[str]) -> None:
    """All findings with what would release them, then the notes."""
    for finding in findings:
        click.echo(f"\n{'HELD BACK' if finding.severity == 'hold' else 'warning'}: {finding.code}")
        echo_table({"  found": finding.found, "  expected": finding.expected or None})
        echo_table({"  to release it": finding.release or None})
        for example in finding.examples:
            click.echo(f"    {printable(example)}")
    if notes:
        click.echo("\nnotes")
    for note in notes:
        click.echo(f"  {printable(note)}")


def echo_result(lake: Lake, result: IngestResult) -> None:
    """What became of a survey, and where it lies now."""
    click.echo(f"{result.survey}: {result.status}")
    echo_findings(result.findings, result.manifest.notes if result.manifest and result.status == "published" else [])
    if result.report_key is not None:
        click.echo(f"\nreport: {printable(lake.uri_of(result.report_key.removesuffix('.json') + '.html'))}")
    if result.manifest is not None:
        click.echo(f"volume: {printable(lake.uri_of(f'{result.manifest.folder}/{result.manifest.volume.path}'))}")


def echo_manifest(lake: Lake, manifest: Manifest, versions: int) -> None:
    """One published version."""
    facts = manifest.statistics
    echo_table(
        {
            "survey": manifest.survey,
            "digest": manifest.digest,
            "versions": str(versions),
            "published": f"{manifest.created:%Y-%m-%d %H:%M} UTC",
            "files": ", ".join(source.original_name for source in manifest.sources),
            "format": manifest.source_format,
            "inlines": axis(manifest.inline),
            "crosslines": axis(manifest.crossline),
            "samples": axis(manifest.sample),
            "live": f"{manifest.live_traces} traces, {manifest.live_share:.1%}",
            "amplitudes": f"{facts.minimum:g} to {facts.maximum:g}, mean {facts.mean:g}, std {facts.std:g}",
            "normalisation": f"centre {manifest.normalisation.centre:g}, scale {manifest.normalisation.scale:g}",
            "CRS": manifest.geometry.crs or "unknown",
            "licence": manifest.licence or "not said",
            "volume": lake.uri_of(f"{manifest.folder}/{manifest.volume.path}"),
        }
    )
    echo_findings([], manifest.notes)


def _pair(point: tuple[float, float], digits: int) -> str:
    return f"({point[0]:.{digits}g}, {point[1]:.{digits}g})"
