"""``survey sweep``: what killed ingests left behind."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from ingestion.cli.common import JSON_HELP, LAKE_HELP, existing_lake, messages, progress_bar
from ingestion.names import printable

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_SHORTEST = timedelta(hours=1)


class Duration(click.ParamType[timedelta]):
    """A time as people write it, such as 12h, 7d or 2w."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """At least an hour, or a running ingest would be swept."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d{1,4})([hdw])", str(value))
        found = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta(0)
        if found < _SHORTEST:
            self.fail(f"{str(value)[:60]!r} is no time of at least 1h; expected e.g. 12h, 7d or 2w", param, ctx)
        return found


@click.command()
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option(
    "--grace",
    type=Duration(),
    default="7d",
    help="Leave alone what was written in this time: a number of hours (12h), days (7d) or weeks (2w). "
    "Default: 7d, seven days; at least 1h.",
)
@click.option("--delete", is_flag=True, help="Delete what is listed.")
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def sweep(lake_uri: str, grace: timedelta, delete: bool, as_json: bool) -> None:
    """List what killed ingests left on the lake, or delete it.

    Volumes without a manifest, objects that their volume's manifest does not list, and unfinished quarantine reports.
    What lies under incoming/ and what is published is never touched.
    """
    from ingestion.sweep import sweep as sweep_lake

    with messages(), progress_bar() as progress:
        lake = existing_lake(lake_uri)
        found = sweep_lake(
            lake,
            datetime.now(UTC),
            grace,
            delete=delete,
            told=lambda done, total: progress("looking at folders", done, total),
        )
    total = sum(orphan.size for orphan in found if orphan.deleted == delete)
    if as_json:
        rows = [orphan.model_dump(mode="json") for orphan in found]
        click.echo(json.dumps({"orphans": rows, "bytes": total, "deleted": delete}, indent=2))
        return
    for orphan in found:
        click.echo(
            f"{printable(orphan.folder)}: {orphan.kind}, {orphan.objects} objects, {orphan.size:,} bytes, "
            f"newest {datetime.fromtimestamp(orphan.newest, UTC):%Y-%m-%d}"
        )
    if not found:
        click.echo("nothing to sweep")
    elif delete:
        click.echo(f"deleted {total:,} bytes")
    else:
        click.echo(f"{total:,} bytes; --delete deletes them")
