"""``survey withdraw``, ``restore`` and ``models``: a survey that may not be used any more, and what was made of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import click

from ingestion.cli.common import (
    DIGEST_HELP,
    JSON_HELP,
    LAKE_HELP,
    by_option,
    digest_of,
    existing_lake,
    messages,
    reason_option,
)
from ingestion.names import printable

if TYPE_CHECKING:
    from ingestion.catalog import Version
    from ingestion.lake import Lake
    from ingestion.withdrawal import Event
    from seismic_model.registry.lineage import Lineage, Model

Action = Literal["withdraw", "restore"]

_name = click.argument("name")
_lake = click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
_json = click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
_registry = click.option(
    "--tracking-uri",
    envvar="MLFLOW_TRACKING_URI",
    metavar="URI",
    help="The MLflow registry to ask. Default: MLFLOW_TRACKING_URI, else what the lake notes of it.",
)


@click.command()
@_name
@_lake
@reason_option
@by_option
@click.option("--digest", metavar="DIGEST", help=f"{DIGEST_HELP} Default: all, later ones too.")
@_registry
@_json
def withdraw(
    name: str, lake_uri: str, reason: str, by: str, digest: str | None, tracking_uri: str | None, as_json: bool
) -> None:
    """Survey NAME may not be used any more, e.g. because its licence ended.

    It is not taken in, validated or frozen from now on, and nothing starts to train on a data set that holds it.
    Nothing is deleted. Every model that was trained on it is named, the champion first.
    """
    with messages():
        lake = existing_lake(lake_uri)
        survey, known, chosen = _target(lake, name, digest)
        event = _decide(lake, "withdraw", survey, known, chosen, by, reason)
        if not as_json:  # said before the registry is asked, which may not answer
            click.echo(_words(event, survey, chosen))
        found = _lineage(lake, survey, chosen, tracking_uri)
    if as_json:
        click.echo(json.dumps(_facts(event, survey, chosen) | found.model_dump(mode="json"), indent=2))
    else:
        _echo_lineage(found)


@click.command()
@_name
@_lake
@reason_option
@by_option
@click.option("--digest", metavar="DIGEST", help=f"{DIGEST_HELP} It becomes the one in use. Default: all.")
@_json
def restore(name: str, lake_uri: str, reason: str, by: str, digest: str | None, as_json: bool) -> None:
    """Survey NAME may be used again; with --digest that version of it, which becomes the one in use."""
    with messages():
        lake = existing_lake(lake_uri)
        survey, known, chosen = _target(lake, name, digest)
        event = _decide(lake, "restore", survey, known, chosen, by, reason)
    click.echo(json.dumps(_facts(event, survey, chosen), indent=2) if as_json else _words(event, survey, chosen))


@click.command()
@_name
@_lake
@click.option("--digest", metavar="DIGEST", help=f"{DIGEST_HELP} Default: all.")
@_registry
@_json
def models(name: str, lake_uri: str, digest: str | None, tracking_uri: str | None, as_json: bool) -> None:
    """Every model that was trained on survey NAME, or scored on it, the champion first."""
    with messages():
        lake = existing_lake(lake_uri)
        survey, _, chosen = _target(lake, name, digest)
        found = _lineage(lake, survey, chosen, tracking_uri)
    if as_json:
        click.echo(found.model_dump_json(indent=2))
    else:
        _echo_lineage(found)


def _target(lake: Lake, name: str, beginning: str | None) -> tuple[str, list[Version], str | None]:
    """The survey's identifier, its versions, newest first, and the digest that is meant."""
    from ingestion.catalog import versions
    from ingestion.names import safe_identifier

    survey = safe_identifier(name)
    known = versions(lake, survey)
    if not known:
        raise click.ClickException(f"no survey {printable(name)!r} is published on {printable(lake.uri)}")
    if beginning is None:
        return survey, known, None
    return survey, known, digest_of(survey, [version.digest for version in known], beginning)


def _decide(
    lake: Lake, action: Action, survey: str, known: list[Version], digest: str | None, by: str, reason: str
) -> Event | None:
    """What was written; None when it is so already."""
    from ingestion.withdrawal import events, record, withdrawal

    log = events(lake, survey)
    about = [digest] if digest else [None, *(version.digest for version in known)]
    now = [withdrawal(log, each) is not None for each in about]
    as_asked = all(now) if action == "withdraw" else not any(now) and digest in (None, known[0].digest)
    if as_asked:
        return None
    return record(lake, action, survey, digest, by=by, reason=reason, after=known[0].since)


def _lineage(lake: Lake, survey: str, digest: str | None, tracking_uri: str | None) -> Lineage:
    from seismic_model.cli import registry
    from seismic_model.registry.lineage import models_of

    if not tracking_uri:
        return models_of(lake, survey, digest)
    with registry(tracking_uri) as client:
        return models_of(lake, survey, digest, client)


def _facts(event: Event | None, survey: str, digest: str | None) -> dict[str, Any]:
    written = event.model_dump(mode="json") if event else None
    return {"survey": survey, "digest": digest, "changed": event is not None, "event": written}


def _words(event: Event | None, survey: str, digest: str | None) -> str:
    what = f"survey {survey}" if digest is None else f"version {digest[:12]} of survey {survey}"
    return f"{what} is {event.words()}" if event else f"{what}: nothing to change, it is so already"


def _echo_lineage(found: Lineage) -> None:
    if not found.models:
        click.echo("no run on this lake was trained or scored on it")
    for model in found.models:
        if model.champion:
            click.echo(_on_champion(model, found))
    for model in found.models:
        click.echo(_line(model))
    for unknown in found.unknown:
        click.echo(f"not known: {printable(unknown)}")
    if not found.registry_asked:
        click.echo("the registry was not asked (MLFLOW_TRACKING_URI is not set); versions are as the lake notes them")


def _on_champion(model: Model, found: Lineage) -> str:
    """What the champion has to do with the survey, and what can be done; champion first, as ``model.versions`` are."""
    reigning = f"version {model.versions[0].version} is @champion"
    if not model.trained:
        return f"{reigning}; it was only scored on it, its weights know nothing of it"
    retire = "`sfm review retire --by … --reason …` leaves no champion"
    before = [
        each.version
        for other in found.models
        if other.trained
        for each in other.versions
        if "previous-champion" in each.aliases
    ]
    if before:
        way = f"the champion before (version {before[0]}) was too, so a rollback does not help: {retire}"
    else:
        way = f"`sfm review rollback --by … --reason …` brings back the champion before, where there was one; {retire}"
    return f"{reigning} and was trained on it: {way}; or train again without it"


def _line(model: Model) -> str:
    share = f"{model.weight:.1%} of the crops" if model.weight else "only scored on held-out places"
    parts = [f"  run {model.run}"]
    if model.digest is not None:
        parts.append(f"week {model.week}, version {model.digest[:12]}, {share}")
    if model.parent is not None:
        parts.append(f"began with the weights of {model.parent}")
    said = [
        f"version {each.version} ({', '.join([*(f'@{alias}' for alias in each.aliases), each.status])})"
        for each in model.versions
    ]
    parts.append(", ".join(said) or "not registered")
    return printable("; ".join(parts))
