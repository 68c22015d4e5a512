"""What the flow does when a job fails: again, away from bad nodes, or not at all. Only the scheduler is scripted."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from asked import commit
from obstore.exceptions import GenericError

from flows.budget import cost
from flows.launchers import Cause, Job, LauncherError, State, Status, UnreachableError
from flows.pause import pause
from flows.settings import Budget
from flows.training import AGAIN, Patience, TrainingFailedError, train
from ingestion.lake import Lake
from seismic_model.config import MODEL_SIZES, RunConfig, run_folder
from seismic_model.training.lease import acquire

STEPS = 100
QUICK = Patience(hang=60, away=5, poll=0.001, again=0.0)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return RunConfig.model_validate(
        {
            "lake": Lake(str(tmp_path)).uri,
            "run": "r",
            "dataset": "datasets/2026-W49.json",
            "dataset_sha256": "0" * 64,
            "model": MODEL_SIZES["tiny"],
            "window": (16, 16, 16),
            "keep_ratio": 0.25,
            "seed": 0,
            "steps": STEPS,
            "batch": 2,
            "learning_rate": 0.001,
            "warmup_steps": 1,
            "strategy": "ddp",
            "cp": 1,
            "checkpoint_every": 10,
        }
    )


Event = Status | Exception | Callable[[], Status]


@dataclass
class Scripted:
    """A scheduler that answers what the test says, one event a question; the last one for ever."""

    events: list[Event]
    submitted: list[Job] = field(default_factory=list)
    cancelled: int = 0

    def place(self) -> str:
        return "here"

    def submit(self, job: Job) -> None:
        self.submitted.append(job)

    def find(self, key: str) -> Status | None:
        event = self.events.pop(0) if len(self.events) > 1 else self.events[0]
        if isinstance(event, Exception):
            raise event
        return event if isinstance(event, Status) else event()

    def wait(self, key: str, seconds: float) -> None:
        time.sleep(seconds)

    def cancel(self, key: str) -> None:
        self.cancelled += 1


@dataclass
class Watched:
    said: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def update(self, metrics: list[dict[str, Any]]) -> None:
        self.steps.append(metrics[-1]["step"])

    def say(self, words: str) -> None:
        self.said.append(words)


RUNNING = Status(State.RUNNING, None, "", place="job 1")
WELL = Status(State.SUCCEEDED, 0, "")


def failed(cause: Cause, *nodes: str) -> Status:
    return Status(State.FAILED, 1, "the end of the log", cause, "job 1 on n1", nodes)


def finished(config: RunConfig) -> Callable[[], Status]:
    """The job's good end, with its last checkpoint."""

    def event() -> Status:
        commit(config, STEPS)
        return WELL

    return event


def follow(config: RunConfig, *events: Event) -> tuple[Scripted, Watched]:
    launcher, view = Scripted(list(events)), Watched()
    train(config, 2, launcher, view, patience=QUICK)
    return launcher, view


def test_a_finished_run_ends(config: RunConfig) -> None:
    launcher, _ = follow(config, RUNNING, finished(config))
    assert len(launcher.submitted) == 1


@pytest.mark.parametrize("cause", list(Cause))
def test_each_cause_is_tried_again_as_often_as_makes_sense(config: RunConfig, cause: Cause) -> None:
    launcher, view = Scripted([failed(cause)]), Watched()
    with pytest.raises(TrainingFailedError) as raised:
        train(config, 2, launcher, view, patience=QUICK)
    assert len(launcher.submitted) == 1 + AGAIN[cause]
    for part in (cause.value, "step 0 of 100", "job 1 on n1", "start the week again", "the end of the log"):
        assert part in str(raised.value)


def test_new_checkpoints_start_the_counting_anew(config: RunConfig) -> None:
    def later(step: int) -> Callable[[], Status]:
        def event() -> Status:
            commit(config, step)
            return failed(Cause.ERROR)

        return event

    launcher, _ = follow(config, *(later(step) for step in range(10, STEPS + 1, 10)))
    assert len(launcher.submitted) == STEPS // 10  # the last one failed after its work was done


def test_bad_nodes_are_left_out_from_then_on(config: RunConfig) -> None:
    lost = [failed(Cause.NODE_LOST, "n1"), failed(Cause.NODE_LOST, "n3", "n1")]
    launcher, _ = follow(config, *lost, finished(config))
    assert [job.exclude for job in launcher.submitted] == [(), ("n1",), ("n1", "n3")]


