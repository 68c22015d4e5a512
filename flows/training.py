"""Follow one training job from the flow: launch or attach, show it, launch again where that can help, or say why not.

A job that failed is submitted again and goes on from its last committed checkpoint, as often as its cause makes
sense (``AGAIN``); every new checkpoint starts the counting anew, so a long run outlives any number of lost nodes.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from obstore.exceptions import BaseError

from flows.budget import Meter
from flows.launchers import Cause, Job, Launcher, LauncherError, State, Status, UnreachableError, lives
from flows.pause import paused
from flows.settings import Budget
from ingestion.lake import Lake
from ingestion.names import store_message
from seismic_model.config import RunConfig, run_folder
from seismic_model.training.heartbeat import last_sign
from seismic_model.training.lease import PLACE_VARIABLE, TTL_SECONDS, Holder, holder
from seismic_model.training.metrics import read_metrics

T = TypeVar("T")

AGAIN = {  # how often in a row, without a new checkpoint between
    Cause.ERROR: 2,
    Cause.OUT_OF_MEMORY: 0,
    Cause.NODE_LOST: 5,
    Cause.PREEMPTED: 20,
    Cause.TIME_LIMIT: 1,
    Cause.CANCELLED: 0,
    Cause.HUNG: 2,
    Cause.BUDGET: 0,
}
_ADVICE = {
    Cause.ERROR: "mend what the log says",
    Cause.OUT_OF_MEMORY: "give the recipe more processes, a larger cp, or activation_checkpointing (`sfm plan` says "
    "what fits)",
    Cause.NODE_LOST: "look at the cluster (`python -m flows.doctor cluster`)",
    Cause.PREEMPTED: "wait for a quieter cluster, or give the job a higher priority",
    Cause.TIME_LIMIT: "raise `hours`, or lower `checkpoint_every` so that each job commits a checkpoint",
    Cause.CANCELLED: "a person or the scheduler's owner ended it",
    Cause.HUNG: "read the log for the process that stopped first",
    Cause.BUDGET: "raise `budget` in the settings",
}
_SLOWEST_STEPS = 10  # times the slowest step without a sign of life is a hang


class TrainingFailedError(Exception):
    """The job ended without success, and submitting it once more would not help. Starting the week again resumes it."""


class View(Protocol):
    """Where people watch."""

    def update(self, metrics: list[dict[str, Any]]) -> None:
        """Show all metrics of the run; called when there are new ones."""

    def say(self, words: str) -> None:
        """Show what the job is doing."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for what, in seconds."""

    hang: float = 600.0  # at least, for a sign of life of a running job
    away: float = 7200.0  # for a scheduler or a lake that does not answer
    poll: float = 2.0  # between two questions at the beginning; later ten times as long
    again: float = 5.0  # before a job is submitted again, times its failures
    other_run: float = 2 * TTL_SECONDS  # for another run that trains on the lake, or that was killed there
    save: float = 300.0  # for a job that is asked to stop, before its budget ends


def train(
    config: RunConfig,
    processes: int,
    launcher: Launcher,
    view: View,
    hours: float | None = None,
    patience: Patience = Patience(),
    budget: Budget | None = None,
) -> None:
    """Run ``config`` to its end, attaching when it already runs; stop it before it exceeds ``budget``.

    ``hours`` is what the scheduler allows one job. Raises ``TrainingFailedError`` with the cause and the end of the
    job's log, and ``LauncherError`` when the scheduler refuses it.
    """
    meter = Meter(Lake(config.lake), config.run, processes, budget)
    _Follower(config, launcher, view, patience, meter).follow(_job(config, processes, hours))


def committed_steps(lake: Lake, run: str) -> int:
    """Steps in the newest committed checkpoint of ``run``."""
    from seismic_model.training.checkpoint import latest  # torch, which most steps do not need

    newest = latest(lake, run)
    return newest.step if newest else 0


def runs_now(lake: Lake, run: str, launcher: Launcher) -> bool:
    """Whether a job of ``run`` waits or runs."""
    return lives(launcher, job_key(lake, run))


def cancel(lake: Lake, run: str, launcher: Launcher) -> Status | None:
    """Have the job of ``run`` save and end, whoever follows it; how it was before, or None when none waited or ran.

    What is left of one that failed goes too: it may hold nodes, or wait for some that will never do. Raises
    ``LauncherError``.
    """
    key = job_key(lake, run)
    status = launcher.find(key)
    if status is None or status.state is State.SUCCEEDED:
        return None
    launcher.cancel(key)
    return status if status.state.lives else None


def job_key(lake: Lake, run: str) -> str:
    """The idempotency key of a run's job: one lake, one run, one job."""
    return f"{lake.uri}/{run_folder(run)}"


def _job(config: RunConfig, processes: int, hours: float | None) -> Job:
    lake = Lake(config.lake)
    tracking = {name: os.environ[name] for name in ("MLFLOW_TRACKING_URI",) if name in os.environ}
    arguments = ("--config", lake.uri_of(config.key))
    return Job(
        job_key(lake, config.run), config.run, "seismic_model.train", arguments, processes, tracking, hours=hours
    )


