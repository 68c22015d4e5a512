"""An operator and its kubelets for ``PyTorchJob`` on a ``KubernetesApi``: pods become real processes of this machine.

As Kubeflow's do it under ``restartPolicy: Never``: the first pod that fails fails the job, ended pods stay, and those
that run are deleted (``cleanPodPolicy: Running``); a job that is deleted gets SIGTERM. Nodes are names; ``lose`` takes
one away with all that runs on it, and nothing is heard of its pods from then on.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes_api import KubernetesApi, Object


@dataclass
class Running:
    """One job: a process for each pod."""

    job: Object
    environment: dict[str, str]
    pods: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # nodes, by pod
    over: bool = False


class Kubelets:
    """Runs what the API is asked for, while the block runs."""

    def __init__(self, api: KubernetesApi, nodes: list[str], logs: Path) -> None:
        self.api, self.nodes, self.logs = api, nodes, logs
        self.lost: set[str] = set()
        self.jobs: dict[str, Running] = {}  # by uid
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        for node in nodes:
            api.add_node(node)
        api.finish_deletions = False

    def __enter__(self) -> Kubelets:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for running in self.jobs.values():
            for process in running.pods.values():
                _kill(process)
                process.wait()

    def lose(self, node: str) -> None:
        """The node's processes end without a word, and it is not ready from then on."""
        with self._guard:
            self.lost.add(node)
            unknown = [{"type": "Ready", "status": "Unknown"}]
            self.api.update("nodes", node, status={"conditions": unknown})
            for running in self.jobs.values():
                for pod, place in running.places.items():
                    if place == node:
                        _kill(running.pods[pod])

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            with self._guard:
                for job in self.api.jobs():
                    uid = job["metadata"]["uid"]
                    if "deletionTimestamp" in job["metadata"]:
                        self._end(self.jobs.pop(uid, None))
                    elif uid not in self.jobs:
                        self._start(job)
                for running in self.jobs.values():
                    self._look(running)

    def _start(self, job: Object) -> None:
        spec = job["spec"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{free.getsockname()[1]}"
        elastic = spec["elasticPolicy"]
        given = {entry["name"]: entry["value"].replace("$$", "$") for entry in self._container(job)["env"]}
        operators = {
            "PET_NNODES": f"{elastic['minReplicas']}:{elastic['maxReplicas']}",
            "PET_NPROC_PER_NODE": spec["nprocPerNode"],
            "PET_RDZV_BACKEND": elastic["rdzvBackend"],
            "PET_RDZV_ENDPOINT": endpoint,
            "PET_RDZV_ID": job["metadata"]["uid"],
            "PET_MAX_RESTARTS": str(elastic["maxRestarts"]),
        }
        machine = {"OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        running = Running(job, os.environ | given | operators | machine)
        self.jobs[job["metadata"]["uid"]] = running
        for n in range(spec["pytorchReplicaSpecs"]["Worker"]["replicas"]):
            self._start_pod(running, f"{job['metadata']['name']}-worker-{n}")
        self._say(running, "Running")

    def _start_pod(self, running: Running, pod: str) -> None:
        template = running.job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
        affinity = template.get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        refused = {node for term in terms for wanted in term["matchFields"] for node in wanted["values"]}
        free = set(self.nodes) - self.lost - refused - set(running.places.values())
        running.places[pod] = min(free)
        alive = {"phase": "Running", "containerStatuses": [{"name": "pytorch", "state": {"running": {}}}]}
        index = {"training.kubeflow.org/replica-index": pod.rpartition("-")[2]}
        self.api.add_pod(running.job, pod, running.places[pod], alive, labels=index)
        command = [part.replace("$$", "$") for part in self._container(running.job)["command"]]
        with (self.logs / pod).open("ab") as log:
            running.pods[pod] = subprocess.Popen(
                command, env=running.environment, stdout=log, stderr=log, start_new_session=True
            )

    def _look(self, running: Running) -> None:
        for pod, process in running.pods.items():
            self.api.logs[pod] = (self.logs / pod).read_text(errors="replace")
            code = process.poll()
            if running.over or code is None or running.places[pod] in self.lost or self._ended(pod):
                continue
            self._end_pod(pod, code)
            if code:
                self._over(running, "Failed")
            elif all(self._ended(name) for name in running.pods):
                self._over(running, "Succeeded")

    def _over(self, running: Running, how: str) -> None:
        running.over = True
        self._say(running, how)
        for pod, process in running.pods.items():
            _kill(process)
            if running.places[pod] not in self.lost and not self._ended(pod):  # a lost node never confirms a deletion
                self.api.delete("pods", pod)

    def _end(self, running: Running | None) -> None:
        for process in running.pods.values() if running else ():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in running.pods.values() if running else ():
            process.wait(timeout=100)
        self.api.collect_garbage()

    def _ended(self, pod: str) -> bool:
        return bool(self.api.objects["pods", pod]["status"]["phase"] != "Running")

    def _end_pod(self, pod: str, code: int) -> None:
        code = 128 - code if code < 0 else code
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": stamp}}
        statuses = [{"name": "pytorch", "state": state}]
        self.api.update("pods", pod, status={"phase": "Failed" if code else "Succeeded", "containerStatuses": statuses})

    def _say(self, running: Running, now: str) -> None:
        conditions = [{"type": "Created", "status": "True"}, {"type": now, "status": "True"}]
        self.api.update("pytorchjobs", running.job["metadata"]["name"], status={"conditions": conditions})

    @staticmethod
    def _container(job: Object) -> Object:
        return job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The pod and all in it, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
