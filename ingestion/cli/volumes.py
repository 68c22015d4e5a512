"""``survey verify`` and ``survey export``: from published volumes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingestion.cli.common import JSON_HELP, LAKE_HELP, existing_lake, messages, no_survey, progress_bar
from ingestion.names import printable

if TYPE_CHECKING:
    from ingestion.catalog import Version
    from ingestion.lake import Lake
    from ingestion.manifest import Manifest
    from ingestion.volume.verification import Condition

DIGEST_HELP = "Version of the survey, or the first digits of it. Default: the one in use."


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def verify(names: tuple[str, ...], lake_uri: str, as_json: bool) -> None:
    """Read every object of surveys again and compare it with the digest that it was published with.

    Without a NAME all surveys are read, each in the version in use. Finds bit rot, lost objects and objects that
    nobody published. Exit status 1 when there are any, or when a manifest cannot be read.
    """
    from ingestion.volume.verification import verify as verify_volume

    with messages(), progress_bar() as progress:
        lake = existing_lake(lake_uri)
        named = [_manifest(lake, lake_uri, name) for name in names]
        chosen, faults = (named, []) if names else _in_use(lake)
        found = [verify_volume(lake, manifest, progress) for manifest in chosen]
    if as_json:
        click.echo(json.dumps([condition.model_dump() for condition in found], indent=2))
    else:
        for condition in found:
            _echo(condition)
    for fault in faults:
        click.echo(f"not verified: {printable(fault)}", err=True)
    sys.exit(0 if not faults and all(condition.whole for condition in found) else 1)


@click.command()
@click.argument("name")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--output", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Where to write.")
@click.option("--digest", metavar="DIGITS", help=DIGEST_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def export(name: str, lake_uri: str, output: Path, digest: str | None, as_json: bool) -> None:
    """Write survey NAME as the SEG-Y files that it came from.

    Nothing is overwritten. A file that is not the same as its source is said: samples of dead traces, traces that
    the spec dropped or averaged, and numbers that are not normalised are written otherwise.
    """
    from ingestion.catalog import load_manifest
    from ingestion.volume.export import export as export_files

    with messages(), progress_bar() as progress:
        lake = existing_lake(lake_uri)
        version = _version(lake, lake_uri, name, digest)
        if version.withdrawal is not None:
            raise click.ClickException(
                f"survey {version.survey} was withdrawn by {printable(version.withdrawal.by)}: "
                f"{printable(version.withdrawal.reason)}; `survey restore` ends that"
            )
        files = export_files(lake, load_manifest(lake, version.survey, version.digest), output, progress)
    if as_json:
        click.echo(json.dumps([file.model_dump() for file in files], indent=2))
        return
    for file in files:
        same = "the same bytes as its source" if file.same_as_source else "not byte for byte its source"
        click.echo(f"{printable(file.path)}: {file.size} bytes, {same}")


def _version(lake: Lake, lake_uri: str, name: str, digits: str | None) -> Version:
    from ingestion.catalog import versions
    from ingestion.names import safe_identifier

    for version in versions(lake, safe_identifier(name)):
        if version.digest.startswith(digits or ""):
            return version
    wanted = repr(printable(name)) + (f" with digest {printable(digits)}" if digits else "")
    raise no_survey(lake, lake_uri, wanted)


def _in_use(lake: Lake) -> tuple[list[Manifest], list[str]]:
    """The manifest of every survey that is not withdrawn, and why others cannot be read."""
    from ingestion.catalog import each_survey, newest_readable

    found = each_survey(lake, lambda _, known: newest_readable(lake, [v for v in known if v.withdrawal is None]))
    return [manifest for manifest, _ in found if manifest], [fault for _, each in found for fault in each.values()]


def _manifest(lake: Lake, lake_uri: str, name: str) -> Manifest:
    from ingestion.catalog import load_manifest

    version = _version(lake, lake_uri, name, None)
    return load_manifest(lake, version.survey, version.digest)


def _echo(condition: Condition) -> None:
    state = "whole" if condition.whole else "DAMAGED"
    click.echo(f"{condition.survey:40} {condition.digest[:12]}  {condition.objects} objects, {state}")
    for what in ("lost", "changed", "unlisted"):
        for key in getattr(condition, what):
            click.echo(f"    {what}: {printable(key)}")
    if not condition.whole:
        click.echo("    restore these objects from a copy of the lake, or delete the version's folder and ingest again")
