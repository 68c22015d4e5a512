"""The ``sfm`` command: what people plan and decide about models."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ingestion.cli.common import JSON_HELP, by_option, reason_if_any, reason_option
from ingestion.names import printable, store_message
from seismic_model.comparison.command import strategies
from seismic_model.mlflow_client import sqlite_file
from seismic_model.planner.command import plan

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=_SETTINGS)
def main() -> None:
    """Plan training, and decide which seismic model is in use."""


main.add_command(plan)
main.add_command(strategies)


@main.group(context_settings=_SETTINGS)
@click.option(
    "--tracking-uri",
    envvar="MLFLOW_TRACKING_URI",
    metavar="URI",
    help="The MLflow registry: http://HOST:5000 or sqlite:////DIR/mlflow.db. Default: MLFLOW_TRACKING_URI.",
)
@click.pass_context
def review(context: click.Context, tracking_uri: str | None) -> None:
    """See the week's candidate beside the model in use, and decide.

    \b
    sfm review list                                     all versions, newest first
    sfm review show                                     the challenger: scores beside the champion's, lineage, pictures
    sfm review approve --by ann                         the challenger becomes champion
    sfm review reject --by ann --reason "rings at faults"
    sfm review rollback --by ann --reason "fails on survey X"   the champion before comes back
    sfm review retire --by ann --reason "its data may no longer be used"   no champion until the next approval

    A weekly run that wins gives its version the alias `challenger`; consumers load
    models:/seismic-vit-mae@champion. A command that was interrupted is given again and finishes.

    Each decision is also noted on the lake, under audit/, where nothing is ever changed: on the lake of the run that
    made the version, or the one given as --lake or SFM_LAKE. Without a note nothing moves.

    Exit status: 0 when done, 1 when it could not be done.
    """
    context.obj = tracking_uri


_lake = click.option("--lake", envvar="SFM_LAKE", metavar="URI", help="Where the decision is noted; see above.")
_json = click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
_number = click.argument("number", metavar="[VERSION]", required=False)


@review.command("list")
@_json
@click.pass_obj
def list_(tracking_uri: str | None, as_json: bool) -> None:
    """All versions, newest first."""
    from seismic_model.registry.versions import aliases, versions

    with registry(tracking_uri) as client:
        now = aliases(client)
        rows = [_row(each, now) for each in versions(client)]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo("nothing is registered yet; a weekly run that wins changes that")
        return
    layout = "{version:>7}  {status:11}  {aliases:28}  {week:8}  {error:>8}  {run}"
    click.echo(
        layout.format(version="VERSION", status="STATUS", aliases="ALIASES", week="WEEK", error="ERROR", run="RUN")
    )
    for row in rows:
        click.echo(printable(layout.format(**{**row, "aliases": ", ".join(row["aliases"])})))


@review.command()
@_number
@_json
@click.pass_obj
def show(tracking_uri: str | None, number: str | None, as_json: bool) -> None:
    """One version; without a number the challenger, else the champion."""
    from seismic_model.registry.versions import CHALLENGER, CHAMPION, RegistryError, aliases, version

    with registry(tracking_uri) as client:
        now = aliases(client)
        if number is None:
            number = now.get(CHALLENGER) or now.get(CHAMPION)
        if number is None:
            raise RegistryError("there is neither a challenger nor a champion; `sfm review list` shows what there is")
        found = version(client, number)
        facts = _row(found, now) | {
            "artifacts": str(found.source).removesuffix("/model"),
            "tags": dict(sorted(found.tags.items())),
            "description": found.description,
        }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, value in {**facts, **facts["tags"]}.items():
        if isinstance(value, list):
            value = ", ".join(value)
        if value and name not in ("tags", "description"):
            click.echo(f"{name:20} {printable(str(value))}")
    click.echo("\n" + "\n".join(printable(line) for line in (found.description or "").split("\n")))


@review.command()
@_number
@by_option
@reason_if_any
@_lake
@click.pass_obj
def approve(tracking_uri: str | None, number: str | None, by: str, reason: str | None, lake: str | None) -> None:
    """Make the challenger champion. VERSION makes sure that it is still the one that you looked at."""
    from seismic_model.registry import review as decisions

    with registry(tracking_uri) as client:
        chosen = decisions.approve(client, decisions.Request(by, reason, lake), number)
    click.echo(f"version {chosen} is champion now; `sfm review rollback` takes that back")


@review.command()
@_number
@by_option
@reason_option
@_lake
@click.pass_obj
def reject(tracking_uri: str | None, number: str | None, by: str, reason: str, lake: str | None) -> None:
    """Turn the challenger down; the champion stays."""
    from seismic_model.registry import review as decisions

    with registry(tracking_uri) as client:
        chosen = decisions.reject(client, decisions.Request(by, reason, lake), number)
    click.echo(f"version {chosen} is rejected; the champion stays as it is")


@review.command()
@by_option
@reason_option
@_lake
@click.pass_obj
def rollback(tracking_uri: str | None, by: str, reason: str, lake: str | None) -> None:
    """Make the version that the champion replaced champion again."""
    from seismic_model.registry import review as decisions

    with registry(tracking_uri) as client:
        chosen = decisions.rollback(client, decisions.Request(by, reason, lake))
    click.echo(f"version {chosen} is champion again")


@review.command()
@by_option
@reason_option
@_lake
@click.pass_obj
def retire(tracking_uri: str | None, by: str, reason: str, lake: str | None) -> None:
    """Leave the model without a champion; the next challenger is compared with the baselines, as the first was."""
    from seismic_model.registry import review as decisions

    with registry(tracking_uri) as client:
        chosen = decisions.retire(client, decisions.Request(by, reason, lake))
    click.echo(f"version {chosen} is retired; there is no champion until a challenger is approved")


@contextmanager
def registry(tracking_uri: str | None) -> Iterator[MlflowClient]:
    """A client that gives up after seconds; what goes wrong becomes a message and exit status 1."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    file = sqlite_file(tracking_uri or "")
    if file and not file.is_file():  # an empty one would be made
        raise click.ClickException(f"there is no registry at {tracking_uri}; expected the file that a weekly run made")

    from mlflow.exceptions import MlflowException
    from obstore.exceptions import BaseError

    from ingestion.lake import LakeError
    from seismic_model.registry.versions import RegistryError, connect

    try:
        yield connect(tracking_uri)
    except MlflowException as error:
        said = f"the MLflow registry at {tracking_uri} cannot be used; see that it runs there ({_first_line(error)})"
        raise click.ClickException(printable(_without_password(said))) from error
    except (RegistryError, LakeError, OSError, BaseError) as error:
        raise click.ClickException(printable(store_message(error))) from error


def _row(found: ModelVersion, now: Mapping[str, str]) -> dict[str, Any]:
    from seismic_model.registry.versions import RUN, STATUS

    return {
        "version": str(found.version),
        "status": found.tags.get(STATUS, "not from a weekly run"),
        "aliases": sorted(alias for alias, number in now.items() if number == str(found.version)),
        "run": found.tags.get(RUN, ""),
        "week": found.tags.get("sfm.week", ""),
        "error": found.tags.get("sfm.error", ""),
    }


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _without_password(text: str) -> str:
    """``http://user:***@host`` for every URI in ``text``: messages end in logs."""
    return re.sub(r"(://[^/\s:@]*):[^/\s@]+@", r"\1:***@", text)


if __name__ == "__main__":
    main()
