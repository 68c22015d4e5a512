"""``survey list`` and ``survey show``: from manifests, verdicts, withdrawals and quarantine reports alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ingestion.cli.common import JSON_HELP, LAKE_HELP, existing_lake, in_use, messages, no_survey, progress_bar
from ingestion.names import printable

if TYPE_CHECKING:
    from ingestion.catalog import Version
    from ingestion.lake import Lake


@click.command("list")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def list_surveys(lake_uri: str, as_json: bool) -> None:
    """Published surveys (the version in use of each), what is withdrawn, unreadable or held back."""
    from ingestion.catalog import each_survey
    from ingestion.quarantine import reports

    with messages(), progress_bar() as progress:
        lake = existing_lake(lake_uri)
        found = each_survey(
            lake, lambda _, versions: _row(lake, versions), lambda done, total: progress("surveys", done, total)
        )
        held = reports(lake)
    published = [row for row, _ in found if row is not None]
    unreadable = [fault for _, faults in found for fault in faults]
    since = {row["survey"]: row["created"] for row in published}
    held = [r for r in held if r.survey not in since or r.created.isoformat() > since[r.survey]]
    if as_json:
        reasons = [report.model_dump(mode="json") for report in held]
        click.echo(json.dumps({"published": published, "unreadable": unreadable, "held": reasons}, indent=2))
        return
    for row in published:
        click.echo(_line(row))
    for fault in unreadable:
        click.echo(f"{fault['survey']:40} {fault['digest'][:12]}  unreadable: {printable(fault['reason'])}")
    for report in held:
        codes = ", ".join(f.code for f in report.findings if f.severity == "hold")
        click.echo(f"{report.survey:40} {report.digest[:12]}  held back: {codes}")
    if not published and not held and not unreadable:
        click.echo(
            f"nothing on {printable(lake.uri)} yet; `survey ingest FILE --lake {printable(lake_uri)}` changes that"
        )


@click.command()
@click.argument("name")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def show(name: str, lake_uri: str, as_json: bool) -> None:
    """The version of survey NAME that is in use, all that there are, or why it is held back or withdrawn."""
    from ingestion.catalog import load_manifest, versions
    from ingestion.console import echo_findings, echo_manifest
    from ingestion.names import safe_identifier
    from ingestion.quarantine import reports

    with messages():
        lake = existing_lake(lake_uri)
        survey = safe_identifier(name)
        known = versions(lake, survey)
        held = [report for report in reports(lake) if report.survey == survey]
        if not known and not held:
            raise no_survey(lake, lake_uri, name)
        used = in_use(known)[:1]
        held = [report for report in held if not used or report.created > used[0].since]  # older ones are answered
        manifest = load_manifest(lake, survey, used[0].digest) if used else None
        rows = [_version(lake, version) for version in known]
    if as_json:
        facts = {
            "manifest": manifest.model_dump(mode="json") if manifest else None,
            "versions": rows,
            "held": [report.model_dump(mode="json") for report in held],
        }
        click.echo(json.dumps(facts, indent=2))
        return
    if manifest is not None:
        echo_manifest(lake, manifest, len(known))
        click.echo("\nversions, newest first")
    for row, version in zip(rows, known, strict=True):
        said = version.withdrawal.words() if version.withdrawal else row["verdict"]
        mark = "  (current)" if version == used[0] and version.withdrawal is None else ""
        click.echo(f"  {row['digest'][:12]}  {row['since'][:16]}  {said}{mark}")
    for report in held:
        click.echo(f"\nheld back by {report.held_by} on {report.created:%Y-%m-%d %H:%M} ({report.digest[:12]}):")
        echo_findings(report.findings, report.notes)


def _row(lake: Lake, versions: list[Version]) -> tuple[dict[str, Any] | None, list[dict[str, str]]]:
    """One published survey, and its versions that should come before but cannot be read."""
    from ingestion.catalog import newest_readable

    manifest, faults = newest_readable(lake, in_use(versions))
    survey = versions[0].survey
    unreadable = [{"survey": survey, "digest": digest, "reason": reason} for digest, reason in faults.items()]
    if manifest is None:
        return None, unreadable
    version = next(each for each in versions if each.digest == manifest.digest)
    row = {
        "survey": survey,
        "digest": manifest.digest,
        "created": manifest.created.isoformat(),
        "shape": manifest.shape,
        "live_share": manifest.live_share,
        "domain": manifest.domain,
        "bytes": sum(key.size for key in manifest.volume.keys.values()),
        "versions": len(versions),
        "verdict": _verdict(lake, version),
        "withdrawn": version.withdrawal.model_dump(mode="json") if version.withdrawal else None,
    }
    return row, unreadable


def _line(row: dict[str, Any]) -> str:
    shape = " × ".join(map(str, row["shape"]))
    state = "withdrawn" if row["withdrawn"] else row["verdict"]
    count = f"{row['versions']} version{'s' if row['versions'] > 1 else ''}"
    size = f"{row['bytes'] / 1e6:,.1f} MB"
    return (
        f"{row['survey']:40} {row['digest'][:12]}  {shape:>18}  {row['live_share']:>4.0%} live  {row['domain']:5}  "
        f"{size:>12}  {count:>10}  {state}"
    )


def _version(lake: Lake, version: Version) -> dict[str, Any]:
    return {
        "digest": version.digest,
        "since": version.since.isoformat(),
        "verdict": _verdict(lake, version),
        "withdrawn": version.withdrawal.model_dump(mode="json") if version.withdrawal else None,
    }


def _verdict(lake: Lake, version: Version) -> str:
    """``passed``, ``held`` or ``not validated``."""
    from pydantic import ValidationError

    from ingestion.manifest import Verdict, verdict_key

    try:
        return Verdict.model_validate_json(lake.read(verdict_key(version.survey, version.digest))).status
    except (FileNotFoundError, ValidationError):
        return "not validated"
