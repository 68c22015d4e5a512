"""deploy/ssm-run against an `aws` that does what a session does: runs the document's command, tells no status."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.launchers import Job, State
from flows.launchers.slurm import SlurmLauncher, render
from flows.launchers.slurm_settings import SlurmSettings

SSM_RUN = Path(__file__).parents[2] / "deploy" / "ssm-run"
TARGET = "ubuntu@sagemaker-cluster:abc123_workers-i-0123456789abcdef0"
SESSION = f"""#!{sys.executable}
import json, os, select, subprocess, sys
given = dict(zip(sys.argv[3::2], sys.argv[4::2]))
assert sys.argv[1:3] == ["ssm", "start-session"]
assert given["--document-name"] == "AWS-StartNonInteractiveCommand"
assert given["--target"] == "sagemaker-cluster:abc123_workers-i-0123456789abcdef0"
if select.select([0], [], [], 0.1)[0] and not os.read(0, 1):
    sys.exit("Cannot perform start session: EOF")
if os.environ.get("SESSION_HANGS"):
    subprocess.run(["sh", "-c", f"echo $$ >{{os.environ['SESSION_HANGS']}}; exec sleep 1000"])
print("\\nStarting session with SessionId: me-0123\\r\\n", flush=True)
if os.environ.get("SESSION_FAILS"):
    print("An error occurred (TargetNotConnected) when calling the StartSession operation", file=sys.stderr)
    sys.exit(254)
command, = json.loads(given["--parameters"])["command"]
said = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
sys.stdout.buffer.write(said.replace(b"\\n", b"\\r\\n"))
print("\\n\\nExiting session with sessionId: me-0123.\\n")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which `aws` is the one above, `python3` this one, and every user this one."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "aws").write_text(SESSION)
    (folder / "runuser").write_text('#!/bin/sh\n[ "$1" = -l ] && [ "$3" = -c ] && LOGNAME=$2 exec sh -c "$4"\n')
    for name in ("aws", "runuser"):
        (folder / name).chmod(0o755)
    (folder / "python3").symlink_to(sys.executable)
    return f"{folder}:/usr/bin:/bin"


def run(path: str, command: str, text: str = "", target: str = TARGET, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SSM_RUN, target, command], input=text, env=os.environ | {"PATH": path} | more, capture_output=True, text=True
    )


def test_output_error_and_status_are_the_commands(path: str) -> None:
    done = run(path, "echo 'job 17'; echo no such partition >&2; exit 3")

    assert (done.stdout, done.stderr, done.returncode) == ("job 17\n", "no such partition\n", 3)


def test_the_command_runs_as_the_user_that_was_named(path: str) -> None:
    assert run(path, "echo $LOGNAME").stdout == "ubuntu\n"


def test_a_session_without_an_answer_is_ended_with_all_that_it_started(path: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    impatient = "import runpy, sys; m = runpy.run_path(sys.argv.pop(1))['main']; m.__globals__['ANSWER_SECONDS'] = 3"
    done = subprocess.run(
        [sys.executable, "-c", f"{impatient}; sys.exit(m())", SSM_RUN, TARGET, "true"],
        env=os.environ | {"PATH": path, "SESSION_HANGS": str(pid_file)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    assert done.returncode == 255
    assert "no answer from sagemaker-cluster:abc123_workers-i-0123456789abcdef0 in 3 s" in done.stderr
    while psutil.pid_exists(pid := int(pid_file.read_text())) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)  # until it is killed, or this test's time is over


def test_standard_input_reaches_the_command(path: str) -> None:
    script = "#!/bin/bash\necho '{{ssm:parameter}}' \"$HOME\" `id`\n"

    assert run(path, "cat", script).stdout == script


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\0\r")))
def test_a_quoted_word_arrives_as_it_was(path: str, name: str) -> None:
    done = run(path, f"printf %s {shlex.quote(name)}")

    assert (done.stdout, done.returncode) == (name, 0)


def test_a_node_that_cannot_be_asked_is_255_with_what_was_said(path: str) -> None:
    done = run(path, "squeue", SESSION_FAILS="1")

    assert done.returncode == 255
    assert done.stdout == ""
    assert "TargetNotConnected" in done.stderr


def test_no_aws_is_255(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)

    done = run(str(tmp_path), "squeue")

    assert (done.returncode, done.stdout) == (255, "")
    assert "install the AWS command line" in done.stderr


@pytest.mark.parametrize("target", ["ubuntu@--profile=x", "", "i-1", "a b@i-1", "-x@i-1", "ubuntu@i-1\n"])
def test_a_target_that_is_none_is_refused(path: str, target: str) -> None:
    assert run(path, "true", target=target).returncode == 2


def test_the_slurm_launcher_submits_and_finds_by_it(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that stand in for Slurm on the node: they take the script, and list the job with its comment."""
    node = tmp_path / "node"
    node.mkdir()
    for name, does in {
        "sbatch": f"cp script.sh {node}/taken; echo 17",
        "squeue": f'[ ! -e {node}/taken ] || echo "17|RUNNING|n1|NONE|None|$(sed -n s/.*--comment=//p {node}/taken)"',
        "sacct": "",
    }.items():
        (node / name).write_text(f"#!/bin/sh\n{does}\n")
        (node / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{node}:{path}")
    settings = SlurmSettings(
        command=(str(SSM_RUN), TARGET),
        folder=str(tmp_path / "jobs"),
        python="/opt/venv/bin/python",
        working_directory="/opt/seismic",
        processes_per_node=8,
    )
    launcher, job = SlurmLauncher(settings), Job("s3://lake/runs/it's $(id)", "it's $(id)", "m", ("--config", "x"), 16)

    launcher.submit(job)
    status = launcher.find(job.key)

    assert (node / "taken").read_text() == render(job, settings)
    assert status is not None
    assert status.state is State.RUNNING


def test_too_much_for_a_session_is_refused(path: str) -> None:
    done = run(path, "cat", "x" * 60_000)

    assert done.returncode == 2
    assert "65535" in done.stderr
