"""A real MLflow server for tests, gone with the process that started it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ingestion.embedded_s3 import die_with_parent, end_group

_READY_SECONDS = 200.0  # two cores may be busy with other tests


@contextmanager
def serve_mlflow(folder: Path, artifacts: str) -> Iterator[str]:
    """Its address while the block runs: an SQLite file in ``folder``, artifacts at the URI ``artifacts``."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--artifacts-destination", artifacts]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, signal.SIGTERM),
        )
    try:
        _wait_until_ready(process, f"http://127.0.0.1:{port}/health", folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        end_group(process)


def _wait_until_ready(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(health, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the MLflow server is not ready; its log: {log.read_text(errors='replace')[-2000:]}")
