"""``survey propose`` and ``survey schema``: help to write a survey spec."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from ingestion.cli.common import JSON_HELP, SPEC_HELP, existing_lake, messages, progress_bar, spec_of
from ingestion.names import printable


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--spec", "spec_uri", metavar="YAML", help=SPEC_HELP)
@click.option("--output", metavar="YAML", help="Write the proposal there, not to the terminal.")
@click.option("--overwrite", is_flag=True, help="Write it even where --output is there already.")
@click.option("--lake", "lake_uri", metavar="URI", help="Name the CRS of published surveys that overlap.")
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def propose(
    files: tuple[str, ...],
    spec_uri: str | None,
    output: str | None,
    overwrite: bool,
    lake_uri: str | None,
    as_json: bool,
) -> None:
    """Propose a survey spec for FILE (all files of one survey, in order), with the evidence for every value.

    What a spec says that is there already stays, and what is missing in it is added. Applies nothing. Exit status 1
    when the survey would be held back even with the proposed spec.
    """
    from ingestion.catalog import surveys
    from ingestion.proposal.propose import as_yaml
    from ingestion.proposal.propose import propose as propose_spec
    from ingestion.source import SourceChangedError, open_source

    target = _target(output, overwrite)
    with messages(), progress_bar() as progress:
        published = surveys(existing_lake(lake_uri)) if lake_uri else []
        spec, uris, _ = spec_of(files[0], spec_uri)
        sources = [open_source(uri) for uri in (uris if spec.files else files)]
        names = [source.name for source in sources]
        if len(set(names)) < len(names):
            raise click.ClickException(
                f"two files have the same name among {printable(', '.join(names))}; expected all files of one survey, "
                "each once and with a name of its own"
            )
        total = sum(source.size for source in sources)
        read = 0

        def advance(count: int) -> None:
            nonlocal read
            read += count
            progress("reading", read, max(total, read))

        try:
            proposal = propose_spec(sources, advance, published, spec)
        except SourceChangedError as error:
            raise click.ClickException(f"the file changed while it was read: {error}; try again later") from error
        text = as_yaml(proposal, datetime.now(UTC).date())
        if target is not None:
            with target.open("w" if overwrite else "x", encoding="utf-8") as file:
                file.write(text)
    if as_json:
        click.echo(json.dumps(proposal.summary(), indent=2))
    elif target is None:
        click.echo(text, nl=False)
    if target is not None:
        click.echo(f"proposal written to {printable(str(target))}; read it, then ingest with --spec", err=True)
    sys.exit(0 if proposal.publishable else 1)


def _target(output: str | None, overwrite: bool) -> Path | None:
    if output is None:
        return None
    if "://" in output:
        raise click.ClickException("--output is a path on this machine; copy the spec beside the file yourself")
    target = Path(output)
    if not overwrite and target.exists():
        raise click.ClickException(f"{printable(output)} is there already; give another name, or --overwrite")
    if target.is_dir() or not target.parent.is_dir():
        raise click.ClickException(f"{printable(output)} is no file that can be written")
    return target


@click.command()
def schema() -> None:
    """JSON schema of the survey spec, so that an editor completes and checks it."""
    from ingestion.spec_yaml import schema_text

    click.echo(schema_text(), nl=False)
