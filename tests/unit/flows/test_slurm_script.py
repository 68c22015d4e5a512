"""What reaches a shell on a Slurm cluster: the batch script under a real bash, with stand-ins for Slurm's commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from flows.launchers import Job, LauncherError, UnreachableError, slurm
from flows.launchers.slurm import SlurmLauncher, render, state_folder
from flows.launchers.slurm_settings import SlurmSettings

SHOW = 'import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open(os.environ["T_SEEN"], "w"))'
STAND_INS = {
    "srun": 'while [ $# != 0 ] && [ "$1" != bash ]; do shift; done; [ $# = 0 ] || exec "$@"',
    "scontrol": 'case "$*" in *hostnames*) echo n1 ;; *node*) echo "NodeName=n1 NodeAddr=127.0.0.1 Port=1" ;; esac',
    "sinfo": "true",
    "scancel": "true",
    "squeue": "true",
    "sbatch": "cp script.sh submitted.sh && echo 17",
    "python": "exec {python} -c '{show}' \"$@\"",
}
HOSTILE = [
    "'",
    '"',
    "$(touch x)",
    "`touch x`",
    "; touch x",
    "\n",
    "\r",
    "%j",
    "\\",
    "é",
    "層",
    " ",
    "-",
    "!",
    "#SBATCH",
]
JOB = Job("k", "n", "some.module", (), 1)
TEXT = st.lists(st.sampled_from(HOSTILE) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5))
texts = TEXT.map("".join)


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    for name, body in STAND_INS.items():
        (folder / name).write_text(
            "#!/bin/bash\n" + body.replace("{python}", sys.executable).replace("{show}", SHOW) + "\n"
        )
        (folder / name).chmod(0o755)
    return folder


def cluster(folder: Path, stand_ins: Path) -> SlurmSettings:
    path = f"PATH={stand_ins}:/usr/bin:/bin"
    return SlurmSettings(
        command=("env", path, "sh", "-c"),
        folder=str(folder / "jobs"),
        python=str(stand_ins / "python"),
        working_directory=str(folder),
        processes_per_node=1,
    )


def run_script(script: Path, stand_ins: Path, **variables: str) -> int:
    """Its exit code as job 17, by its shell on n1, with a log beside it as Slurm makes it."""
    node = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n1", "SLURM_STEP_NODELIST": "n1", "SLURMD_NODENAME": "n1"}
    with (script.parent / "log").open("ab") as log:
        done = subprocess.run(
            ["bash", script],
            env=node
            | variables
            | {"PATH": f"{stand_ins}:/usr/bin:/bin", "SLURM_CPUS_ON_NODE": "2", "LC_ALL": "C.UTF-8"},
            stdout=log,
            stderr=log,
        )
    return done.returncode


@settings(max_examples=40)
@given(key=texts, name=texts, arguments=st.lists(texts, max_size=4), value=texts)
@example(key="it's $(touch x)", name="`touch x`\n#SBATCH --uid=0", arguments=["a'b\n$(touch x)", "", "-c"], value="\n")
def test_what_comes_from_outside_arrives_as_it_was(
    stand_ins: Path, key: str, name: str, arguments: list[str], value: str
) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        described = cluster(folder, stand_ins)
        seen = str(folder / "seen.json")
        job = Job(key, name, "some.module", tuple(arguments), 1, {"T_VALUE": value, "T_SEEN": seen}, hours=2.5)
        SlurmLauncher(described).submit(job)
        state = Path(state_folder(key, described))
        script = (state / "submitted.sh").read_bytes().decode()
        assert script == render(job, described)
        _check_directives(script)
        assert run_script(state / "submitted.sh", stand_ins) == 0, (state / "log").read_text()
        argv, environment = json.loads(Path(seen).read_text())
        assert argv[argv.index("some.module") + 1 :] == arguments
        assert environment["T_VALUE"] == value
        assert json.loads((state / "result.json").read_text())["cause"] == "SUCCEEDED"
        assert {path.name for path in folder.iterdir()} == {"jobs", "seen.json"}
        assert {path.name for path in state.iterdir()} == {
            "bad", "job", "log", "nodes", "result.json", "script.sh", "submitted", "submitted.sh",
        }  # fmt: skip


def _check_directives(script: str) -> None:
    """Slurm reads the comments at the top with quoting rules of its own."""
    head = script.split("set -u")[0].splitlines()
    directives = [line for line in head if line.startswith("#SBATCH")]
    assert len(directives) == 12
    for line in directives:
        assert re.fullmatch(r"#SBATCH --[a-z-]+(=[A-Za-z0-9._:@/-]+)?", line), line
    assert all(line.startswith("#") for line in head)


@pytest.mark.parametrize(
    "change",
    [{"arguments": ("a\0b",)}, {"arguments": ("\ud800",)}, {"environment": {"A": "\0"}}, {"environment": {"A B": "x"}},
     {"environment": {"MLFLOW_TRACKING_URI": "https://me:secret@mlflow"}},
     {"exclude": ("n1 --uid=0",)}, {"arguments": ("x" * 200_000,)}],
)  # fmt: skip
def test_what_a_script_cannot_carry_is_refused(stand_ins: Path, tmp_path: Path, change: dict[str, object]) -> None:
    fields = {"key": "k", "name": "n", "module": "m", "arguments": (), "processes": 1} | change
    with pytest.raises(LauncherError):
        SlurmLauncher(cluster(tmp_path, stand_ins)).submit(Job(**fields))  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("submitted"))


@pytest.mark.parametrize(("before", "code", "cause"), [("16", 0, "SUCCEEDED"), ("17", 143, "TIME_LIMIT")])
def test_a_job_is_charged_with_its_own_starts_only(
    stand_ins: Path, tmp_path: Path, before: str, code: int, cause: str
) -> None:
    """Its first start may never have reached a node."""
    described = cluster(tmp_path, stand_ins)
    SlurmLauncher(described).submit(replace(JOB, hours=1.0, environment={"T_VALUE": "", "T_SEEN": f"{tmp_path}/seen"}))
    state = Path(state_folder(JOB.key, described))
    for name, text in (("job", before), ("nodes", "n1"), ("log", "an earlier start\n")):
        (state / name).write_text(text)
    os.utime(state / "nodes", (time.time() - 3600, time.time() - 3600))
    assert run_script(state / "script.sh", stand_ins, SLURM_RESTART_COUNT="1") == code, (state / "log").read_text()
    assert json.loads((state / "result.json").read_text())["cause"] == cause


def ended(folder: Path, stand_ins: Path, nodes: int = 1, **programs: str) -> dict[str, object]:
    """What the script says of its end, on nodes whose programs do as given; empty when it says nothing."""
    (bin_folder := folder / "bin").mkdir()
    for name in STAND_INS:
        (bin_folder / name).symlink_to(stand_ins / name)
    for name, body in programs.items():
        (bin_folder / name).unlink()
        (bin_folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (bin_folder / name).chmod(0o755)
    described = cluster(folder, bin_folder)
    (state := Path(state_folder(JOB.key, described))).mkdir(parents=True)
    (state / "log").write_text("torch.OutOfMemoryError: CUDA out of memory. This was another start.\n")
    (state / "script.sh").write_text(render(replace(JOB, processes=nodes), described))
    assert run_script(state / "script.sh", bin_folder) == 1, (state / "log").read_text()
    told = state / "result.json"
    return json.loads(told.read_text()) if told.exists() else {}


MEMORY = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139 GiB",
    "[rank3]: torch.cuda.OutOfMemoryError: CUDA out of memory.",
    "[rank0]: RuntimeError: CUDA error: out of memory",
    "torch.AcceleratorError: CUDA error: out of memory",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.11 PiB for an array with shape (10,)",
    "MemoryError",
    "ip-10-1-2-3:711:902 [0] transport/net.cc:77 NCCL WARN Cuda failure 2 'out of memory'",
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=17.1. Some of your processes may have been killed",
    "slurmstepd-n2: error: Detected 2 oom_kill events in StepId=17.1.",
    "srun: error: n2: task 1: Out Of Memory",
]
NO_MEMORY = [
    "step 7 of 12: loss 0.4, survey 'out of memory'",
    "survey MemoryError: cell 3 is held out",
    "VolumeError: survey OutOfMemoryError: 3 chunks of s3://lake/CUDA out of memory/volume.mdio are missing",
    "see docs/out-of-memory-oom-kill.md",
    "srun: error: n2: task 1: Killed",
]


@pytest.mark.parametrize(("line", "cause"), [(x, "OUT_OF_MEMORY") for x in MEMORY] + [(x, "ERROR") for x in NO_MEMORY])
def test_only_what_ran_out_of_memory_is_called_so(tmp_path: Path, stand_ins: Path, line: str, cause: str) -> None:
    python = f'case "$*" in *health*) exit 0 ;; esac; echo before; echo {shlex.quote(line)} >&2; echo after; exit 1'
    assert ended(tmp_path, stand_ins, python=python)["cause"] == cause


def test_a_job_put_back_leaves_its_bad_node_and_starts_soon(tmp_path: Path, stand_ins: Path) -> None:
    asked = f'case "$1" in requeue | update) echo "$*" >>{tmp_path}/asked ;; esac; {STAND_INS["scontrol"]}'
    python = 'case "$*" in *health*) exit 1 ;; esac'
    assert ended(tmp_path, stand_ins, nodes=2, scontrol=asked, python=python) == {}  # it has not ended
    assert (tmp_path / "asked").read_text().splitlines() == [
        "requeue 17",
        "update JobId=17 StartTime=now+10 ExcNodeList=n1",
    ]


def test_a_replaced_node_is_not_asked_for(tmp_path: Path, stand_ins: Path) -> None:
    """HyperPod has put n2 in the place of n1, which does not answer any more, under the running step."""
    dead = f'case "$*" in *"--nodelist=n1 true") [ -e {tmp_path}/asked ] && exit 1; touch {tmp_path}/asked ;; esac; '
    told = ended(
        tmp_path,
        stand_ins,
        nodes=2,
        squeue='[ "$*" != "--noheader --jobs=17 --format=%N" ] || echo n2',
        scontrol='case "$*" in *"hostnames n2") echo n2 ;; *hostnames*) echo n1 ;; *) echo NodeAddr=h ;; esac',
        srun=dead + STAND_INS["srun"],
        python='case "$*" in *health*) exit 0 ;; esac; exit 1',
    )
    assert told["cause"] == "ERROR"
    assert not list(tmp_path.glob("jobs/*/bad/*"))


def test_gpus_are_asked_for_where_slurm_knows_of_them(tmp_path: Path, stand_ins: Path) -> None:
    plain = cluster(tmp_path, stand_ins)
    assert "--gpus" not in render(JOB, plain)
    assert "#SBATCH --gpus-per-node=8\n" in render(JOB, plain.model_copy(update={"gpus_per_node": 8}))


def test_ranks_get_the_time_to_save_that_the_settings_give(tmp_path: Path, stand_ins: Path) -> None:
    script = render(replace(JOB, hours=2), cluster(tmp_path, stand_ins).model_copy(update={"save_seconds": 45}))
    assert "#SBATCH --signal=B:TERM@45\n" in script
    assert "export PET_SHUTDOWN_TIMEOUT=45 " in script


def test_a_job_that_ends_slowly_is_gone_when_cancel_returns(
    stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung rank outlives SIGTERM, and Slurm takes a while to kill it; the next submit must not attach to it."""
    monkeypatch.setattr(slurm.time, "sleep", lambda _: None)
    for name in STAND_INS.keys() - {"squeue", "scancel"}:
        (tmp_path / name).symlink_to(stand_ins / name)
    comment = re.search(r"--comment=(\S+)", render(JOB, cluster(tmp_path, stand_ins)))
    assert comment
    asked = f'cd {tmp_path}; echo >>asked; [ "$(wc -l <asked)" -lt 5 ] || exit 0; [ -e killed ] && s=COMPLETING'
    bodies = {
        "squeue": f'{asked}; echo "17|${{s:-RUNNING}}|n1|NONE|None|{comment[1]}"',
        "scancel": f'cd {tmp_path}; echo "$*" >>scancels; [ "$1" != 17 ] || touch killed',
    }
    for name, body in bodies.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    launcher = SlurmLauncher(cluster(tmp_path, tmp_path).model_copy(update={"save_seconds": -10}))
    launcher.cancel(JOB.key)
    assert (tmp_path / "scancels").read_text().splitlines() == ["--batch --signal=TERM 17", "17"]
    assert len((tmp_path / "asked").read_text().splitlines()) == 5
    monkeypatch.setattr(slurm, "_KILL_SECONDS", 0)
    for name in ("asked", "killed", "scancels"):
        (tmp_path / name).unlink()
    with pytest.raises(UnreachableError, match="Slurm job 17 was killed 0 s ago and has not ended on n1"):
        launcher.cancel(JOB.key)


@pytest.mark.parametrize(
    "change",
    [{"partition": "a\n#SBATCH --uid=0"}, {"account": "$(x)"}, {"folder": "/a/%j"}, {"folder": "jobs"},
     {"folder": "/a b"}, {"environment": {"A=B": "x"}},
     {"environment": {"AWS_SECRET_ACCESS_KEY": "x"}}, {"python": "a\nb"}, {"command": ()}, {"processes_per_node": 0}],
)  # fmt: skip
def test_settings_that_slurm_would_misread_are_refused(change: dict[str, object]) -> None:
    good = {"folder": "/shared/jobs", "python": "/p", "working_directory": "/w", "processes_per_node": 8}
    SlurmSettings.model_validate(good)
    with pytest.raises(ValidationError):
        SlurmSettings.model_validate(good | change)
