"""The ``week`` command: what the scheduled week does, and what its operators do about it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingestion.cli.common import JSON_HELP, by_option, existing_lake, messages, reason_option
from ingestion.cli.sweep import Duration
from ingestion.names import printable, printable_lines

if TYPE_CHECKING:
    from pydantic import ValidationError

    from flows.launchers import Launcher
    from flows.status import WeekStatus

_SETTINGS = {"help_option_names": ["-h", "--help"]}
_LONGEST_RUN = timedelta(weeks=2)  # its steps' time limits, tried again
_lake = click.option("--lake", "lake_uri", required=True, envvar="SFM_LAKE", metavar="URI", help="Default: SFM_LAKE.")
_settings_file = click.option(
    "--settings", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Of the week. Default: flows/weekly.yaml.",
)  # fmt: skip
_launcher = click.option(
    "--launcher", type=click.Choice(["local", "slurm", "eks"]), default="local", show_default=True,
    help="Where training runs.",
)  # fmt: skip
_json = click.option("--json", "as_json", is_flag=True, help=JSON_HELP)


@click.group(context_settings=_SETTINGS)
def main() -> None:
    """Watch the scheduled week, and keep its lake in order.

    \b
    week status --lake s3://LAKE            what it is doing: surveys, run, step, loss, end, cost, who holds training
    week status --lake s3://LAKE --alarm    for cron: exit status 1, and a notice, when someone should look
    week dry-run --lake s3://LAKE           what the week would do and cost, without doing it
    week pause | resume --lake s3://LAKE    start no training, or start it again
    week cancel --lake s3://LAKE --run RUN  end a training job now; it saves first
    week retention --lake s3://LAKE         old checkpoints, job folders and backups that can go
    week backup | restore --lake s3://LAKE  the MLflow registry's database

    Exit status: 0 when done, 1 when something is wrong or could not be done, 2 for a wrong command or
    settings that no start of the week would take.
    """


@main.command()
@_lake
@click.option("--week", metavar="WEEK", help="Such as 2026-W49. Default: the one that the schedule started last.")
@click.option("--alarm", is_flag=True, help="Exit with 1, and notify, when the week is late or stands still.")
@click.option(
    "--begun-by", envvar="SFM_ALARM_BEGUN_BY", default="mon 06:00", show_envvar=True, show_default=True,
    metavar="TIME", help="With --alarm: UTC.",
)  # fmt: skip
@click.option(
    "--limit", envvar="SFM_ALARM_LIMIT", type=Duration(), default="6h", show_envvar=True, show_default=True,
    help="With --alarm: of standing still.",
)  # fmt: skip
@click.option("--ended", is_flag=True, help="Its flow has ended: exit with 1, and notify, when it left no report.")
@_json
def status(
    lake_uri: str, week: str | None, alarm: bool, begun_by: str, limit: timedelta, ended: bool, as_json: bool
) -> None:
    """What the week is doing now, from the lake alone."""
    from pydantic import ValidationError

    from flows.notify import Notice, notify
    from flows.status import alarms, parse_weekday, scheduled_week, unreported, week_status
    from flows.week import calendar_week, workflow_made, workflow_week

    try:
        due = parse_weekday(begun_by)
        week = (week or "").strip('"')  # a workflow's parameter is JSON
        asked = calendar_week(week) if week else workflow_week()
        since = workflow_made()
    except ValueError as error:
        raise click.UsageError(printable(str(error))) from error
    with _messages():
        lake, now = existing_lake(lake_uri), datetime.now(UTC)
        looked_at = asked or scheduled_week(now)
        try:
            found = week_status(lake, looked_at, now)
        except ValidationError as error:
            words = f"week {looked_at} cannot be looked at: {_unreadable(error)}"
            if alarm or ended:
                notify(lake, Notice(looked_at, "alarm", f"unreadable-{now:%Y-%m-%d}", words))
            raise click.ClickException(printable(words)) from error
        wrong = alarms(found, now, due, limit) if alarm else []
        for words in wrong:
            notify(lake, Notice(found.week, "alarm", f"{found.state}-{now:%Y-%m-%d}", words))
        for words in unreported(found, since) if ended else []:
            notify(lake, Notice(found.week, "failed", f"{found.state}-{since or found.begun}", words))
            wrong.append(words)
    if as_json:
        click.echo(json.dumps(found.model_dump(mode="json") | {"alarms": wrong}, indent=2))
    else:
        _table([*_lines(found, now), ("newest", "" if found.begun or asked else _newest(lake.folders("weeks")))])
        for words in wrong:
            click.echo(f"ALARM: {printable(words)}", err=True)
    sys.exit(1 if wrong else 0)


@main.command()
@_lake
@by_option
@reason_option
def pause(lake_uri: str, by: str, reason: str) -> None:
    """Start no training from now on; what runs goes on, and surveys are taken in as ever."""
    from flows.pause import pause as pause_lake

    with _messages():
        stands = pause_lake(existing_lake(lake_uri), by, reason)
    click.echo(str(stands))
    if (stands.by, stands.reason) != (by, reason):
        click.echo("that was so already, and stands; `week resume` ends it")


@main.command()
@_lake
def resume(lake_uri: str) -> None:
    """Let training start again; a week that ended without it is started again by hand."""
    from flows.pause import resume as resume_lake

    with _messages():
        ended = resume_lake(existing_lake(lake_uri))
    click.echo(f"ended: {ended}" if ended else "training was not paused")


@main.command()
@_lake
@click.option("--run", required=True, metavar="RUN", help="Whose job it is; `week status` names it.")
@_settings_file
@_launcher
def cancel(lake_uri: str, run: str, file: Path | None, launcher: str) -> None:
    """End a run's training job now: it saves first, its week reports that and fails.

    Started again, the week goes on from there; `week pause` keeps the schedule from doing so.
    """
    from flows.launchers import launcher as launcher_of
    from flows.settings import read_settings
    from flows.training import cancel as cancel_job
    from seismic_model.training.lease import holder

    with _messages():
        lake = existing_lake(lake_uri)
        if run not in lake.folders("runs"):
            raise click.ClickException(printable(f"there is no run {run} on {lake.uri}; `week status` names them"))
        place = launcher_of(launcher, read_settings(_raw_settings(file)))
        ended = cancel_job(lake, run, place)
        other, here = (None, "") if ended else (holder(lake), place.place())
    none = f"no job of run {run} waits or runs with launcher {launcher}"
    if other and other.owner == run and other.place != here and other.holds(time.time()):
        raise click.ClickException(f"{none}; but training is held by {other}: give the command where that was started")
    click.echo(printable(f"ended: {ended.place}" if ended else none))


@main.command("dry-run")
@_lake
@click.option("--week", default="", metavar="WEEK", help="Default: this week.")
@click.option("--surveys", default="", metavar="NAMES", help="Comma-separated. Default: all.")
@click.option("--size", default="tiny", show_default=True, help="One of the settings' recipes.")
@_settings_file
@_launcher
@click.option("--seed", default=0, show_default=True)
@click.option("--force", is_flag=True, help="As for the week itself.")
def dry_run(lake_uri: str, file: Path | None, **parameters: Any) -> None:
    """What the week would take in, train and cost; options are those of the weekly flow."""
    from flows.dry_run import dry_run as run_dry
    from flows.steps import request

    with _messages():
        lake = existing_lake(lake_uri)
        asked = request({"lake": lake.uri, **parameters}, _raw_settings(file))
        _table(run_dry(asked).lines())


@main.command()
@_lake
@_settings_file
@click.option("--older", type=Duration(), default="4w", show_default=True, help="What ended later stays.")
@click.option(
    "--abandoned", type=Duration(), default="12w", show_default=True, help="An unfinished run that moved later stays."
)
@click.option("--delete", is_flag=True, help="Delete what is listed.")
@_json
def retention(
    lake_uri: str, file: Path | None, older: timedelta, abandoned: timedelta, delete: bool, as_json: bool
) -> None:
    """List what nobody needs any more, or delete it.

    \b
    checkpoints  of finished and of abandoned runs; registered ones and those that an unfinished run began with stay
    jobs         their folders on this machine (SFM_JOBS), and on the settings' Slurm cluster
    backups      of the registry; the newest stays, and the first of each month

    Surveys, data sets, configs, figures, reports and decisions always stay.
    """
    from flows.retention import Rules, look
    from flows.retention import delete as delete_one

    if abandoned < _LONGEST_RUN:
        raise click.UsageError("--abandoned has to be at least 2w: for so long a run may train and be scored")
    with _messages():
        lake = existing_lake(lake_uri)
        rules = Rules(datetime.now(UTC), older, abandoned, _places(file))
        found = look(lake, rules)
        gone = [old for old in found.old if delete and delete_one(lake, old, rules)]
    if as_json:
        went = [old.folder for old in gone]
        click.echo(json.dumps(found.model_dump(mode="json") | {"deleted": went}, indent=2))
        return
    for kept in found.kept:
        click.echo(f"stays  {kept.run}: {printable(kept.reason)} ({kept.size:,} bytes)")
    for old in found.old:
        note = f", {old.note}" if old.note else ""
        what = "can go" if not delete else "gone  " if old in gone else "stays "
        click.echo(f"{what} {printable(old.folder)} ({old.size:,} bytes{note})")
    total = sum(old.size for old in (gone if delete else found.old))
    click.echo(f"{total:,} bytes deleted" if delete else f"{total:,} bytes; --delete deletes them")


def _places(file: Path | None) -> dict[str, Launcher]:
    """Where jobs leave folders: this machine, and the settings' Slurm cluster."""
    from flows.launchers.local import LocalLauncher
    from flows.launchers.slurm import SlurmLauncher
    from flows.settings import read_settings

    here: dict[str, Launcher] = {"this machine": LocalLauncher()}
    slurm = read_settings(_raw_settings(file)).slurm
    return here | ({"Slurm": SlurmLauncher(slurm)} if slurm else {})


