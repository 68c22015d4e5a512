"""One lease for a lake: one holder at a time, successors by token, and the paused one finds out."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from lease_worker import compete, hold
from planned import one_process

from ingestion.lake import Lake
from seismic_model.training.fencing import FencedLake, held
from seismic_model.training.lease import FencedError, HeldElsewhereError, Lease, acquire, holder

SPAWN = multiprocessing.get_context("spawn")
LOCKS = "locks/training"


def keys(lake: Lake) -> list[str]:
    return sorted(entry.key.removeprefix(f"{LOCKS}/") for entry in lake.objects(LOCKS) if "clock" not in entry.key)


def pass_time(lake: Lake, seconds: float) -> None:
    """Everything on a lake in a folder becomes older."""
    for entry in lake.objects(LOCKS):
        path = Path(lake.uri.removeprefix("file://")) / entry.key
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


@pytest.fixture
def folder(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def test_another_run_is_refused_and_told_who_holds_it_and_until_when(lake: Lake) -> None:
    acquire(lake, "week-48", "here", "process 7 of n1\x1b[2J")
    with pytest.raises(HeldElsewhereError, match="is held by run week-48") as refused:
        acquire(lake, "week-49", "here", "process 8 of n2")
    assert refused.value.holder.expires == refused.value.holder.since + 1800
    said = str(refused.value)
    assert "process 7 of n1\\x1b[2J" in said
    assert f"expires {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(refused.value.holder.expires))} UTC" in said
    assert keys(lake) == ["000000000001.json"]


def test_a_released_lease_is_free_at_once_and_what_came_before_is_pruned(lake: Lake) -> None:
    first = acquire(lake, "week-48", "here", "me")
    first.renew()
    first.release()
    second = acquire(lake, "week-49", "here", "me")
    assert second.token == first.token + 1
    assert keys(lake) == ["000000000002.json"]
    with pytest.raises(FencedError):
        first.check()


def test_a_second_start_of_the_same_run_takes_over_at_once(lake: Lake) -> None:
    paused = acquire(lake, "week-48", "here", "me")
    again = acquire(lake, "week-48", "here", "me")
    with pytest.raises(FencedError, match="another start took over"):
        paused.renew()
    paused.release()  # of no effect
    again.check()
    with pytest.raises(HeldElsewhereError):
        acquire(lake, "week-49", "here", "me")


def test_the_same_run_at_another_place_is_refused_like_any_other(folder: Lake) -> None:
    first = acquire(folder, "week-48", "cluster", "me")
    with pytest.raises(HeldElsewhereError, match=r"held by run week-48 \(me; cluster\)"):
        acquire(folder, "week-48", "laptop", "you")
    first.check()
    first.release()
    acquire(folder, "week-48", "laptop", "you")


def test_it_lasts_as_long_as_its_holder_asked_for_since_it_was_renewed(folder: Lake) -> None:
    lease = acquire(folder, "week-48", "here", "me", ttl=100)
    pass_time(folder, 99)
    lease.renew()
    pass_time(folder, 99)
    with pytest.raises(HeldElsewhereError):
        acquire(folder, "week-49", "here", "me", ttl=1)
    pass_time(folder, 2)
    acquire(folder, "week-49", "here", "me", ttl=1)


def test_a_token_that_was_pruned_is_not_taken_again(folder: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who slept between looking and creating finds his token free, but higher ones there."""
    create, slept = Lake.create, False

    def late(lake: Lake, key: str, data: bytes) -> bool:
        nonlocal slept
        if not slept:
            slept = True
            for _ in range(3):
                acquire(folder, "week-48", "here", "me")
        return create(lake, key, data)

    monkeypatch.setattr(Lake, "create", late)
    with pytest.raises(HeldElsewhereError, match="week-48"):
        acquire(folder, "week-49", "here", "me")
    found = holder(folder)
    assert found is not None
    assert (found.token, found.owner) == (3, "week-48")


