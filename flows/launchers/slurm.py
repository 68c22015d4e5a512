"""Training jobs on a Slurm cluster, such as a HyperPod one: one readable batch script a job.

The launcher talks to Slurm through one command (a shell here, ``ssh host``, an SSM session) and remembers nothing: a
job is found by the key's hash in its comment, afterwards in the accounting, and last by what lies in ``folder/<hash>``:
``script.sh``, ``submitted`` (job ids), and from the script ``log``, ``bad/<node>`` (why not it) and ``result.json``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flows.launchers import Cause, Job, LauncherError, State, Status, UnreachableError, holds_password
from flows.launchers.health import PEER_FAILED
from flows.launchers.slurm_settings import SlurmSettings
from ingestion.names import printable

_KILL_SECONDS = 120  # in which Slurm ends what does not end by itself (KillWait, UnkillableStepTimeout)
_ANSWER_SECONDS = 120  # in which Slurm answers, its own retries included
_LOG_TAIL = 4000  # bytes
_LONGEST_COMMAND = 120_000  # bytes; Linux takes 131,072 in one argument
_NODE = re.compile(r"[A-Za-z0-9._-]+")
_NUMBERS = re.compile(r"^(\d+)(?:;.*)?$", re.MULTILINE)  # lines of sbatch; a login shell may say more
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SILENT = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "Zero Bytes were transmitted",
    "Protocol authentication error",  # munge starts again
    "Slurm backup controller in standby mode",
    "Communication connection failure",
    "ssh: ",
)
_WAITS = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "SUSPENDED", "STOPPED"}
_RUNS = {"RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING"}
_HOPELESS = {"PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints", "AccountNotAllowed"}
_CAUSES = {
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    "NODE_FAIL": Cause.NODE_LOST,
    "BOOT_FAIL": Cause.NODE_LOST,
    "PREEMPTED": Cause.PREEMPTED,
    "TIMEOUT": Cause.TIME_LIMIT,
    "DEADLINE": Cause.TIME_LIMIT,
    "CANCELLED": Cause.CANCELLED,
    "REVOKED": Cause.CANCELLED,
}
_QUEUE = "squeue --me --noheader --all --states=all --format='%A|%T|%N|%e|%r|%k'"
# sbatch hands on what it finds in its environment: secrets of the flow, where that runs beside it
_BARE = 'env -i ${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"} PATH="$PATH" HOME="$HOME"'
_MARK = "==sfm=="


@dataclass(frozen=True)
class _Row:
    """One job as Slurm tells it."""

    number: int
    state: str
    nodes: str
    ended: str  # ISO time, or NONE
    reason: str = ""

    @property
    def waits(self) -> bool:
        return self.state in _WAITS

    @property
    def hopeless(self) -> bool:
        """It waits for nodes that will never do, such as more than are left when the bad ones are excluded."""
        return self.waits and self.reason in _HOPELESS

    @property
    def active(self) -> bool:
        return (self.waits and not self.hopeless) or self.state in _RUNS


class SlurmLauncher:
    """Jobs of one cluster, found again through the hash of their key."""

    def __init__(self, settings: SlurmSettings) -> None:
        self.settings = settings

    def place(self) -> str:
        """The cluster's name and controllers, and the user, who sees no jobs of others."""
        told = self.ask("scontrol show config && echo User=$(id -un)", "the cluster does not say its name")
        names = re.findall(r"^(?:ClusterName|SlurmctldHost\[\d+\]|User) *= *(\S+)", told, re.MULTILINE)
        return f"Slurm cluster {' '.join(names)}"

    def submit(self, job: Job) -> None:
        """Submit ``job``, or attach to the one that waits or runs under its key.

        Where too few nodes are left without those in ``exclude``, they may be used again: they may have been mended.
        """
        script = render(job, self.settings)
        rows = self._queue(job.key)
        for row in rows:
            if row.hopeless:
                self.ask(f"scancel {row.number} || true", f"Slurm job {row.number} cannot be cancelled")
        if any(row.active for row in rows):
            return
        try:
            self._submit(job, script)
        except UnreachableError:
            raise
        except LauncherError as error:
            if not job.exclude:
                raise
            print(f"{error}. Submitted with {', '.join(job.exclude)} again, which failed it before", flush=True)
            self._submit(job, render(replace(job, exclude=()), self.settings))

    def _submit(self, job: Job, script: str) -> None:
        state = shlex.quote(state_folder(job.key, self.settings))
        encoded = base64.b64encode(script.encode()).decode()
        command = (
            f"umask 077; mkdir -p {state} && cd {state} && new=$(mktemp script.XXXXXX) &&"
            f" printf %s {encoded} | base64 -d > $new && mv $new script.sh &&"
            f" number=$({_BARE} sbatch --parsable script.sh) && echo $number | tee -a submitted"
        )
        if len(command) > _LONGEST_COMMAND:
            raise LauncherError(f"the job's script has {len(script)} characters; Slurm takes it up to about 80,000")
        numbers = _NUMBERS.findall(self.ask(command, f"Slurm does not take job {job.name!r}"))
        if not numbers:
            raise UnreachableError(f"sbatch did not say under which number it took job {job.name!r}")
        own = int(numbers[-1])
        rows = self._queue(job.key)
        older = any(row.active and row.number < own for row in rows)  # submitted in the same moment by another flow
        hopeless = [row.reason for row in rows if row.number == own and row.hopeless]
        if older or hopeless:
            self.ask(f"scancel {own}", f"Slurm job {own} cannot be cancelled")
        if hopeless:
            raise LauncherError(
                f"job {job.name!r} would wait for ever ({hopeless[0]}): it asks for {job.processes} processes, "
                f"{self.settings.processes_per_node} on a node; compare `sinfo` and `scontrol show partition`"
            )

    def find(self, key: str) -> Status | None:
        """The status of the newest job under ``key``, or None when there never was one."""
        state = shlex.quote(state_folder(key, self.settings))
        command = (
            f"{_QUEUE} || exit; exec 2>/dev/null; cd {state} || exit 0; echo {_MARK}; cat submitted; echo {_MARK};"
            f" cat result.json; echo {_MARK}; ls bad; echo {_MARK}; tail -c {_LOG_TAIL} log || true"
        )
        answer = self.ask(command, "the job cannot be looked up")
        queue, submitted, result, bad, log = [*answer.split(f"{_MARK}\n", 4), *[""] * 4][:5]
        numbers = re.findall(r"^[0-9]+", submitted, re.MULTILINE)
        rows = _queued(queue, key) or (self._accounted(numbers) if numbers else [])
        if row := _newest(rows):
            return _status(row, _result(result, row.number), log, bad)
        if numbers:  # Slurm has forgotten it
            return _status(_Row(int(numbers[-1]), "", "", ""), _result(result, None), log, bad)
        return None

    def wait(self, key: str, seconds: float) -> None:
        """Return after ``seconds``; nothing here tells of changes."""
        time.sleep(seconds)

    def cancel(self, key: str) -> None:
        """The script has the ranks save and end; what is left after ``save_seconds`` is killed. Then it is gone."""
        complaint = "the job cannot be cancelled"
        for row in self._queue(key):
            how = "" if row.waits else "--batch --signal=TERM "
            if (row.active or row.hopeless) and row.state != "COMPLETING":  # which Slurm refuses to signal
                self.ask(f"scancel {how}{row.number} || true", complaint)  # it may have ended just now
        for row in self._left(key, self.settings.save_seconds + 10):
            self.ask(f"scancel {row.number}", complaint)
        if left := self._left(key, _KILL_SECONDS):  # the next submit would take it for one that goes on
            raise UnreachableError(
                f"Slurm job {left[0].number} was killed {_KILL_SECONDS} s ago and has not ended on {left[0].nodes}; "
                "set those nodes down where they are lost"
            )

    def _left(self, key: str, seconds: float) -> list[_Row]:
        """What waits or runs under ``key`` after ``seconds``, or nothing as soon as that is so."""
        deadline = time.monotonic() + seconds
        while (rows := self._active(key)) and time.monotonic() < deadline:
            time.sleep(1)
        return rows

    def _active(self, key: str) -> list[_Row]:
        return [row for row in self._queue(key) if row.active]

    def _queue(self, key: str) -> list[_Row]:
        return _queued(self.ask(_QUEUE, "the queue cannot be read"), key)

    def _accounted(self, numbers: list[str]) -> list[_Row]:
        """What the accounting knows of jobs that have left the queue; nothing where there is none."""
        columns = "--noheader --parsable2 --allocations --format=JobID,State,NodeList,End"
        command = f"sacct {columns} --jobs={','.join(numbers)} 2>/dev/null || true"
        rows = []
        for line in self.ask(command, "the accounting cannot be read").splitlines():
            number, state, nodes, ended, *_ = [*line.split("|"), *[""] * 4]
            if number.isdecimal():
                rows.append(_Row(int(number), state.split(" ")[0], nodes, ended))  # CANCELLED by 0
        return rows

    def ask(self, command: str, complaint: str) -> str:
        """What ``command`` prints. Raises ``LauncherError`` and ``UnreachableError`` with ``complaint``."""
        prefix = self.settings.command
        try:
            result = subprocess.run(
                [*prefix, command], stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"{complaint}: no answer from `{prefix[0]}` in {_ANSWER_SECONDS} s") from error
        except OSError as error:
            raise LauncherError(f"{complaint}: `{prefix[0]}` cannot be run: {error.strerror}") from error
        if result.returncode == 0:
            return result.stdout.decode(errors="replace")
        said = printable(" ".join(result.stderr.decode(errors="replace").split()))[-1000:]
        silent = result.returncode == 255 or any(sign in said for sign in _SILENT)  # 255: ssh
        message = f"{complaint}: {said or f'exit code {result.returncode}'}"
        raise UnreachableError(message) if silent else LauncherError(message)


