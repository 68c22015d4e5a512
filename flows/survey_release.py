"""``survey release``: a survey that was held back, taken in again with a mended spec, or accepted as it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ingestion.cli.common import (
    JSON_HELP,
    LAKE_HELP,
    by_option,
    existing_lake,
    messages,
    progress_bar,
    reason_option,
)
from ingestion.names import printable, safe_identifier

if TYPE_CHECKING:
    from flows.releasing import ReleaseOutcome
    from ingestion.spec import SurveySpec


@click.command()
@click.argument("name")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--spec", "spec_uri", metavar="YAML", help="Take the survey's files in again with this mended spec.")
@click.option("--accept", "codes", multiple=True, metavar="CODE", help="Take responsibility for this finding; repeat.")
@by_option
@reason_option
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def release(
    name: str, lake_uri: str, spec_uri: str | None, codes: tuple[str, ...], by: str, reason: str, as_json: bool
) -> None:
    """Release survey NAME, which was held back, or say why it still is.

    With --spec its files are converted again as the mended spec says, then validated. With --accept a finding of
    validation becomes a warning that names who and why. With neither it is only validated again, e.g. after damaged
    objects were restored. Exit status 1 when it is still held back.
    """
    from flows.releasing import ReleaseError, Request, release_survey

    with messages(), progress_bar() as progress:
        lake = existing_lake(lake_uri)
        spec = None if spec_uri is None else _read_spec(spec_uri)
        try:
            outcome = release_survey(lake, safe_identifier(name), Request(codes, by, reason), spec, progress)
        except ReleaseError as error:
            raise click.ClickException(printable(str(error))) from error
    if as_json:
        click.echo(outcome.model_dump_json(indent=2))
    else:
        _echo(outcome)
    sys.exit(0 if outcome.status == "passed" else 1)


def _read_spec(uri: str) -> SurveySpec:
    from ingestion.discover import spec_text
    from ingestion.source import open_source
    from ingestion.spec_yaml import parse_spec

    found = open_source(uri)
    return parse_spec(spec_text(found.lake, found.lake.head(found.key)), found.uri)


def _echo(outcome: ReleaseOutcome) -> None:
    from ingestion.console import echo_findings

    words = {
        "passed": "released; the next data set takes it",
        "held": "still held back",
        "uploading": "not taken in: its files are not all there, or changed while they were read; try again later",
    }
    version = f" ({outcome.digest[:12]})" if outcome.digest else ""
    click.echo(f"{outcome.survey}{version}: {words[outcome.status]}")
    echo_findings(outcome.findings, [])
    if outcome.report is not None:
        click.echo(f"\nreport: {printable(outcome.report)}")