@main.command()
@_lake
@click.option(
    "--database",
    required=True,
    envvar="MLFLOW_BACKEND_STORE_URI",
    metavar="URI",
    help="The MLflow server's. Default: MLFLOW_BACKEND_STORE_URI.",
)
def backup(lake_uri: str, database: str) -> None:
    """Copy the MLflow registry's SQLite file to the lake; the server may run."""
    from flows.mlflow_backup import backup as backup_to

    with _messages():
        lake = existing_lake(lake_uri)
        made = backup_to(lake, database)
        click.echo(f"{lake.uri_of(made.folder)}: {made.size:,} bytes, SHA-256 {made.sha256}")
        click.echo(_aliases(made.aliases))


@main.command()
@_lake
@click.option("--into", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Where nothing is yet.")
@click.option("--backup", "name", metavar="NAME", help="Such as 20261130T020000Z. Default: the newest.")
def restore(lake_uri: str, into: Path, name: str | None) -> None:
    """Put a backup of the MLflow registry back, and say what its aliases are."""
    from flows.mlflow_backup import restore as restore_from

    with _messages():
        found = restore_from(existing_lake(lake_uri), into, name)
    click.echo(f"{printable(str(into))} is the registry of {found.created:%Y-%m-%d %H:%M:%S} UTC")
    click.echo(_aliases(found.aliases))
    click.echo(f"now: mlflow server --backend-store-uri sqlite:///{printable(str(into.absolute()))} …")


def _raw_settings(file: Path | None) -> dict[str, Any]:
    """What stands in a settings file. Raises ``SettingsError``."""
    import yaml

    from flows.settings import SettingsError
    from flows.steps import DEFAULT_SETTINGS

    try:
        raw: dict[str, Any] = yaml.safe_load((file or DEFAULT_SETTINGS).read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
    return raw


def _aliases(found: dict[str, dict[str, str]]) -> str:
    said = [f"{model}@{alias} is version {version}" for model in found for alias, version in found[model].items()]
    return printable("; ".join(said) or "no model has an alias")


def _lines(found: WeekStatus, now: datetime) -> list[tuple[str, str]]:
    surveys = ", ".join(f"{count} {status}" for status, count in sorted(found.surveys.items())) or "none yet"
    lines = [
        ("week", found.week),
        ("state", found.state + (f", begun {found.begun:%a %Y-%m-%d %H:%M} UTC" if found.begun else "")),
        ("moved", _ago(found.moved, now) if found.moved and found.begun else ""),
        ("surveys", surveys + (f"; held back: {', '.join(found.held)}" if found.held else "")),
        ("data set", found.dataset),
    ]
    for run in found.runs:
        loss = "" if run.loss is None else f", loss {run.loss:.4f}"
        beat = f", moved {_ago(run.heartbeat_at, now)}" if run.heartbeat_at else ""
        lines.append(("run", f"{run.run}: {run.phase}, step {run.step} of {run.steps}{loss}{beat}"))
        if run.ends:
            lines.append(("ends", f"{run.ends:%a %Y-%m-%d %H:%M} UTC at this pace"))
        if run.cost:
            of = f" of {run.cost.gpu_hours_allowed:,.1f}" if run.cost.gpu_hours_allowed is not None else ""
            money = f", {run.cost.money:,.0f} USD" if run.cost.money is not None else ""
            lines.append(("cost", f"{run.cost.gpu_hours:,.1f}{of} GPU hours{money}"))
        if run.decision:
            lines.append(("candidate", run.decision))
    return [*lines, ("training", found.training), ("paused", found.paused), ("report", found.report)]


def _ago(then: datetime, now: datetime) -> str:
    seconds = max(0.0, (now - then).total_seconds())
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} seconds ago"


def _newest(weeks: list[str]) -> str:
    return f"{max(weeks)} on this lake; `--week {max(weeks)}` looks at it" if weeks else ""


def _table(lines: list[tuple[str, str]]) -> None:
    for name, value in lines:
        if value:
            click.echo(f"{name:12} {printable(value)}")


class _NeverError(click.ClickException):
    """What no start of the week would take."""

    exit_code = 2


@contextmanager
def _messages() -> Iterator[None]:
    """What can go wrong becomes a message and exit status 1, or 2 where the week cannot be run as asked."""
    from pydantic import ValidationError

    from flows.launchers import LauncherError
    from flows.mlflow_backup import BackupError
    from flows.settings import SettingsError
    from flows.steps import RequestError
    from seismic_model.training.lease import LeaseError

    with messages():
        try:
            yield
        except (SettingsError, RequestError) as error:
            raise _NeverError(printable_lines(str(error))) from error
        except (BackupError, LauncherError, LeaseError) as error:
            raise click.ClickException(printable(str(error))) from error
        except ValidationError as error:
            raise click.ClickException(printable(_unreadable(error))) from error


def _unreadable(error: ValidationError) -> str:
    return f"an object on the lake is none of this version: {error.title}"


if __name__ == "__main__":
    main()
