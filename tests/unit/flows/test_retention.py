"""What may be deleted of old runs, and what never may."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from asked import RAW, finish
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from planned import plan as planned

from flows import retention
from flows.launchers import Launcher
from flows.launchers.local import LocalLauncher
from flows.launchers.remains import forget, sizes
from flows.launchers.slurm import SlurmLauncher, state_folder
from flows.launchers.slurm_settings import SlurmSettings
from flows.mlflow_backup import superfluous, thin
from flows.pause import pause
from flows.retention import Found, Rules
from flows.training import job_key
from flows.week import Outcome, outcome_key
from flows.week_command import main
from ingestion.lake import Lake
from seismic_model.registry.audit import Action, AuditEntry, record
from seismic_model.training.lease import acquire

WEEK = 7 * 86_400
FOUR_WEEKS = 4 * WEEK
NOW = datetime.now(UTC)
RULES = Rules(NOW, timedelta(weeks=4), timedelta(weeks=12), {})


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine's jobs leave their folders."""
    monkeypatch.setenv("SFM_JOBS", str(tmp_path / "jobs"))
    return tmp_path / "jobs"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A finished run with a registered checkpoint, an older one, and what a killed process left; all of it old."""
    lake = Lake(str(tmp_path / "lake"))
    planned(lake, run="old")
    for step in (10, 20):
        checkpoint(lake, "old", step)
    lake.write("runs/old/checkpoints/step-00000020/in-use", b"registered")
    lake.write("runs/old/checkpoints/step-00000015/model-1.safetensors", b"12345")
    lake.write("runs/old/metrics.jsonl", b"{}")
    finish(lake, "old")
    age(lake, outcome_key("old"), FOUR_WEEKS + 3600)
    return lake


def checkpoint(lake: Lake, run: str, step: int) -> None:
    for name in ("model-1.safetensors", "optimizer-1.safetensors", "manifest.json"):
        lake.write(f"runs/{run}/checkpoints/step-{step:08d}/{name}", b"1234567890")


def age(lake: Lake, key: str, seconds: float) -> None:
    path = Path(lake.uri.removeprefix("file://")) / key
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def age_all(lake: Lake, prefix: str, seconds: float) -> None:
    for entry in list(lake.objects(prefix)):
        age(lake, entry.key, seconds)


def found(lake: Lake, **places: Launcher) -> Found:
    return retention.look(lake, Rules(NOW, timedelta(weeks=4), timedelta(weeks=12), places))


def run(lake: Lake, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["retention", "--lake", lake.uri, *arguments])


def can_go(lake: Lake) -> list[str]:
    return [each["folder"] for each in json.loads(run(lake, "--json").output)["old"]]


def test_a_list_first_and_nothing_is_deleted_without_being_asked(lake: Lake) -> None:
    before = sorted(entry.key for entry in lake.objects())
    shown = run(lake)
    assert shown.exit_code == 0
    assert "can go runs/old/checkpoints/step-00000010 (30 bytes)" in shown.output
    assert "can go runs/old/checkpoints/step-00000015 (5 bytes, left by a killed process)" in shown.output
    assert "stays  old: step-00000020 is in use" in shown.output
    assert "35 bytes; --delete deletes them" in shown.output
    assert sorted(entry.key for entry in lake.objects()) == before


def test_deleting_takes_exactly_what_was_listed(lake: Lake) -> None:
    going = can_go(lake)
    before = sorted(entry.key for entry in lake.objects())
    assert "35 bytes deleted" in run(lake, "--delete").output
    assert sorted(entry.key for entry in lake.objects()) == [
        key for key in before if not any(key.startswith(f"{folder}/") for folder in going)
    ]
    assert can_go(lake) == []


def test_a_copy_that_a_person_laid_beside_checkpoints_stays(lake: Lake) -> None:
    lake.write("runs/old/checkpoints/step-00000010-good/manifest.json", b"{}")
    lake.write("runs/old/checkpoints/notes.txt", b"mine")
    assert "stays  old: step-00000010-good is no checkpoint's folder" in run(lake, "--delete").output
    assert lake.exists("runs/old/checkpoints/step-00000010-good/manifest.json")
    assert lake.exists("runs/old/checkpoints/notes.txt")


def test_a_run_that_is_not_finished_or_not_old_enough_keeps_everything(lake: Lake) -> None:
    checkpoint(lake, "unfinished", 10)
    checkpoint(lake, "young", 10)
    finish(lake, "young")
    assert not any("unfinished" in folder or "young" in folder for folder in can_go(lake))
    assert "stays  unfinished: not finished" in run(lake).output
    assert "stays  young: finished only on" in run(lake).output
    assert any("young" in folder for folder in json_old(lake, "1h")) is False
    age(lake, outcome_key("young"), 7200)
    assert any("young" in folder for folder in json_old(lake, "1h"))


def json_old(lake: Lake, older: str) -> list[str]:
    return [each["folder"] for each in json.loads(run(lake, "--older", older, "--json").output)["old"]]


def test_the_start_of_a_living_run_stays_until_that_run_is_finished(lake: Lake) -> None:
    init = {"origin": "weights", "run": "old", "step": 10, "weights_sha256": "0" * 64}
    planned(lake, run="child", init=init)
    assert can_go(lake) == ["runs/old/checkpoints/step-00000015"]
    assert "stays  old: an unfinished run began with step-00000010" in run(lake).output
    finish(lake, "child")
    assert "runs/old/checkpoints/step-00000010" in can_go(lake)


def die_at_the_second_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    delete, calls = Lake.delete, 0

    def dies(self: Lake, keys: list[str]) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        delete(self, keys)

    monkeypatch.setattr(Lake, "delete", dies)


def test_a_deletion_that_is_killed_leaves_no_half_that_looks_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    [first] = [each for each in found(lake).old if each.folder.endswith("step-00000010")]
    die_at_the_second_deletion(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        retention.delete(lake, first, RULES)
    monkeypatch.undo()
    assert not lake.exists(f"{first.folder}/manifest.json")
    assert first.folder in can_go(lake)
    run(lake, "--delete")
    assert not list(lake.objects(first.folder))


def abandon(lake: Lake, run: str = "2026-w20-tiny-s0") -> str:
    """A run that nothing was heard of for long; its only checkpoint."""
    planned(lake, run=run)
    checkpoint(lake, run, 10)
    lake.write(f"runs/{run}/heartbeat.json", b"{}")
    age_all(lake, f"runs/{run}", 12 * WEEK + 3600)
    return f"runs/{run}/checkpoints/step-00000010"


def test_weights_of_an_abandoned_run_go_and_its_config_and_figures_stay(lake: Lake) -> None:
    going = abandon(lake)
    assert going in can_go(lake)
    run(lake, "--delete")
    assert not list(lake.objects(going))
    assert lake.exists("runs/2026-w20-tiny-s0/config.json")
    assert lake.exists("runs/2026-w20-tiny-s0/heartbeat.json")
    assert lake.exists("runs/old/metrics.jsonl")


def sign_of_life(lake: Lake, run: str) -> None:
    lake.write(f"runs/{run}/heartbeat.json", b"{}")


def week_begun(lake: Lake, run: str) -> None:
    lake.write("weeks/2026-W20/begun.json", b"{}")


def lease(lake: Lake, run: str) -> None:
    acquire(lake, run, "here", "a test")


def pause_training(lake: Lake, run: str) -> None:
    pause(lake, "ann", "the cluster moves")


@pytest.mark.parametrize("wake", [sign_of_life, week_begun, lease, pause_training])
def test_an_unfinished_run_that_may_still_be_wanted_stays_even_between_listing_and_deleting(
    lake: Lake, wake: Callable[[Lake, str], None]
) -> None:
    going = abandon(lake)
    [listed] = [each for each in found(lake).old if each.folder == going]
    wake(lake, "2026-w20-tiny-s0")
    assert going not in can_go(lake)
    assert retention.delete(lake, listed, RULES) is False
    assert lake.exists(f"{going}/manifest.json")


def test_a_registration_between_listing_and_deleting_keeps_the_checkpoint(lake: Lake) -> None:
    [listed] = [each for each in found(lake).old if each.folder.endswith("10")]
    lake.write(f"{listed.folder}/in-use", b"registered")
    assert retention.delete(lake, listed, RULES) is False
    assert lake.exists(f"{listed.folder}/manifest.json")


@pytest.mark.parametrize(
    ("action", "version", "before", "stays"),
    [
        ("approve", "7", {"challenger": "7", "champion": "5"}, True),
        ("approve", "8", {"challenger": "8", "champion": "7"}, True),
        ("register", "8", {"champion": "7"}, True),
        ("reject", "9", {"challenger": "9", "champion": "8", "previous-champion": "6"}, False),
    ],
)
def test_nothing_of_the_champion_s_run_goes_though_its_mark_was_lost(
    lake: Lake, action: Action, version: str, before: dict[str, str], stays: bool
) -> None:
    lake.delete(["runs/old/checkpoints/step-00000020/in-use"])
    won = Outcome(run="old", week="2026-W40", dataset="d", promote=True, reasons=[], version="7")
    lake.write(outcome_key("old"), won.to_bytes())
    age(lake, outcome_key("old"), FOUR_WEEKS + 3600)
    noted = {"model": "m", "by": "ann", "reason": None, "weights_sha256": None, "aliases_before": before}
    record(lake, AuditEntry.model_validate({"at": NOW, "action": action, "version": version} | noted))
    assert (can_go(lake) == []) == stays
    assert ("stays  old: version 7 of the registry comes from it" in run(lake).output) == stays


def test_what_is_no_run_of_ours_is_left_alone(lake: Lake) -> None:
    lake.write("runs/My Run/checkpoints/step-00000010/manifest.json", b"{}")
    lake.write("runs/My Run/outcome.json", b"{}")
    age_all(lake, "runs/My Run", FOUR_WEEKS + 3600)
    assert run(lake, "--delete").exit_code == 0
    assert lake.exists("runs/My Run/checkpoints/step-00000010/manifest.json")


def test_an_unfinished_run_is_abandoned_after_two_weeks_at_the_earliest(lake: Lake) -> None:
    refused = run(lake, "--abandoned", "13d", "--delete")
    assert refused.exit_code == 2
    assert "at least 2w" in refused.output


# ---- folders of jobs


def leave(jobs: Path, lake: Lake, run: str) -> Path:
    """What the job of ``run`` left on this machine."""
    folder = LocalLauncher().folder(job_key(lake, run))
    folder.mkdir(parents=True)
    for name, text in (("lock", ""), ("group", "123"), ("log", "the end"), ("exit_code", "0")):
        (folder / name).write_text(text)
    return folder


def test_folders_of_jobs_go_with_their_run_and_no_sooner(lake: Lake, jobs: Path) -> None:
    abandon(lake)
    planned(lake, run="unfinished")
    planned(lake, run="young")
    finish(lake, "young")
    names = ("old", "2026-w20-tiny-s0", "unfinished", "young")
    ended, abandoned, unfinished, young = (leave(jobs, lake, name) for name in names)
    foreign = leave(jobs, Lake(str(jobs.parent / "other")), "old")
    listed = [each.folder for each in found(lake, here=LocalLauncher()).old if each.kind == "job"]
    assert sorted(listed) == sorted(map(str, (ended, abandoned)))
    assert f"can go {ended} (11 bytes, job of old)" in run(lake).output
    assert run(lake, "--delete").exit_code == 0
    assert sorted(jobs.iterdir()) == sorted((unfinished, young, foreign))
    assert LocalLauncher().find(job_key(lake, "old")) is None


def test_the_folder_of_a_job_that_runs_stays_and_its_run_with_it(lake: Lake, jobs: Path) -> None:
    going = abandon(lake)
    folders = [leave(jobs, lake, name) for name in ("old", "2026-w20-tiny-s0")]
    locks = [(folder / "lock").open("r+") for folder in folders]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert going not in can_go(lake)
    assert f"stays  {folders[0]}" in run(lake, "--delete").output
    assert all((folder / "log").exists() for folder in folders)
    for lock in locks:
        lock.close()
    assert {*map(str, folders), going} <= set(can_go(lake))


def test_a_deletion_of_a_job_s_folder_that_is_killed_goes_on(
    lake: Lake, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = leave(jobs, lake, "old")

    def dies(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", dies)
    [listed] = [each for each in found(lake, here=LocalLauncher()).old if each.kind == "job"]
    with pytest.raises(KeyboardInterrupt):
        forget(LocalLauncher(), job_key(lake, "old"))
    monkeypatch.undo()  # of SFM_JOBS too
    monkeypatch.setenv("SFM_JOBS", str(jobs))
    assert LocalLauncher().find(job_key(lake, "old")) is None
    assert listed.folder in can_go(lake)
    run(lake, "--delete")
    assert not folder.exists()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmSettings:
    """A cluster whose queue says what ``queue`` holds, and whose login shell greets."""
    (tmp_path / "bin").mkdir()
    for name, text in (("squeue", f"cat {tmp_path}/queue"), ("sacct", "true")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "queue").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    command = ("bash", "-c", 'echo "12 welcome"; eval "$0"')
    shared = str(tmp_path / "shared")
    return SlurmSettings(command=command, folder=shared, python="python", working_directory="/", processes_per_node=1)


def test_folders_on_slurm_go_unless_their_job_is_in_the_queue(lake: Lake, slurm: SlurmSettings, tmp_path: Path) -> None:
    place = SlurmLauncher(slurm)
    key, other = job_key(lake, "old"), job_key(lake, "young")
    assert sizes(place, [key, other]) == {}  # no folder at all yet
    for each in (key, other):
        Path(state_folder(each, slurm)).mkdir(parents=True)
        Path(state_folder(each, slurm), "log").write_bytes(b"x" * 5000)
    planned(lake, run="young")
    finish(lake, "young")
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(RAW | {"slurm": slurm.model_dump(mode="json")}))
    asked = ("--settings", str(settings))
    (tmp_path / "queue").write_text(f"17|RUNNING|n1|NONE|None|sfm:{Path(state_folder(key, slurm)).name}\n")
    assert f"stays  {state_folder(key, slurm)}" in run(lake, *asked, "--delete").output
    assert Path(state_folder(key, slurm), "log").exists()
    (tmp_path / "queue").write_text("")
    listed = run(lake, *asked)
    assert f"can go {state_folder(key, slurm)}" in listed.output
    assert "young" not in listed.output.replace("stays  young", "")
    assert run(lake, *asked, "--delete").exit_code == 0
    assert [each.name for each in Path(slurm.folder).iterdir()] == [Path(state_folder(other, slurm)).name]


def test_a_run_whose_job_waits_on_slurm_is_not_abandoned(lake: Lake, slurm: SlurmSettings, tmp_path: Path) -> None:
    going = abandon(lake)
    key = job_key(lake, "2026-w20-tiny-s0")
    (tmp_path / "queue").write_text(f"17|PENDING||NONE|Priority|sfm:{Path(state_folder(key, slurm)).name}\n")
    assert going not in [each.folder for each in found(lake, Slurm=SlurmLauncher(slurm)).old]


def test_a_cluster_that_does_not_answer_deletes_nothing(lake: Lake, slurm: SlurmSettings, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    broken = slurm.model_copy(update={"command": ("false",)})
    settings.write_text(yaml.safe_dump(RAW | {"slurm": broken.model_dump(mode="json")}))
    before = sorted(entry.key for entry in lake.objects())
    refused = run(lake, "--settings", str(settings), "--delete")
    assert (refused.exit_code, "the folder of jobs cannot be read" in refused.output) == (1, True)
    assert sorted(entry.key for entry in lake.objects()) == before


# ---- copies of the registry

moments = st.datetimes(datetime(2024, 1, 1), datetime(2026, 11, 30), timezones=st.just(UTC)).map(
    lambda each: each.replace(microsecond=0)
)
MONTH = timedelta(weeks=4)


@given(st.sets(moments, max_size=30), st.timedeltas(timedelta(0), timedelta(days=200)))
def test_the_newest_the_young_and_one_of_each_month_stay(taken: set[datetime], later: timedelta) -> None:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    stay = taken - thin(taken, now, MONTH)
    assert stay >= {each for each in taken if now - each < MONTH}
    assert not taken or max(taken) in stay
    assert {(each.year, each.month) for each in stay} == {(each.year, each.month) for each in taken}
    counted = [(each.year, each.month) for each in stay if now - each >= MONTH and each != max(taken)]
    assert len(counted) == len(set(counted))
    assert thin(stay, now, MONTH) == set()
    assert stay - thin(stay, now + later, MONTH) == taken - thin(taken, now + later, MONTH)  # however often it is asked


def keep_copy(lake: Lake, days: float, *, whole: bool = True) -> str:
    folder = f"backups/mlflow/{NOW - timedelta(days=days):%Y%m%dT%H%M%SZ}"
    lake.write(f"{folder}/mlflow.db", b"0123456789")
    if whole:
        lake.write(f"{folder}/backup.json", b"{}")
    return folder


def test_old_copies_of_the_registry_go_and_what_a_person_laid_there_stays(lake: Lake) -> None:
    kept = [keep_copy(lake, days) for days in (0, 1, 27)]
    old = [keep_copy(lake, days) for days in range(100, 300)]
    broken = keep_copy(lake, 60, whole=False)
    fresh = keep_copy(lake, 2, whole=False)  # may be under way
    lake.write("backups/mlflow/before-upgrade/mlflow.db", b"x")
    lake.write("backups/pg.dump", b"x")
    listed = can_go(lake)
    assert broken in listed
    assert not {*kept, fresh} & set(listed)
    assert len(set(old) - set(listed)) == len({folder[15:21] for folder in old})  # one of each month
    run(lake, "--delete")
    assert {entry.key.rpartition("/")[0] for entry in lake.objects("backups")} == (
        {*kept, *old, fresh, "backups", "backups/mlflow/before-upgrade"} - set(listed)
    )
    assert [each for each in can_go(lake) if "backups" in each] == []


def test_a_deletion_of_a_copy_that_is_killed_leaves_none_that_looks_whole(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = "backups/mlflow/20240111T020000Z"
    for folder in ("backups/mlflow/20240110T020000Z", going, keep_copy(lake, 1)):
        lake.write(f"{folder}/mlflow.db", b"0123456789")
        lake.write(f"{folder}/backup.json", b"{}")
    [old] = [each for each in found(lake).old if each.kind == "backup"]
    assert old.folder == going
    die_at_the_second_deletion(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        retention.delete(lake, old, RULES)
    monkeypatch.undo()
    assert not lake.exists(f"{going}/backup.json")
    assert superfluous(lake, NOW, MONTH) == [(going, "broken off", 10)]
