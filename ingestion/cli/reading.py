"""``survey inspect`` and ``survey ingest``: from SEG-Y files."""

from __future__ import annotations

import json
import sys

import click

from ingestion.cli.common import JSON_HELP, LAKE_HELP, SPEC_HELP, messages, progress_bar, spec_of


@click.command()
@click.argument("file")
@click.option("--spec", "spec_uri", metavar="YAML", help=SPEC_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def inspect(file: str, spec_uri: str | None, as_json: bool) -> None:
    """Geometry, axes, formats and ranges of FILE, and what would hold it back. Writes nothing.

    Exit status 1 when it would be held back.
    """
    from ingestion.console import echo_inspection
    from ingestion.preflight.inspection import inspect as inspect_sources
    from ingestion.source import SourceChangedError, open_source

    with messages(), progress_bar() as progress:
        spec, uris, _ = spec_of(file, spec_uri)
        sources = [open_source(uri) for uri in uris]
        total = sum(source.size for source in sources)
        read = 0

        def advance(count: int) -> None:
            nonlocal read
            read += count
            progress("reading", read, total)

        try:
            found = inspect_sources(sources, spec, advance)
        except SourceChangedError as error:
            raise click.ClickException(f"the file changed while it was read: {error}; try again later") from error
    if as_json:
        click.echo(json.dumps(found.summary(), indent=2))
    else:
        echo_inspection(found)
    sys.exit(1 if found.held else 0)


@click.command()
@click.argument("file")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--spec", "spec_uri", metavar="YAML", help=SPEC_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def ingest(file: str, lake_uri: str, spec_uri: str | None, as_json: bool) -> None:
    """Convert FILE to MDIO, verify every sample, publish it on the lake; or hold it back with the reasons.

    The same input twice changes nothing. Exit status 1 when the survey is held back.
    """
    from ingestion.console import echo_result
    from ingestion.ingest import ingest as ingest_sources
    from ingestion.lake import Lake

    with messages(), progress_bar() as progress:
        spec, uris, name = spec_of(file, spec_uri)
        lake = Lake(lake_uri)
        lake.check()
        result = ingest_sources(uris, lake, spec, name=name, progress=progress)
    if as_json:
        click.echo(result.model_dump_json(indent=2))
    else:
        echo_result(lake, result)
    sys.exit(0 if result.status in ("published", "unchanged") else 1)
