"""``survey verify`` and ``survey export``: from published volumes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingestion.cli.common import (
    DIGEST_HELP,
    JSON_HELP,
    LAKE_HELP,
    digest_of,
    existing_lake,
    in_use,
    messages,
    no_survey,
    progress_bar,
)
from ingestion.names import printable

if TYPE_CHECKING:
    from ingestion.catalog import Version
    from ingestion.lake import Lake
    from ingestion.manifest import Manifest
    from ingestion.volume.verification import Condition


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--digest", metavar="DIGEST", help=f"{DIGEST_HELP} Default: the one in use.")
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def verify(names: tuple[str, ...], lake_uri: str, digest: str | None, as_json: bool) -> None:
    """Read every object of surveys again and compare it with the digest that it was published with.

    Without a NAME all surveys are read, each in the version in use. Finds bit rot, lost objects, lost manifests and
    objects that nobody published. Exit status 1 when there are any, or when a manifest cannot be read.
    """
    from ingestion.volume.verification import verify as verify_volume
    from ingestion.volume.verification import without_manifest

    if digest is not None and len(names) != 1:
        raise click.UsageError("--digest is a version of one survey; give its NAME, and no other")
    with messages(), progress_bar() as progress:
        lake = existing_lake(lake_uri)
        chosen = _named(lake, lake_uri, names, digest) if names else _all(lake)
        found = [verify_volume(lake, manifest, progress) for manifest in chosen.manifests]
        found += [without_manifest(*version) for version in chosen.lost]
    if as_json:
        click.echo(json.dumps([condition.model_dump() for condition in found], indent=2))
    else:
        for condition in found:
            _echo(condition)
    for fault in chosen.faults:
        click.echo(f"not verified: {printable(fault)}", err=True)
    sys.exit(0 if not chosen.faults and all(condition.whole for condition in found) else 1)


@click.command()
@click.argument("name")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--output", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Where to write.")
@click.option("--digest", metavar="DIGEST", help=f"{DIGEST_HELP} Default: the one in use.")
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


def _version(lake: Lake, lake_uri: str, name: str, beginning: str | None) -> Version:
    from ingestion.catalog import versions
    from ingestion.names import safe_identifier

    survey = safe_identifier(name)
    known = versions(lake, survey)
    if not known:
        raise no_survey(lake, lake_uri, name)
    if beginning is None:
        return in_use(known)[0]
    digest = digest_of(survey, [version.digest for version in known], beginning)
    return next(version for version in known if version.digest == digest)


@dataclass
class _Chosen:
    """What to verify, and what cannot be."""

    manifests: list[Manifest] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)  # survey and digest of versions without a manifest
    faults: list[str] = field(default_factory=list)  # why manifests cannot be read


def _named(lake: Lake, lake_uri: str, names: Sequence[str], beginning: str | None) -> _Chosen:
    """The version of each survey that is in use, or the one that begins so."""
    from ingestion.catalog import load_manifest, lost_manifests, versions
    from ingestion.names import safe_identifier

    chosen = _Chosen()
    for name in names:
        survey = safe_identifier(name)
        known, lost = versions(lake, survey), lost_manifests(lake, survey)
        if not known and not lost:
            raise no_survey(lake, lake_uri, name)
        if beginning is not None:
            meant = digest_of(survey, [*(version.digest for version in known), *lost], beginning)
            known, lost = [v for v in known if v.digest == meant], [digest for digest in lost if digest == meant]
        chosen.manifests += [load_manifest(lake, survey, in_use(known)[0].digest)] if known else []
        chosen.lost += [(survey, digest) for digest in lost]
    return chosen


def _all(lake: Lake) -> _Chosen:
    """The version in use of every survey that is not withdrawn."""
    from ingestion.catalog import each_survey, lost_manifests, newest_readable

    found = each_survey(lake, lambda _, known: newest_readable(lake, [v for v in known if v.withdrawal is None]))
    return _Chosen(
        [manifest for manifest, _ in found if manifest],
        [(survey, digest) for survey in lake.folders("surveys") for digest in lost_manifests(lake, survey)],
        [fault for _, faults in found for fault in faults.values()],
    )


def _echo(condition: Condition) -> None:
    from ingestion.manifest import manifest_key

    state = "whole" if condition.whole else "DAMAGED"
    count = "no manifest" if condition.manifest_lost else f"{condition.objects} objects"
    click.echo(f"{condition.survey:40} {condition.digest[:12]}  {count}, {state}")
    for what in ("lost", "changed", "unlisted"):
        for key in getattr(condition, what):
            click.echo(f"    {what}: {printable(key)}")
    if condition.manifest_lost:
        key = manifest_key(condition.survey, condition.digest)
        click.echo(f"    restore {key} from a copy of the lake, or ingest the survey again")
    elif not condition.whole:
        click.echo("    restore these objects from a copy of the lake, or delete the version's folder and ingest again")
