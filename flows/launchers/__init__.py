"""Where a training job runs: one small interface, one module for each place.

A launcher knows nothing of the model. It is given a job with a key; the same key always finds the
same job, so a flow that was killed and started again attaches instead of training twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class State(Enum):
    """What a launcher can say of a job."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # ended otherwise than with exit code 0, or lost; submitting again resumes it


@dataclass(frozen=True)
class Job:
    """``torchrun -m module arguments`` on ``processes`` processes.

    ``key`` is the idempotency key: one job runs under it at a time.
    """

    key: str
    module: str
    arguments: tuple[str, ...]
    processes: int
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """A job's state, and for a person: the exit code and the end of its log."""

    state: State
    exit_code: int | None
    log_tail: str


class Launcher(Protocol):
    """Submit, find, watch, cancel."""

    def submit(self, job: Job) -> None:
        """Start ``job``; when one already runs under its key, attach to that one."""

    def find(self, key: str) -> Status | None:
        """The status of the newest job under ``key``, or None when there never was one here."""

    def cancel(self, key: str) -> None:
        """Ask the job to save and stop; kill it when it does not."""


def launcher(name: str) -> Launcher:
    """The launcher called ``name``. Raises ``ValueError``."""
    if name == "local":
        from flows.launchers.local import LocalLauncher

        return LocalLauncher()
    raise ValueError(f"launcher {name!r} is not known; expected 'local'")
