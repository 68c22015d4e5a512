"""The registry of a real MLflow server, copied while it is written to, and put back."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mlflow import MlflowClient
from mlflow_server import serve_mlflow

from flows.mlflow_backup import BackupError, backup, backups, restore
from flows.week_command import main
from ingestion.lake import Lake

MODEL = "seismic-vit-mae"


@contextmanager
def busy(client: MlflowClient, run: str) -> Iterator[list[int]]:
    """Metrics keep coming in."""
    done, ended = [0], threading.Event()

    def write() -> None:
        while not ended.is_set():
            client.log_metric(run, "loss", 1.0, step=done[0])
            done[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while done[0] < 3:
            ended.wait(0.01)
        yield done
    finally:
        ended.set()
        thread.join()


def week(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_a_registry_comes_back_as_it_was_while_its_server_went_on(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    database = f"sqlite:///{tmp_path / 'server' / 'mlflow.db'}"
    with serve_mlflow(tmp_path / "server", str(tmp_path / "artifacts")) as address:
        client = MlflowClient(tracking_uri=address)
        made = client.create_run("0").info
        run = made.run_id
        client.create_registered_model(MODEL)
        for alias in ("champion", "challenger"):
            version = client.create_model_version(MODEL, f"{made.artifact_uri}/{alias}", run).version
            client.set_registered_model_alias(MODEL, alias, version)
        with busy(client, run) as written:
            copied = week("backup", "--lake", lake.uri, "--database", database)
            assert copied.exit_code == 0, copied.output
            assert f"{MODEL}@champion is version 1; {MODEL}@challenger is version 2" in copied.output
            before = written[0]
        client.set_registered_model_alias(MODEL, "champion", "2")  # after the copy
    (known,) = backups(lake)
    assert hashlib.sha256(lake.read(f"{known.folder}/mlflow.db")).hexdigest() == known.sha256

    put_back = week("restore", "--lake", lake.uri, "--into", str(tmp_path / "restored" / "mlflow.db"))
    assert put_back.exit_code == 1  # no such folder
    (tmp_path / "restored").mkdir()
    put_back = week("restore", "--lake", lake.uri, "--into", str(tmp_path / "restored" / "mlflow.db"))
    assert put_back.exit_code == 0, put_back.output
    assert f"{MODEL}@champion is version 1" in put_back.output
    with serve_mlflow(tmp_path / "restored", str(tmp_path / "artifacts")) as address:
        client = MlflowClient(tracking_uri=address)
        found = client.get_registered_model(MODEL).aliases
        assert {alias: str(version) for alias, version in found.items()} == {"champion": "1", "challenger": "2"}
        assert 3 <= len(client.get_metric_history(run, "loss")) <= before + 1
    again = week("restore", "--lake", lake.uri, "--into", str(tmp_path / "restored" / "mlflow.db"))
    assert again.exit_code == 1
    assert "is there already" in again.output


def test_what_is_no_registry_or_damaged_is_refused(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(BackupError, match=r"there is no file .*; expected the one that the MLflow server"):
        backup(lake, f"sqlite:///{tmp_path}/none.db")
    (tmp_path / "other.db").write_bytes(b"not a database")
    with pytest.raises(BackupError, match=r"other.db cannot be copied"):
        backup(lake, f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(BackupError, match="pg_dump --format=custom") as refused:
        backup(lake, "postgresql://mlflow:s3cr3t@db/mlflow")
    assert "s3cr3t" not in str(refused.value)
    with pytest.raises(BackupError, match=r"there is no backup at all on .*there are: none"):
        restore(lake, tmp_path / "x.db")
    assert not list(lake.objects())


def test_a_damaged_backup_is_not_put_back(tmp_path: Path) -> None:
    import sqlite3

    lake = Lake(str(tmp_path / "lake"))
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("CREATE TABLE registered_model_aliases (name, alias, version)")
        database.execute("INSERT INTO registered_model_aliases VALUES ('m', 'champion', 3)")
    made = backup(lake, f"sqlite:///{tmp_path}/mlflow.db")
    assert made.aliases == {"m": {"champion": "3"}}
    whole = lake.read(f"{made.folder}/mlflow.db")
    lake.write(f"{made.folder}/mlflow.db", whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(BackupError, match=r"it is damaged; take another backup by its name"):
        restore(lake, tmp_path / "restored.db")
    assert not (tmp_path / "restored.db").exists()
    lake.write(f"{made.folder}/mlflow.db", whole)
    (tmp_path / "restored.db-wal").touch()
    with pytest.raises(BackupError, match=r"restored.db-wal is there already"):
        restore(lake, tmp_path / "restored.db")
    (tmp_path / "restored.db-wal").unlink()
    assert restore(lake, tmp_path / "restored.db") == made