def test_what_a_fenced_process_writes_does_not_arrive(lake: Lake) -> None:
    mine = FencedLake(lake, acquire(lake, "week-48", "here", "me"))
    mine.write("runs/a", b"1")
    acquire(lake, "week-48", "here", "me again")
    for change in (
        lambda: mine.write("runs/a", b"2"),
        lambda: mine.create("runs/b", b"2"),
        lambda: mine.delete(["runs/a"]),
    ):
        with pytest.raises(FencedError):
            change()
    assert lake.read("runs/a") == b"1"
    assert not lake.exists("runs/b")


@pytest.mark.parametrize("place", ["s3", "folder"])
def test_of_eight_that_start_together_one_gets_it(place: str, lake: Lake, folder: Lake) -> None:
    where = lake if place == "s3" else folder
    start = SPAWN.Barrier(8)
    pipes = [SPAWN.Pipe(duplex=False) for _ in range(8)]
    processes = [
        SPAWN.Process(target=compete, args=(where.uri, f"run-{number}", start, pipe[1]))
        for number, pipe in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    said = [pipe[0].recv() for pipe in pipes]
    for process in processes:
        process.join()
    assert [each for each in said if isinstance(each, int)] == [1]
    winner = f"run-{said.index(1)}"
    assert set(said) == {1, winner}  # the others know whom they wait for


def test_a_paused_holder_is_succeeded_after_its_time_and_fenced_when_it_wakes(lake: Lake) -> None:
    ear, mouth = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=hold, args=(lake.uri, mouth))
    process.start()
    try:
        assert ear.recv() == "holds"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        refused = 0
        while True:
            try:
                successor = acquire(lake, "successor", "here", "me", ttl=60)
                break
            except HeldElsewhereError:
                refused += 1
                time.sleep(0.1)
        assert refused  # not before its time
        lake.write("runs/figures", b"successor")
        os.kill(process.pid, signal.SIGCONT)
        assert "another start took over" in ear.recv()
        process.join()
        assert lake.read("runs/figures") == b"successor"
        successor.check()
    finally:
        process.kill()


class Leases(RuleBasedStateMachine):
    """Any order of starts, renewals, ends and waits, compared with one number, one owner at its place and one age."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.lake = Lake(self.folder.name)
        self.leases: list[Lease] = []
        self.owner, self.age, self.released = ("", ""), 0.0, True

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(owner=st.tuples(st.sampled_from("ab"), st.sampled_from(["here", "there"])))
    def start(self, owner: tuple[str, str]) -> None:
        free = self.released or self.owner == owner or self.age > 100
        if not free:
            with pytest.raises(HeldElsewhereError, match=f"held by run {self.owner[0]} .me; {self.owner[1]}"):
                acquire(self.lake, *owner, "me", ttl=100)
            return
        self.leases.append(acquire(self.lake, *owner, "me", ttl=100))
        self.owner, self.age, self.released = owner, 0.0, False
        assert [lease.token for lease in self.leases] == list(range(1, len(self.leases) + 1))

    @rule(seconds=st.sampled_from([30, 60, 150]))
    def wait(self, seconds: float) -> None:
        pass_time(self.lake, seconds)
        self.age += seconds

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), what=st.sampled_from(["check", "renew", "release"]))
    def use(self, data: st.DataObject, what: str) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        newest = lease is self.leases[-1]
        try:
            getattr(lease, what)()
        except FencedError:
            assert not newest
        else:
            assert newest or what == "release"
            if newest and what == "renew":
                self.age = 0.0
            if newest and what == "release":
                self.released = True


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_a_run_that_stands_still_keeps_nobody_out_after_its_time(lake: Lake) -> None:
    with one_process() as mesh, held(lake, "week-48", mesh, ttl=5) as mine:
        while True:  # twice its time
            lake.write("runs/week-48/heartbeat.json", b"{}")
            time.sleep(0.1)
            found = holder(lake)
            assert found is not None
            if found.renewed > found.since + 10:
                break
        with pytest.raises(HeldElsewhereError):
            acquire(lake, "week-49", "here", "me")
        while not _free(lake):  # hangs where it is renewed for ever
            time.sleep(0.1)
        with pytest.raises(FencedError):
            mine.write("runs/figures", b"it moves again")


def _free(lake: Lake) -> bool:
    try:
        acquire(lake, "week-49", "here", "me")
    except HeldElsewhereError:
        return False
    return True
