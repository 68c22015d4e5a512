"""Where a training job runs: one small interface, one module for each place.

A launcher knows nothing of the model. It is given a job with a key; the same key always finds the
same job, so a flow that was killed and started again attaches instead of training twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from flows.settings import Settings

_SECRET = re.compile(r"SECRET|PASSW|_PASS$|^PASS$|TOKEN|_KEY$|APIKEY|AUTH|CREDENTIAL|WEBHOOK|_PAT$")


class State(Enum):
    """What a launcher can say of a job."""

    PENDING = "pending"  # accepted, and waits for nodes
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # ended otherwise than with exit code 0, or lost; submitting again resumes it

    @property
    def lives(self) -> bool:
        """Whether such a job waits or runs."""
        return self in (State.PENDING, State.RUNNING)


class Cause(Enum):
    """What ended a job that failed, as far as its scheduler tells them apart."""

    ERROR = "an error of its own"
    OUT_OF_MEMORY = "want of memory"
    NODE_LOST = "the loss of a node"
    PREEMPTED = "preemption"
    TIME_LIMIT = "its time limit"
    CANCELLED = "cancellation"
    HUNG = "standing still"  # which no scheduler notices: the one who follows it does
    BUDGET = "the end of its budget"  # which the one who follows it counts


@dataclass(frozen=True)
class Job:
    """``torchrun -m module arguments`` on ``processes`` processes.

    ``key`` is the idempotency key: one job runs under it at a time.
    """

    key: str
    name: str  # for people
    module: str
    arguments: tuple[str, ...]
    processes: int
    environment: dict[str, str] = field(default_factory=dict)
    hours: float | None = None  # after which the scheduler may end it
    exclude: tuple[str, ...] = ()  # nodes that it must not run on


@dataclass(frozen=True)
class Status:
    """A job's state, and for a person: its cause and exit code, where it is, and the end of its log."""

    state: State
    exit_code: int | None
    log_tail: str
    cause: Cause | None = None  # of a failed one
    place: str = ""  # such as "Slurm job 17 on n[1-2]"
    bad_nodes: tuple[str, ...] = ()  # lost, or refused by the health check


class LauncherError(Exception):
    """The scheduler refuses the job; the message says what was asked, what it answered, and what to change."""


class UnreachableError(LauncherError):
    """The scheduler does not answer; asking again later may help."""


class Launcher(Protocol):
    """Submit, find, watch, cancel."""

    def place(self) -> str:
        """Where its jobs run, in words: the same for all who would find them under their keys. Raises as ``find``."""

    def submit(self, job: Job) -> None:
        """Start ``job``; when one already waits or runs under its key, attach to that one. Raises ``LauncherError``."""

    def find(self, key: str) -> Status | None:
        """The status of the newest job under ``key``, or None when there never was one. Raises ``LauncherError``."""

    def wait(self, key: str, seconds: float) -> None:
        """Return after ``seconds``, or sooner when the job is seen to change. Never raises."""

    def cancel(self, key: str) -> None:
        """Ask the job to save and stop; kill it when it does not. Raises ``LauncherError``."""


def lives(launcher: Launcher, key: str) -> bool:
    """Whether a job waits or runs under ``key``. Raises as ``find``."""
    status = launcher.find(key)
    return status is not None and status.state.lives


def holds_password(value: str) -> bool:
    """Whether ``value`` is an address with a password in it, which no job's description is a place for."""
    try:
        return "@" in value and urlsplit(value).password is not None
    except ValueError:
        return False


def names_secret(name: str) -> bool:
    """Whether an environment variable of that name is likely to hold a secret."""
    return _SECRET.search(name) is not None


def launcher(name: str, settings: Settings) -> Launcher:
    """The launcher called ``name``, as ``settings`` describe its cluster. Raises ``LauncherError``."""
    if name == "local":
        from flows.launchers.local import LocalLauncher

        return LocalLauncher()
    if name == "slurm":
        from flows.launchers.slurm import SlurmLauncher

        if settings.slurm is None:
            raise LauncherError("the settings file has no `slurm:` part; docs/slurm.md says what stands there")
        return SlurmLauncher(settings.slurm)
    if name == "eks":
        from flows.launchers.eks import EksLauncher

        if settings.eks is None:
            raise LauncherError("the settings file has no `eks:` part; docs/eks.md says what stands there")
        return EksLauncher(settings.eks)
    raise LauncherError(f"launcher {name!r} is not known; expected local, slurm or eks")
