"""What reaches a shell on a Slurm cluster: the batch script under a real bash, with stand-ins for Slurm's commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
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
        (state / "log").touch()
        node = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n1", "SLURM_STEP_NODELIST": "n1", "SLURMD_NODENAME": "n1"}
        done = subprocess.run(
            ["bash", state / "submitted.sh"],
            env=node | {"PATH": f"{stand_ins}:/usr/bin:/bin", "SLURM_CPUS_ON_NODE": "2", "LC_ALL": "C.UTF-8"},
            cwd=folder,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
        argv, environment = json.loads(Path(seen).read_text())
        assert argv[argv.index("some.module") + 1 :] == arguments
        assert environment["T_VALUE"] == value
        assert json.loads((state / "result.json").read_text())["cause"] == "SUCCEEDED"
        assert {path.name for path in folder.iterdir()} == {"jobs", "seen.json"}
        assert {path.name for path in state.iterdir()} == {
            "bad", "log", "nodes", "result.json", "script.sh", "submitted", "submitted.sh",
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


def test_a_job_that_ends_slowly_is_gone_when_cancel_returns(
    stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung rank outlives SIGTERM, and Slurm takes a while to kill it; the next submit must not attach to it."""
    monkeypatch.setattr(slurm, "_SAVE_SECONDS", -10)
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
    launcher = SlurmLauncher(cluster(tmp_path, tmp_path))
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
     {"folder": "/a b"}, {"environment": {"A=B": "x"}}, {"python": "a\nb"}, {"command": ()}, {"processes_per_node": 0}],
)  # fmt: skip
def test_settings_that_slurm_would_misread_are_refused(change: dict[str, object]) -> None:
    good = {"folder": "/shared/jobs", "python": "/p", "working_directory": "/w", "processes_per_node": 8}
    SlurmSettings.model_validate(good)
    with pytest.raises(ValidationError):
        SlurmSettings.model_validate(good | change)