def render(job: Job, settings: SlurmSettings) -> str:
    """The batch script of ``job``. Raises ``LauncherError`` for what a script cannot carry."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = {"PYTHONPATH": settings.working_directory} | settings.environment | job.environment
    _check(job, environment)
    here = FileSystemLoader(Path(__file__).parent)
    templates = Environment(  # noqa: S701  # a shell script: every value goes through `quote` or is checked to be a word
        loader=here, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    templates.filters["quote"] = shlex.quote
    per_node = min(job.processes, settings.processes_per_node)
    if job.processes % per_node:
        raise LauncherError(
            f"{job.processes} processes do not fill nodes of {per_node}; give the recipe a multiple of {per_node}"
        )
    minutes = None if job.hours is None else max(1, math.ceil(job.hours * 60))
    digest = _digest(job.key)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", job.name)[:60].strip("-") or "run"
    return templates.get_template("slurm.sh.j2").render(
        job_name=f"{name}-{digest[:12]}",
        comment=_comment(job.key),
        state=state_folder(job.key, settings),
        nodes=job.processes // per_node,
        processes_per_node=per_node,
        minutes=minutes,
        save_seconds=min(settings.save_seconds, minutes * 30) if minutes else settings.save_seconds,
        exclude=job.exclude,
        partition=settings.partition,
        account=settings.account,
        gpus_per_node=settings.gpus_per_node,
        python=settings.python,
        working_directory=settings.working_directory,
        scratch=settings.scratch,
        gpu_memory_gib=settings.gpu_memory_gib,
        requeues=settings.requeues,
        environment=environment,
        module=job.module,
        arguments=job.arguments,
        peer_failed=PEER_FAILED,
    )


def state_folder(key: str, settings: SlurmSettings) -> str:
    """Where the script of the job under ``key``, its log and its result lie."""
    return f"{settings.folder}/{_digest(key)}"


def _check(job: Job, environment: dict[str, str]) -> None:
    if bad := [name for name in environment if not _VARIABLE.fullmatch(name)]:
        raise LauncherError(f"{printable(bad[0])!r} is not the name of an environment variable")
    if bad := [name for name in job.exclude if not _NODE.fullmatch(name)]:
        raise LauncherError(f"{printable(bad[0])!r} is not the name of a node")
    if bad := [name for name, value in environment.items() if holds_password(value)]:
        raise LauncherError(
            f"{bad[0]} holds a password, and a job's script is no place for one: leave it out of the address and "
            "let the nodes have it, as docs/slurm.md says (for MLflow: MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD)"
        )
    for text in (job.module, *job.arguments, *environment.values()):
        if "\0" in text or any("\ud800" <= each <= "\udfff" for each in text):
            raise LauncherError(
                f"{printable(text)[:80]!r} cannot be an argument or a variable: a NUL or half a character"
            )


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _comment(key: str) -> str:
    return f"sfm:{_digest(key)}"


def _queued(answer: str, key: str) -> list[_Row]:
    rows = []
    for line in answer.split(_MARK)[0].splitlines():
        number, state, nodes, ended, reason, comment, *_ = [*(part.strip() for part in line.split("|")), *[""] * 6]
        if comment == _comment(key) and number.isdecimal():
            rows.append(_Row(int(number), state, nodes, ended, reason))
    return rows


def _newest(rows: Sequence[_Row]) -> _Row | None:
    """The oldest that waits or runs, since later ones give way to it; else the one that ended last."""
    active = [row for row in rows if row.active]
    if active:
        return min(active, key=lambda row: row.number)
    return max(rows, key=lambda row: (row.ended, row.number), default=None)


def _result(text: str, number: int | None) -> dict[str, str | int]:
    """What the script of job ``number`` wrote when it ended; empty when it did not, or that of another job."""
    try:
        result = json.loads(text)
        job, cause, code = int(result["job"]), str(result["cause"]), int(result["exit_code"])
    except (ValueError, TypeError, KeyError):
        return {}
    return {"job": job, "cause": cause, "exit_code": code} if number in (None, job) else {}


def _status(row: _Row, result: dict[str, str | int], log: str, bad: str) -> Status:
    state, cause = _judged(row, result)
    ended = not state.lives
    place = f"Slurm job {row.number}" + (f" on {row.nodes}" if row.nodes else "")
    if row.waits and row.reason not in ("", "None"):
        place += f", waits: {printable(row.reason)}"
    exit_code = int(result["exit_code"]) if ended and result else 0 if state is State.SUCCEEDED else None
    return Status(state, exit_code, log, cause, place, tuple(bad.split()))


def _judged(row: _Row, result: dict[str, str | int]) -> tuple[State, Cause | None]:
    """Slurm's own word first; the script knows why it ended otherwise than well."""
    if row.hopeless:
        return State.FAILED, Cause.NODE_LOST
    if row.active:
        return (State.PENDING if row.waits else State.RUNNING), None
    said = str(result.get("cause", "ERROR"))
    if row.state == "COMPLETED" or (not row.state and said == "SUCCEEDED"):
        return State.SUCCEEDED, None
    told = Cause[said] if said in Cause.__members__ else Cause.ERROR
    return State.FAILED, _CAUSES.get(row.state, told)
