"""``survey propose`` and ``survey schema``: help to write a survey spec."""

from __future__ import annotations

import click


@click.command()
def schema() -> None:
    """JSON schema of the survey spec, so that an editor completes and checks it."""
    from ingestion.spec import schema_text

    click.echo(schema_text(), nl=False)
