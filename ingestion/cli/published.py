"""``survey list`` and ``survey show``: from manifests and quarantine reports alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ingestion.cli.common import JSON_HELP, LAKE_HELP, existing_lake, messages
from ingestion.spec import printable

if TYPE_CHECKING:
    from ingestion.manifest import Manifest


@click.command("list")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def list_surveys(lake_uri: str, as_json: bool) -> None:
    """Published surveys (newest version each), and what is held back."""
    from ingestion.catalog import surveys
    from ingestion.quarantine import reports

    with messages():
        lake = existing_lake(lake_uri)
        published, held = surveys(lake), reports(lake)
    newest = {manifest.survey: manifest.created for manifest in published}
    held = [r for r in held if r.survey not in newest or r.created > newest[r.survey]]
    if as_json:
        rows = [_row(manifest) for manifest in published]
        reasons = [report.model_dump(mode="json") for report in held]
        click.echo(json.dumps({"published": rows, "held": reasons}, indent=2))
        return
    for manifest in published:
        shape = " × ".join(map(str, manifest.shape))
        live = f"{manifest.live_share:.0%} live"
        click.echo(f"{manifest.survey:40} {manifest.digest[:12]}  {shape:>18}  {live:>9}  {manifest.domain}")
    for report in held:
        codes = ", ".join(f.code for f in report.findings if f.severity == "hold")
        click.echo(f"{report.survey:40} {report.digest[:12]}  held back: {codes}")
    if not published and not held:
        click.echo(
            f"nothing on {printable(lake.uri)} yet; `survey ingest FILE --lake {printable(lake_uri)}` changes that"
        )


@click.command()
@click.argument("name")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def show(name: str, lake_uri: str, as_json: bool) -> None:
    """The newest published version of survey NAME, or why it is held back."""
    from ingestion.catalog import digests
    from ingestion.console import echo_findings, echo_manifest
    from ingestion.quarantine import reports
    from ingestion.spec import safe_identifier

    with messages():
        lake = existing_lake(lake_uri)
        survey = safe_identifier(name)
        versions = digests(lake, survey)
        held = [report for report in reports(lake) if report.survey == survey]
        if not versions and not held:
            raise click.ClickException(
                f"no survey {printable(name)!r} on {printable(lake.uri)}; "
                f"`survey list --lake {printable(lake_uri)}` names them"
            )
    if as_json:
        newest = versions[-1].model_dump(mode="json") if versions else None
        click.echo(json.dumps({"manifest": newest, "held": [r.model_dump(mode="json") for r in held]}, indent=2))
        return
    if versions:
        echo_manifest(lake, versions[-1], len(versions))
    for report in held:
        click.echo(f"\nheld back by {report.held_by} on {report.created:%Y-%m-%d %H:%M} ({report.digest[:12]}):")
        echo_findings(report.findings, [])


def _row(manifest: Manifest) -> dict[str, object]:
    return {
        "survey": manifest.survey,
        "digest": manifest.digest,
        "created": manifest.created.isoformat(),
        "shape": manifest.shape,
        "live_share": manifest.live_share,
        "domain": manifest.domain,
    }