class _Follower:
    def __init__(self, config: RunConfig, launcher: Launcher, view: View, patience: Patience, meter: Meter) -> None:
        self.config, self.launcher, self.view, self.patience, self.meter = config, launcher, view, patience, meter
        self.lake = Lake(config.lake)
        self.place = ""  # of this start's jobs
        self.failures: Counter[Cause] = Counter()
        self.reached = committed_steps(self.lake, config.run)
        self.shown = 0
        self.sign = 0.0  # when the store says that the heartbeat was written last
        self.moved: float | None = None  # when that was seen to change; None while the job does not run
        self.seen_running: float | None = None  # when it was looked at last

    def follow(self, job: Job) -> None:
        """Submit, watch, and submit again, until the run is finished or that makes no sense."""
        self.place = self._patiently(self.launcher.place)
        status = _lost()
        while self._patiently(self._is_to_train):
            self._refuse(status)
            self._submit(job)
            status = self._watched(job)
            if status.state is State.SUCCEEDED:
                self._check_finished()
            elif status.cause is not Cause.CANCELLED or not self._is_started_again():
                job = self._again(job, status)

    def _is_to_train(self) -> bool:
        """Whether steps are left, once nobody else trains: two starts never do at once on a lake.

        Another run is waited for as long as ``patience`` says, and one that was killed holds the lake until its lease
        expires; this run, started at another place, is watched there.
        """
        self.moved, deadline = None, time.monotonic() + self.patience.other_run
        while (left := self._steps_left()) and (other := holder(self.lake)) and self._stands_in_the_way(other):
            if other.owner == self.config.run:
                metrics = read_metrics(self.lake, self.config.run)
                self._show_metrics(metrics)
                if self._hangs(metrics):
                    raise TrainingFailedError(f"training {other} stands still: end it there, then start the week again")
            elif time.monotonic() > deadline:
                raise TrainingFailedError(f"training here is held by {other}; start the week again when it ended")
            self.view.say(f"waiting for {other}")
            time.sleep(self.patience.poll * 5)
        return left > 0

    def _refuse(self, last: Status) -> None:
        """Raises ``TrainingFailedError`` where no job may start now; one that waits or runs already is followed."""
        pause = self._patiently(lambda: paused(self.lake))
        if (not pause and not self._budget_ends()) or self._runs_now():
            return
        self._patiently(lambda: self.launcher.cancel(job_key(self.lake, self.config.run)))  # or it waits for ever
        stopped = f"{pause}; `week resume` ends that, then start the week again.\nThe log ends:\n{last.log_tail}"
        raise TrainingFailedError(stopped if pause else self._why(Cause.BUDGET, last))

    def _is_started_again(self) -> bool:
        """Whether another flow that follows the job starts it again, having ended it because it hung."""
        deadline = time.monotonic() + 3 * self.patience.again
        while time.monotonic() < deadline:
            if self._runs_now():
                return True
            time.sleep(self.patience.poll)
        return False

    def _runs_now(self) -> bool:
        return self._patiently(lambda: runs_now(self.lake, self.config.run, self.launcher))

    def _stands_in_the_way(self, other: Holder) -> bool:
        """A job of this run at this place does not: it is attached to, or its successor may take the lease."""
        return (other.owner, other.place) != (self.config.run, self.place) and other.holds(time.time())

    def _watched(self, job: Job) -> Status:
        """How the job ended, with the end of its log, which on Kubernetes can be gone with its pods."""
        began, log = time.monotonic(), ""
        while True:
            status = self._patiently(lambda: self._look(job), LauncherError)  # it was taken: what is odd may pass
            log = status.log_tail or log
            if not status.state.lives:
                return replace(status, log_tail=log)
            self.launcher.wait(job.key, self.patience.poll * (1 if time.monotonic() - began < 60 else 10))

    def _look(self, job: Job) -> Status:
        """How the job is, shown and counted; ended where it hangs or has used its budget up."""
        status = self.launcher.find(job.key) or _lost()
        metrics = read_metrics(self.lake, self.config.run)
        if not self._show_metrics(metrics) and status.state is State.PENDING:
            self.view.say(f"waiting for nodes: {status.place}")
        self._count(status)
        if status.state is State.RUNNING and self._hangs(metrics):
            return self._stopped(job.key, Cause.HUNG, "no sign of life since long ago")
        if status.state is State.RUNNING and self._budget_ends():
            return self._stopped(job.key, Cause.BUDGET, "its budget is used up")
        return status

    def _budget_ends(self) -> bool:
        return self.meter.left() < self.patience.save

    def _again(self, job: Job, status: Status) -> Job:
        """``job``, to be submitted again away from the nodes that failed it. Raises ``TrainingFailedError``."""
        cause = status.cause or Cause.ERROR
        if cause is Cause.TIME_LIMIT and self._budget_ends():
            cause = Cause.BUDGET
        if (committed := committed_steps(self.lake, self.config.run)) > self.reached:
            self.reached = committed
            self.failures.clear()
        self.failures[cause] += 1
        if self.failures[cause] > AGAIN[cause]:
            if cause is not Cause.CANCELLED:
                self._patiently(lambda: self.launcher.cancel(job.key))  # whose remains may hold GPUs
            raise TrainingFailedError(self._why(cause, status))
        bad = (*job.exclude, *(node for node in status.bad_nodes if node not in job.exclude))
        if bad != job.exclude:
            print(f"training {self.config.run}: leaving out {', '.join(bad)}", flush=True)
        self.view.say(f"ended by {cause.value} at step {committed}; submitting it again")
        if cause is not Cause.HUNG:  # which took its time, and who else follows the job waits for it
            time.sleep(self.patience.again * self.failures.total())
        return replace(job, exclude=bad)

    def _submit(self, job: Job) -> None:
        """Submit ``job`` with no more time than its budget has left: each start ends there though nobody follows it."""
        hours = min(job.hours or math.inf, self.meter.left() / 3600)
        environment = job.environment | {PLACE_VARIABLE: self.place}
        given = replace(job, hours=hours if math.isfinite(hours) else None, environment=environment)
        self._patiently(lambda: self.launcher.submit(given))

    def _why(self, cause: Cause, status: Status) -> str:
        times = self.failures[cause]
        often = f" {times} times without a new checkpoint" if times > 1 else ""
        code = "" if status.exit_code is None else f", exit code {status.exit_code}"
        done = committed_steps(self.lake, self.config.run)
        return (
            f"training {self.config.run} was ended by {cause.value}{often} at step {done} of "
            f"{self.config.steps} ({status.place or 'no job'}{code}); {_ADVICE[cause]}, then start the week again: it "
            f"goes on from its checkpoint.\nThe log ends:\n{status.log_tail}"
        )

    def _show_metrics(self, metrics: list[dict[str, Any]]) -> bool:
        """Whether there were new ones."""
        new = bool(metrics) and metrics[-1]["step"] != self.shown
        if new:
            self.shown = metrics[-1]["step"]
            self.view.update(metrics)
        return new

    def _count(self, status: Status) -> None:
        """Have the meter count the time that the job ran."""
        now = time.monotonic()
        if self.seen_running is not None:
            self.meter.add(now - self.seen_running)
        self.seen_running = now if status.state is State.RUNNING else None
        if status.state is not State.RUNNING:
            self.moved = None  # its scheduler may have put it back into the queue
        if not status.state.lives:
            self.meter.keep()

    def _hangs(self, metrics: list[dict[str, Any]]) -> bool:
        """Whether the running job has given no sign of life for too long; each start may take its time.

        Signs are compared with each other only, so that the store's clock may differ from this machine's.
        """
        now = time.time()
        sign = last_sign(self.lake, self.config.run)
        if self.moved is None or sign != self.sign:
            self.sign, self.moved = sign, now
        slowest = max((entry.get("seconds", 0.0) for entry in metrics[-100:]), default=0.0)
        return now - self.moved > max(self.patience.hang, _SLOWEST_STEPS * slowest)

    def _stopped(self, key: str, cause: Cause, why: str) -> Status:
        """End the job; its last status, ended by ``cause``."""
        self.view.say(f"{why}: ending the job for {cause.value}")
        self._patiently(lambda: self.launcher.cancel(key))
        self._count(_lost())
        status = self._patiently(lambda: self.launcher.find(key)) or _lost()
        return replace(status, state=State.FAILED, cause=cause)

    def _steps_left(self) -> int:
        return max(0, self.config.steps - committed_steps(self.lake, self.config.run))

    def _check_finished(self) -> None:
        """A job that was asked to stop ends well too, with its work saved but not done."""
        if left := self._steps_left():
            done, steps = self.config.steps - left, self.config.steps
            raise TrainingFailedError(
                f"training {self.config.run} was stopped after {done} of {steps} steps, with its work saved; start the "
                "week again to go on"
            )

    def _patiently(self, ask: Callable[[], T], passing: type[LauncherError] = UnreachableError) -> T:
        """The answer of the scheduler or the lake, however long it is away (the job does not mind)."""
        deadline = time.monotonic() + self.patience.away
        while True:
            try:
                return ask()
            except (passing, BaseError) as error:
                if time.monotonic() > deadline:
                    raise
                away = "scheduler" if isinstance(error, LauncherError) else "lake"
                self.view.say(f"waiting for the {away}: {store_message(error)}")
                if isinstance(error, (UnreachableError, BaseError)):
                    self.moved = None  # the job could not give a sign of life either
                time.sleep(self.patience.poll * 5)


def _lost() -> Status:
    """Of a job that nobody knows any more."""
    return Status(State.FAILED, None, "", Cause.NODE_LOST, "no trace of the job")