def test_a_job_without_a_sign_of_life_is_ended_and_started_again(config: RunConfig) -> None:
    lake, key = Lake(config.lake), f"{run_folder(config.run)}/heartbeat.json"
    lake.write(key, b"{}")
    path = Path(lake.uri.removeprefix("file://")) / key
    os.utime(path, (time.time() - 30,) * 2)
    hour = time.time() + 3600
    clock = iter([time.time(), time.time() + 20, hour, hour])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.training.time.time", lambda: next(clock))
        launcher, view = follow(config, RUNNING, RUNNING, RUNNING, RUNNING, finished(config))
    assert (launcher.cancelled, len(launcher.submitted)) == (1, 2)
    assert any("standing still" in words for words in view.said)


def test_a_job_that_waited_for_nodes_again_has_time_to_start(config: RunConfig) -> None:
    now = time.time()
    clock = iter([now, now + 3600])
    waiting = Status(State.PENDING, None, "", place="job 1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.training.time.time", lambda: next(clock))
        launcher, _ = follow(config, RUNNING, waiting, RUNNING, finished(config))
    assert launcher.cancelled == 0


def test_a_store_whose_clock_is_behind_is_no_hang(config: RunConfig) -> None:
    lake, key = Lake(config.lake), f"{run_folder(config.run)}/heartbeat.json"
    now = time.time()

    def beat(seconds: float) -> Callable[[], Status]:
        def event() -> Status:
            lake.write(key, b"{}")
            os.utime(Path(lake.uri.removeprefix("file://")) / key, (now - 7200 + seconds,) * 2)
            return RUNNING

        return event

    clock = iter([now, now + 40, now + 80, now + 120])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.training.time.time", lambda: next(clock))
        launcher, _ = follow(config, beat(0), beat(40), beat(80), beat(120), finished(config))
    assert launcher.cancelled == 0


def test_slow_steps_are_no_hang(config: RunConfig) -> None:
    lake = Lake(config.lake)
    lake.write(f"{run_folder(config.run)}/metrics.jsonl", json.dumps({"step": 1, "seconds": 500.0}).encode())
    now = time.time()
    clock = iter([now, now + 4000])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.training.time.time", lambda: next(clock))
        launcher, view = follow(config, RUNNING, RUNNING, finished(config))
    assert launcher.cancelled == 0
    assert view.steps == [1]


def test_a_scheduler_that_is_away_is_waited_for(config: RunConfig) -> None:
    away = UnreachableError("the controller does not answer")
    launcher, view = follow(config, RUNNING, away, away, RUNNING, finished(config))
    assert len(launcher.submitted) == 1
    assert "waiting for the scheduler: the controller does not answer" in view.said


def test_a_lake_that_is_away_is_waited_for(config: RunConfig) -> None:
    away = GenericError("connection refused")
    launcher, view = follow(config, RUNNING, away, away, RUNNING, finished(config))
    assert len(launcher.submitted) == 1
    assert any(words.startswith("waiting for the lake: ") for words in view.said)


def test_a_job_that_ended_when_its_budget_did_is_not_submitted_again(config: RunConfig) -> None:
    """Whatever ended it: a job without time left would have no time limit at all."""

    def lost() -> Status:
        used = json.dumps({"step": 1, "seconds": 1.5 * 3600}).encode()
        Lake(config.lake).write(f"{run_folder('r')}/metrics.jsonl", used)
        return failed(Cause.NODE_LOST)

    launcher = Scripted([lost])
    with pytest.raises(TrainingFailedError, match="the end of its budget"):
        train(config, 2, launcher, Watched(), patience=QUICK, budget=Budget(gpu_hours=3))
    assert len(launcher.submitted) == 1


def test_the_log_of_a_job_whose_pods_are_gone_is_kept(config: RunConfig) -> None:
    gone = Status(State.FAILED, None, "", Cause.CANCELLED, "job 1, which someone deleted")
    launcher = Scripted([replace(RUNNING, log_tail="what it said last"), gone])
    with pytest.raises(TrainingFailedError, match="what it said last"):
        train(config, 2, launcher, Watched(), patience=QUICK)


def test_a_scheduler_that_stays_away_is_said(config: RunConfig) -> None:
    launcher = Scripted([UnreachableError("the controller does not answer")])
    with pytest.raises(UnreachableError):
        train(config, 2, launcher, Watched(), patience=Patience(away=0, poll=0.001))


