"""A copy of the MLflow registry's database on the lake, and back. Artifacts lie on the lake already.

backups/mlflow/20261130T020000Z/mlflow.db      a consistent copy, taken while the server runs
                                backup.json    its digest, written last: only now is it a backup
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest
from seismic_model.mlflow_client import sqlite_file

_ROOT, _NAME = "backups/mlflow", "%Y%m%dT%H%M%SZ"
_JOURNALS = ("-journal", "-wal", "-shm")


class BackupError(Exception):
    """The registry cannot be copied or put back; the message says what was found and what to do."""


class Backup(Contract):
    """``backup.json``."""

    folder: str  # key prefix
    created: datetime
    size: int  # bytes
    sha256: Digest
    aliases: dict[str, dict[str, str]]  # version by alias, by model


def backup(lake: Lake, database: str) -> Backup:
    """Copy the SQLite database at the URI ``database``, which may be in use. Raises ``BackupError``."""
    source = _file(database)
    created = datetime.now(UTC)
    folder = f"{_ROOT}/{created:{_NAME}}"
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "mlflow.db"
        try:
            with (
                closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as live,
                closing(sqlite3.connect(copy)) as into,
            ):
                live.backup(into)
        except sqlite3.Error as error:
            raise BackupError(
                f"{source} cannot be copied: {error}; expected the SQLite file of an MLflow server"
            ) from error
        aliases = aliases_in(copy)
        data = copy.read_bytes()
    made = Backup(
        folder=folder, created=created, size=len(data), sha256=hashlib.sha256(data).hexdigest(), aliases=aliases
    )
    lake.write(f"{folder}/mlflow.db", data)
    if not lake.create(f"{folder}/backup.json", made.to_bytes()):
        raise BackupError(f"{lake.uri_of(folder)} was written in the same second; give the command again")
    return made


def backups(lake: Lake) -> list[Backup]:
    """All that are whole, newest first."""
    found = []
    for name in sorted(lake.folders(_ROOT), reverse=True):
        try:
            found.append(Backup.model_validate_json(lake.read(f"{_ROOT}/{name}/backup.json")))
        except (FileNotFoundError, ValidationError):  # broken off
            continue
    return found


def superfluous(lake: Lake, now: datetime, older: timedelta) -> list[tuple[str, str, int]]:
    """Folder, note and bytes of each that can go: older than that, and neither the newest nor its month's first."""
    sizes: dict[datetime, dict[str, int]] = defaultdict(dict)  # by file
    for entry in lake.objects(_ROOT):
        folder, _, file = entry.key.removeprefix(f"{_ROOT}/").rpartition("/")
        if made := _taken(folder):
            sizes[made][file] = entry.size
    whole = {made for made, files in sizes.items() if "backup.json" in files}
    broken = {made for made in sizes if made not in whole and now - made >= max(older, timedelta(days=1))}
    return [
        (f"{_ROOT}/{made:{_NAME}}", "broken off" if made in broken else "", sum(sizes[made].values()))
        for made in sorted(thin(whole, now, older) | broken)
    ]


def thin(taken: set[datetime], now: datetime, older: timedelta) -> set[datetime]:
    """Those that can go of backups ``taken`` then: not the newest, nor the first of a month, nor any less old."""
    first: dict[tuple[int, int], datetime] = {}
    for each in sorted(taken):
        first.setdefault((each.year, each.month), each)
    return {each for each in taken if now - each >= older} - {*first.values(), *sorted(taken)[-1:]}


def restore(lake: Lake, into: Path, name: str | None = None) -> Backup:
    """Put a backup, by default the newest, at ``into``, where nothing may be, and read its aliases.

    Raises ``BackupError``.
    """
    beside = [into.with_name(f"{into.name}{end}") for end in _JOURNALS]  # SQLite would play them into the copy
    for file in (into, *beside):
        if file.exists():
            raise BackupError(
                f"{file} is there already; stop the server, move that file away, and give the command again"
            )
    known = backups(lake)
    chosen = [each for each in known if name in (None, each.folder.rpartition("/")[2])]
    if not chosen:
        listed = ", ".join(each.folder.rpartition("/")[2] for each in known) or "none"
        raise BackupError(f"there is no backup {name or 'at all'} on {lake.uri}; there are: {listed}")
    data = lake.read(f"{chosen[0].folder}/mlflow.db")
    if (found := hashlib.sha256(data).hexdigest()) != chosen[0].sha256:
        raise BackupError(
            f"{lake.uri_of(chosen[0].folder)}/mlflow.db has SHA-256 {found}, its backup.json says {chosen[0].sha256}: "
            "it is damaged; take another backup by its name"
        )
    partial = into.with_name(f"{into.name}.partial")
    partial.write_bytes(data)
    if aliases_in(partial) != chosen[0].aliases:
        raise BackupError(f"{partial} has other aliases than its backup.json says; take another backup by its name")
    partial.rename(into)
    return chosen[0]


def aliases_in(file: Path) -> dict[str, dict[str, str]]:
    """Version by alias of each model in an MLflow database. Raises ``BackupError`` when it is damaged or is none."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            (verdict,) = database.execute("PRAGMA integrity_check").fetchone()
            rows = database.execute("SELECT name, alias, version FROM registered_model_aliases").fetchall()
    except sqlite3.Error as error:
        raise BackupError(f"{file} is no database of an MLflow server: {error}") from error
    if verdict != "ok":
        raise BackupError(f"{file} is damaged: {verdict}")
    found: dict[str, dict[str, str]] = {}
    for model, alias, version in rows:
        found.setdefault(model, {})[alias] = str(version)
    return found


def _taken(name: str) -> datetime | None:
    """When the backup called ``name`` was taken; None when it is none of ours."""
    try:
        made = datetime.strptime(name, _NAME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return made if f"{made:{_NAME}}" == name else None


def _file(database: str) -> Path:
    if database.startswith(("postgresql", "mysql", "mssql")):
        raise BackupError(
            "that database is a server's: copy it with its own tool (Postgres: `pg_dump --format=custom --file=FILE`, "
            "then `aws s3 cp FILE s3://LAKE/backups/`; back with `pg_restore --clean`)"
        )
    file = sqlite_file(database)
    if file is None:
        raise BackupError("the database is no URI of MLflow's; expected sqlite:////DIR/mlflow.db")
    if not file.is_file():
        raise BackupError(f"there is no file {file}; expected the one that the MLflow server was started with")
    return file
