"""Opening MLflow, whose SQLite file two processes may find absent in the same second."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient


def open_mlflow(uri: str) -> MlflowClient:
    """A client of the tracking and registry store at ``uri``; an SQLite file that is not there yet is made."""
    from mlflow import MlflowClient  # takes seconds

    if (file := sqlite_file(uri)) and not file.exists():
        _make(file)
    return MlflowClient(tracking_uri=uri)


def sqlite_file(uri: str) -> Path | None:
    """The absolute path of the database that ``uri`` names, or None when it names a server."""
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute() if uri.startswith("sqlite:///") else None


def _make(file: Path) -> None:
    """MLflow (3.x) makes its tables one by one, without a lock: make them apart, and put the whole file in place."""
    from mlflow import MlflowClient

    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}-") as scratch:
        whole = Path(scratch) / file.name
        MlflowClient(tracking_uri=f"sqlite:///{whole}").search_experiments(max_results=1)
        with suppress(OSError):  # another process was first; or no hard links here: then MLflow makes it itself
            os.link(whole, file)