def test_a_refused_job_is_not_tried_again(config: RunConfig) -> None:
    class Refusing(Scripted):
        def submit(self, job: Job) -> None:
            super().submit(job)
            raise LauncherError("no partition gpu; there are: cpu")

    launcher = Refusing([RUNNING])
    with pytest.raises(LauncherError, match="no partition gpu"):
        train(config, 2, launcher, Watched(), patience=QUICK)
    assert len(launcher.submitted) == 1


def test_a_job_that_was_asked_to_stop_is_not_done(config: RunConfig) -> None:
    commit(config, 40)
    with pytest.raises(TrainingFailedError, match="stopped after 40 of 100 steps"):
        follow(config, WELL)


def test_a_job_is_stopped_before_its_budget_is_exceeded_and_all_it_used_is_kept(config: RunConfig) -> None:
    """Of an hour of two processes, all but a minute is used; five are kept for saving."""
    lake = Lake(config.lake)
    lake.write(f"{run_folder('r')}/metrics.jsonl", json.dumps({"step": 1, "seconds": 1740.0}).encode())
    launcher, view = Scripted([RUNNING, RUNNING, failed(Cause.CANCELLED)]), Watched()
    with pytest.raises(TrainingFailedError, match=r"ended by the end of its budget .*raise `budget` in the settings"):
        train(config, 2, launcher, view, patience=QUICK, budget=Budget(gpu_hours=1))
    assert launcher.cancelled
    assert len(launcher.submitted) == 1
    used = cost(lake, "r")
    assert used is not None
    assert 1740 <= used.seconds < 1800
    assert used.gpu_hours_allowed == 1


def test_a_job_gets_no_more_time_than_its_budget_has_left(config: RunConfig) -> None:
    lake = Lake(config.lake)
    launcher = Scripted([finished(config)])
    train(config, 2, launcher, Watched(), hours=100, patience=QUICK, budget=Budget(gpu_hours=3))
    assert launcher.submitted[0].hours == pytest.approx(1.5, abs=0.01)
    config = config.model_copy(update={"run": "s"})

    def over() -> Status:
        lake.write(f"{run_folder('s')}/metrics.jsonl", json.dumps({"step": 1, "seconds": 1.5 * 3600}).encode())
        return failed(Cause.TIME_LIMIT)

    launcher = Scripted([over])
    with pytest.raises(TrainingFailedError, match="the end of its budget"):
        train(config, 2, launcher, Watched(), hours=100, patience=QUICK, budget=Budget(gpu_hours=3))
    assert len(launcher.submitted) == 1


def test_without_a_budget_what_is_used_is_kept_all_the_same(config: RunConfig) -> None:
    follow(config, RUNNING, RUNNING, finished(config))
    used = cost(Lake(config.lake), "r")
    assert used is not None
    assert used.seconds > 0
    assert used.gpu_hours_allowed is None


def test_another_run_on_the_lake_is_waited_for_and_named_when_it_does_not_end(config: RunConfig) -> None:
    lake = Lake(config.lake)
    other = acquire(lake, "other-week", "here", "process 7 of n1")
    launcher, view = Scripted([RUNNING, finished(config)]), Watched()
    with pytest.raises(TrainingFailedError, match=r"held by run other-week \(process 7 of n1; here\) since"):
        train(config, 2, launcher, view, patience=replace(QUICK, other_run=0))
    assert not launcher.submitted
    Timer(0.3, other.release).start()
    train(config, 2, launcher, view, patience=QUICK)
    assert len(launcher.submitted) == 1
    assert any("waiting for run other-week" in words for words in view.said)


def test_a_run_that_was_refused_since_another_began_in_the_same_moment_waits_for_it(config: RunConfig) -> None:
    lake = Lake(config.lake)
    others = []

    def refused() -> Status:
        others.append(acquire(lake, "other-week", "here", "process 7 of n1"))
        return failed(Cause.ERROR)

    launcher, view = Scripted([refused]), Watched()
    with pytest.raises(TrainingFailedError, match="held by run other-week"):
        train(config, 2, launcher, view, patience=replace(QUICK, other_run=0))
    assert (len(launcher.submitted), len(others)) == (1, 1)


