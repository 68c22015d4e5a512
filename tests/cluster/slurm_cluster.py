"""A real Slurm on this machine: munged, one controller and three node daemons, all in one folder.

Every process of it, and of the jobs it runs, has the folder's SLURM_CONF in its environment. A keeper, a process of
its own, kills what has it once the block ends or the process that started it is gone, however that died.

    python tests/cluster/slurm_cluster.py FOLDER     # one to play with; ends with Ctrl-D
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

NODES = ("n1", "n2", "n3")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
_READY_SECONDS = 60.0

_CONFIGURATION = """
ClusterName=tests
FirstJobId={first_job}
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
KillWait=5
JobRequeue=1
MinJobAge=300
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[0]} CPUs=2 RealMemory=1000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=1000
NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=1000
PartitionName=train Nodes=n1,n2,n3 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=n1,n2,n3 MaxTime=INFINITE State=UP PriorityTier=9
"""


def missing_programs() -> list[str]:
    """What of Slurm is not installed."""
    return [name for name in _PROGRAMS if shutil.which(name) is None]


@dataclass(frozen=True)
class Cluster:
    """One running Slurm; its clients need ``SLURM_CONF`` in their environment."""

    folder: Path

    @property
    def configuration(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.configuration)}

    def ask(self, *command: str) -> str:
        """What a Slurm command prints; its complaint when it fails."""
        result = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True)
        return result.stdout if result.returncode == 0 else result.stderr

    def start_controller(self) -> None:
        self._start("slurmctld", "-D", "-f", str(self.configuration))
        self._wait(lambda: "UP" in self.ask("scontrol", "ping"), "the controller does not answer")

    def stop_controller(self) -> None:
        self._kill(self._daemons("slurmctld"))

    def start_node(self, node: str) -> None:
        self._start("slurmd", "-D", "-f", str(self.configuration), "-N", node)

    def kill_node(self, node: str) -> None:
        """Like a power cut: its daemon, its job steps and their processes are gone at once."""
        self.kill_daemon(node)
        self._kill(self.processes(node))

    def kill_daemon(self, node: str) -> None:
        """What runs on the node goes on running; nothing new starts there."""
        self._kill(self._daemons("slurmd", node))

    def processes(self, node: str) -> list[psutil.Process]:
        """The job steps on ``node`` and all that they run."""
        tasks = [each for each in _processes(self.configuration) if _variable(each, "SLURMD_NODENAME") == node]
        steps = {parent for each in tasks for parent in each.parents() if parent.name().startswith("slurmstepd")}
        return [*steps, *tasks]

    def heal(self) -> None:
        """No job left, every node up and idle."""
        self.ask("scancel", "--full", "--user=root")
        self.ask("scancel", "--user=root")
        if "UP" not in self.ask("scontrol", "ping"):
            self.start_controller()
        for node in NODES:
            if not self._daemons("slurmd", node):
                self.start_node(node)
        for node in NODES:
            self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self._wait(lambda: self.ask("squeue", "--noheader").strip() == "", "jobs do not end")
        self._wait(lambda: self._states() == {"idle"}, "nodes do not come up")

    def _states(self) -> set[str]:
        return set(self.ask("sinfo", "--noheader", "--Node", "--partition=train", "--format=%T").split())

    def _start(self, *command: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            subprocess.Popen(
                command,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def _daemons(self, program: str, node: str | None = None) -> list[psutil.Process]:
        found = []
        for process in _processes(self.configuration):
            with suppress(psutil.Error):
                command = process.cmdline()
                if process.name() == program and (node is None or command[-1:] == [node]):
                    found.append(process)
        return found

    def _kill(self, processes: list[psutil.Process]) -> None:
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=10)

    def _wait(self, condition, complaint: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(each.read_text(errors="replace")[-1500:] for each in sorted(self.folder.glob("*.log")))
                raise RuntimeError(f"{complaint}; {self.ask('sinfo', '-Nl')} {self.ask('squeue', '-a')} logs:\n{logs}")
            time.sleep(0.1)


@contextmanager
def serve_slurm(folder: Path, first_job: int = 1) -> Iterator[Cluster]:
    """A Slurm of three nodes while the block runs; two on one machine number their jobs, and so their ports, apart."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(folder)
    host = socket.gethostname().split(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    controller_port, *ports = _free_ports(4)
    cluster.configuration.write_text(
        _CONFIGURATION.format(
            folder=folder, host=host, controller_port=controller_port, ports=ports, first_job=first_job
        )
    )
    keeper = subprocess.Popen(
        [sys.executable, __file__, "--keep", folder], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        _start_munge(cluster)
        cluster.start_controller()
        for node in NODES:
            cluster.start_node(node)
        cluster._wait(lambda: cluster._states() == {"idle"}, "nodes do not come up")
        yield cluster
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait()


def _start_munge(cluster: Cluster) -> None:
    key = cluster.folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    munge = {"socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log", "seed-file": "munge.seed"}
    options = [f"--{name}={cluster.folder / file}" for name, file in munge.items()]
    cluster._start("munged", "--foreground", "--force", f"--key-file={key}", *options)
    cluster._wait(lambda: (cluster.folder / "munge.socket").exists(), "munged does not start")


def _free_ports(count: int) -> list[int]:
    with suppress(OSError):
        sockets = [socket.socket() for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in sockets]
        for each in sockets:
            each.close()
        return ports
    raise RuntimeError("no free ports")


def _processes(configuration: Path) -> list[psutil.Process]:
    wanted = str(configuration)
    return [each for each in psutil.process_iter() if _variable(each, "SLURM_CONF") == wanted]


def _variable(process: psutil.Process, name: str) -> str | None:
    """Read as it is: a step daemon writes its title over the beginning of its environment, where psutil gives up."""
    start = f"{name}=".encode()
    with suppress(OSError):
        for entry in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(start):
                return entry[len(start) :].decode(errors="replace")
    return None


def _keep(folder: Path) -> None:
    sys.stdin.read()
    while left := [each for each in _processes(folder / "slurm.conf") if each.pid != os.getpid()]:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


if __name__ == "__main__":
    if sys.argv[1] == "--keep":
        _keep(Path(sys.argv[2]))
    else:
        with serve_slurm(Path(sys.argv[1])) as running:
            print(f"export SLURM_CONF={running.configuration}", flush=True)
            sys.stdin.read()
