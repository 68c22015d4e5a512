"""Training jobs on this machine: a detached torchrun under a supervisor that outlives the flow.

A folder per key, private to its owner, holds ``lock``, ``log``, ``exit_code`` and, where it was asked to stop,
``cancelled`` or ``time_limit``. The lock is an flock that supervisor and torchrun both hold, so it is free exactly when
both are gone, however they died; a rank dies with its torchrun.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flows.launchers import Cause, Job, LauncherError, State, Status

_LOG_TAIL = 4000  # bytes
_SAVE_SECONDS = 120  # in which a training process ends its step and saves, once it has got SIGTERM


class LocalLauncher:
    """Jobs as process groups of this machine, found again through a folder per key."""

    def __init__(self, root: Path | None = None) -> None:
        named = root or os.environ.get("SFM_JOBS")
        self.root = Path(named).resolve() if named else Path(tempfile.gettempdir()) / f"sfm-jobs-{os.getuid()}"

    def place(self) -> str:
        """This machine and the folder of its jobs."""
        return f"{self.root} on {socket.gethostname()}"

    def submit(self, job: Job) -> None:
        """Start ``job``, or attach to the one that runs under its key. Raises ``LauncherError``."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = self.folder(job.key)
        folder.mkdir(exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _acquire_at_last(lock):
                return
            for end in ("exit_code", "cancelled", "time_limit", "group"):
                (folder / end).unlink(missing_ok=True)
            seconds = None if job.hours is None else max(job.hours * 1800, job.hours * 3600 - _SAVE_SECONDS)
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.launchers.local", str(folder), json.dumps([_torchrun(job), seconds])],
                env=_environment(job),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[lock],
            )
            (folder / "group").write_text(str(process.pid))
        finally:
            os.close(lock)  # the supervisor holds the same open file, hence the lock

    def find(self, key: str) -> Status | None:
        """The status of the newest job under ``key``, or None."""
        folder = self.folder(key)
        running = (folder / "lock").exists() and _is_locked(folder / "lock")
        if not running and not (folder / "group").exists():
            return None
        code = folder / "exit_code"
        exit_code = int(code.read_text()) if code.exists() and not running else None
        state = State.RUNNING if running else State.SUCCEEDED if exit_code == 0 else State.FAILED
        asked = {"cancelled": Cause.CANCELLED, "time_limit": Cause.TIME_LIMIT}
        why = [cause for name, cause in asked.items() if (folder / name).exists()]
        cause = [*why, Cause.ERROR][0] if state is State.FAILED else None
        return Status(state, exit_code, _tail(folder / "log"), cause, "this machine")

    def wait(self, key: str, seconds: float) -> None:
        """Return after ``seconds``; nothing here tells of changes."""
        time.sleep(seconds)

    def cancel(self, key: str) -> None:
        """SIGTERM to the whole group, SIGKILL to what is left after two minutes."""
        folder = self.folder(key)
        for number, seconds in ((signal.SIGTERM, _SAVE_SECONDS + 10), (signal.SIGKILL, 10)):
            if not (folder / "lock").exists() or not _is_locked(folder / "lock"):
                return
            (folder / "cancelled").touch()
            try:
                os.killpg(_group(folder), number)
            except ProcessLookupError:
                return
            deadline = time.monotonic() + seconds
            while _is_locked(folder / "lock") and time.monotonic() < deadline:
                time.sleep(0.1)

    def forget(self, key: str) -> bool:
        """Delete what the job under ``key`` left; False when it runs."""
        folder = self.folder(key)
        if not folder.exists():
            return True
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _acquire(lock):
                return False
            (folder / "group").unlink(missing_ok=True)  # first: without it there is no job to be found
            shutil.rmtree(folder)
        finally:
            os.close(lock)
        return True

    def folder(self, key: str) -> Path:
        """Of the job under ``key``. Raises ``LauncherError`` when others may write to it."""
        _check_private(self.root)
        return self.root / hashlib.sha256(key.encode()).hexdigest()[:24]


def _check_private(folder: Path) -> None:
    """Raises ``LauncherError`` when others may write to ``folder``: its jobs would be theirs to name and to end."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not mode & 0o022:
        return
    what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else f"of user {found.st_uid}, mode {mode:04o}"
    raise LauncherError(
        f"{folder}, the folder of training jobs, is {what}; expected a folder of user {os.getuid()} that nobody else "
        "may write to: look who made it and remove it, or name another one in SFM_JOBS"
    )


def _torchrun(job: Job) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={job.processes}",
        f"--shutdown-timeout={_SAVE_SECONDS}",
        "-m",
        job.module,
        *job.arguments,
    ]


def _environment(job: Job) -> dict[str, str]:
    threads = max(1, (os.cpu_count() or 1) // job.processes)
    return os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"} | job.environment


def _acquire(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire_at_last(descriptor: int) -> bool:
    """Whether nobody holds it but, for a moment, one who only looks whether the job runs (``_is_locked``)."""
    for _ in range(5):
        if _acquire(descriptor):
            return True
        time.sleep(0.02)
    return False


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return not _acquire(descriptor, fcntl.LOCK_SH)  # so that two who look do not see each other
    finally:
        os.close(descriptor)


def _group(folder: Path) -> int:
    """Of a job that was started just now, perhaps in this moment. Raises ``ProcessLookupError`` when it is gone."""
    while _is_locked(folder / "lock"):
        if text := (folder / "group").read_text() if (folder / "group").exists() else "":
            return int(text)
        time.sleep(0.02)
    raise ProcessLookupError


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _LOG_TAIL))
        return log.read().decode(errors="replace")


def supervise(folder: Path, command: list[str], seconds: float | None) -> None:
    """Run ``command``, keep its log, and write its exit code when it ends; after ``seconds`` it is asked to."""
    (folder / "group").write_text(str(os.getpid()))  # whoever started this may have been killed just then
    signal.signal(signal.SIGTERM, lambda *_: None)  # the group gets it; wait for torchrun to save and end
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, close_fds=False)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            (folder / "time_limit").touch()
            code = _end(process)
    partial = folder / "exit_code.partial"
    partial.write_text(str(code))
    partial.rename(folder / "exit_code")


def _end(torchrun: subprocess.Popen[bytes]) -> int:
    """The exit code of what saves and ends within two minutes, or is killed, with its ranks."""
    torchrun.terminate()
    try:
        return torchrun.wait(_SAVE_SECONDS + 10)
    except subprocess.TimeoutExpired:
        torchrun.kill()
        return torchrun.wait()


if __name__ == "__main__":
    supervise(Path(sys.argv[1]), *json.loads(sys.argv[2]))