def test_the_own_lease_of_a_run_is_not_waited_for(config: RunConfig) -> None:
    acquire(Lake(config.lake), config.run, "here", "its job")
    launcher, _ = follow(config, RUNNING, finished(config))
    assert [job.environment["SFM_PLACE"] for job in launcher.submitted] == ["here"]


def test_the_same_run_at_another_place_is_watched_to_its_end(config: RunConfig) -> None:
    lake = Lake(config.lake)
    other = acquire(lake, config.run, "there", "process 7 of n1")
    lake.write(f"{run_folder('r')}/metrics.jsonl", json.dumps({"step": 7, "seconds": 1.0}).encode())

    def end() -> None:
        commit(config, STEPS)
        other.release()

    Timer(0.3, end).start()
    launcher, view = Scripted([RUNNING]), Watched()
    train(config, 2, launcher, view, patience=replace(QUICK, other_run=0))
    assert not launcher.submitted
    assert view.steps == [7]
    assert any("waiting for run r (process 7 of n1; there) since" in words for words in view.said)


def test_the_same_run_that_stands_still_at_another_place_is_said(config: RunConfig) -> None:
    acquire(Lake(config.lake), config.run, "there", "process 7 of n1")
    now = time.time()
    clock = iter([now, now, now, now + 600, now + 600])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.training.time.time", lambda: next(clock))
        with pytest.raises(
            TrainingFailedError, match=r"run r \(process 7 of n1; there\) .* stands still: end it there"
        ):
            follow(config, RUNNING)


def test_a_start_without_budget_left_submits_nothing(config: RunConfig) -> None:
    lake = Lake(config.lake)
    lake.write(f"{run_folder('r')}/metrics.jsonl", json.dumps({"step": 1, "seconds": 1.5 * 3600}).encode())
    launcher = Scripted([failed(Cause.NODE_LOST)])
    with pytest.raises(TrainingFailedError, match="the end of its budget"):
        train(config, 2, launcher, Watched(), patience=QUICK, budget=Budget(gpu_hours=3))
    assert not launcher.submitted


def test_the_same_run_goes_on_here_when_it_ended_half_way_at_another_place(config: RunConfig) -> None:
    other = acquire(Lake(config.lake), config.run, "there", "process 7 of n1")
    Timer(0.3, other.release).start()
    launcher, _ = follow(config, RUNNING, finished(config))
    assert len(launcher.submitted) == 1


def test_of_two_places_that_take_each_other_for_dead_one_trains_on(config: RunConfig) -> None:
    """This one's job was cut off for so long that another start took over: it is not submitted against that one."""
    lake = Lake(config.lake)

    def fenced() -> Status:
        other = acquire(lake, config.run, "there", "process 7 of n1")

        def end() -> None:
            commit(config, STEPS)
            other.release()

        Timer(0.3, end).start()
        return failed(Cause.ERROR)

    launcher, _ = follow(config, RUNNING, fenced, WELL)
    assert [job.exclude for job in launcher.submitted] == [()]


def test_a_pause_keeps_a_failed_job_from_starting_again_and_one_that_waits_for_another_run(config: RunConfig) -> None:
    lake = Lake(config.lake)

    def paused_and_failed() -> Status:
        pause(lake, "ann", "the cluster moves")
        return failed(Cause.ERROR)

    launcher = Scripted([RUNNING, paused_and_failed, failed(Cause.ERROR)])
    with pytest.raises(TrainingFailedError, match=r"paused by ann .* `week resume` ends that"):
        train(config, 2, launcher, Watched(), patience=QUICK)
    assert len(launcher.submitted) == 1
    still_runs = Scripted([RUNNING, finished(config)])
    train(config, 2, still_runs, Watched(), patience=QUICK)  # what runs goes on


def test_an_odd_answer_about_a_job_that_was_taken_ends_nothing(config: RunConfig) -> None:
    odd = LauncherError("the job cannot be looked up: Unexpected message received")
    launcher, view = follow(config, RUNNING, odd, RUNNING, odd, finished(config))
    assert len(launcher.submitted) == 1
    assert any("Unexpected message received" in words for words in view.said)


def test_a_job_that_another_flow_ended_and_starts_again_was_not_cancelled(config: RunConfig) -> None:
    launcher = Scripted([RUNNING, failed(Cause.CANCELLED), failed(Cause.CANCELLED), RUNNING, finished(config)])
    train(config, 2, launcher, Watched(), patience=replace(QUICK, again=1.0))
    assert len(launcher.submitted) == 2  # the second one attaches
