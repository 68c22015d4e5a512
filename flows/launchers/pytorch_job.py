"""A training job as a Kubernetes object: what the HyperPod operator, or Kubeflow's, is asked to run.

Nothing here talks to a cluster. Command and environment are lists of strings, so that no text reaches a shell.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Literal

from pydantic import Field

from flows.launchers import Job, LauncherError, holds_password
from ingestion.manifest import Contract

KEY = "sfm/key"  # annotation: the idempotency key itself
LABEL = "sfm/job"  # label on the job and on its pods: a hash of the key
ATTEMPT = "sfm/attempt"  # annotation: how often a job was made under this key
CONTAINER = "pytorch"  # Kubeflow takes no other name

_SAVE_SECONDS = 120  # in which a training process ends its step and saves, once it has got SIGTERM
GRACE_SECONDS = _SAVE_SECONDS + 10
_KEPT_SECONDS = 7 * 24 * 3600  # an ended job stays for a week; HyperPod's default is to delete it at once
_NAME_CHARACTERS = 40  # operators append up to 22 for pods and services, which end at 63

_SETTINGS = {"PYTHONUNBUFFERED": "1", "NCCL_SOCKET_IFNAME": "^docker,lo,veth"}
_EFA = {"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"}


class EksSettings(Contract):
    """Where on an EKS cluster jobs run, and what each of their nodes has."""

    namespace: str
    image: str
    instance_type: str  # such as ml.p5en.48xlarge: the label node.kubernetes.io/instance-type
    kind: Literal["HyperPodPyTorchJob", "PyTorchJob"] = "HyperPodPyTorchJob"
    processes_per_node: int = Field(gt=0)
    gpus_per_node: int = Field(ge=0)
    efa_per_node: int = Field(default=0, ge=0)
    retries: int = Field(default=10, ge=0)  # HyperPod's restarts, before the job has failed; Kubeflow's makes none
    service_account: str | None = None  # whose role may read and write the lake
    secret: str | None = None  # a Secret whose entries become environment variables
    queue: str | None = None  # Kueue's LocalQueue
    priority: str | None = None  # Kueue's WorkloadPriorityClass


def group_and_plural(settings: EksSettings) -> tuple[str, str]:
    """The API group (version v1 in both) and the plural under which the kind is served."""
    if settings.kind == "HyperPodPyTorchJob":
        return "sagemaker.amazonaws.com", "hyperpodpytorchjobs"
    return "kubeflow.org", "pytorchjobs"


def label_of(key: str) -> str:
    """The value of ``LABEL`` under which the job of ``key`` and its pods are found."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def name_of(key: str) -> str:
    """The object's name, from nothing but ``key``: its last part for people, and a hash; fit for DNS (RFC 1035)."""
    words = re.sub(r"[^a-z0-9]+", "-", key.rpartition("/")[2].lower()).strip("-")
    digest = label_of(key)[:16]
    words = words[: _NAME_CHARACTERS - len(f"sfm--{digest}")].strip("-")
    return f"sfm-{words}-{digest}" if words else f"sfm-{digest}"


def manifest(job: Job, settings: EksSettings, attempt: int) -> dict[str, Any]:
    """The object that is sent to the API. Raises ``LauncherError`` for a job that does not fit the nodes."""
    nodes, processes = _layout(job, settings)
    body = _hyperpod if settings.kind == "HyperPodPyTorchJob" else _kubeflow
    return {
        "apiVersion": f"{group_and_plural(settings)[0]}/v1",
        "kind": settings.kind,
        "metadata": {
            "name": name_of(job.key),
            "namespace": settings.namespace,
            "labels": {LABEL: label_of(job.key)} | _kueue(settings),
            "annotations": {KEY: job.key, ATTEMPT: str(attempt)},
        },
        "spec": body(job, settings, nodes, processes),
    }


def _layout(job: Job, settings: EksSettings) -> tuple[int, int]:
    """Nodes, and processes on each."""
    if job.processes <= settings.processes_per_node:
        return 1, job.processes
    nodes, rest = divmod(job.processes, settings.processes_per_node)
    if rest:
        raise LauncherError(
            f"{job.name} has {job.processes} processes and eks.processes_per_node is {settings.processes_per_node}: "
            "choose a multiple of it"
        )
    return nodes, settings.processes_per_node


def _hyperpod(job: Job, settings: EksSettings, nodes: int, processes: int) -> dict[str, Any]:
    command = [
        "hyperpodrun",
        f"--nnodes={nodes}",
        f"--nproc-per-node={processes}",
        "--shutdown-signal=SIGTERM",
        f"--shutdown-timeout={_SAVE_SECONDS}",
        "--tee=3",
        "--log_dir=/tmp/hyperpod",
        "-m",
        job.module,
    ]
    environment = {"NNODES": str(nodes), "NPROC_PER_NODE": str(processes)}
    template = _template(job, settings, command, environment)
    template["spec"]["nodeSelector"]["sagemaker.amazonaws.com/node-health-status"] = "Schedulable"
    template["spec"]["containers"][0]["ports"] = [{"containerPort": 8080}]  # the agent's
    return {
        "nprocPerNode": str(processes),
        "replicaSpecs": [{"name": "pods", "replicas": nodes, "template": template}],
        "runPolicy": {"jobMaxRetryCount": settings.retries, "cleanPodPolicy": "None"} | _limits(job),
    }


def _kubeflow(job: Job, settings: EksSettings, nodes: int, processes: int) -> dict[str, Any]:
    # the operator gives nodes, processes and rendezvous as PET_… variables, which torchrun reads
    command = ["python", "-m", "torch.distributed.run", "-m", job.module]
    template = _template(job, settings, command, {"PET_SHUTDOWN_TIMEOUT": str(_SAVE_SECONDS)})
    # No restarts, so that failed pods stay for cause, exit code and log, and the flow decides. With restarts, or with
    # any backoffLimit, the operator deletes all pods before it says that the job failed (ReconcileJobs, common/job.go).
    worker = {"replicas": nodes, "restartPolicy": "Never", "template": template}
    return {
        "nprocPerNode": str(processes),
        "elasticPolicy": {
            "rdzvBackend": "c10d",
            "minReplicas": nodes,
            "maxReplicas": nodes,
            "maxRestarts": 0,
        },
        "pytorchReplicaSpecs": {"Worker": worker},
        "runPolicy": {"cleanPodPolicy": "Running"} | _limits(job),
    }


def _limits(job: Job) -> dict[str, int]:
    limits = {"ttlSecondsAfterFinished": _KEPT_SECONDS}
    if job.hours is not None:
        limits["activeDeadlineSeconds"] = max(1, round(job.hours * 3600))
    return limits


def _template(job: Job, settings: EksSettings, command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """The pod of one node: ``command`` and then the job's own arguments."""
    given = _SETTINGS | (_EFA if settings.efa_per_node else {}) | environment | _without_passwords(job)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": settings.image,
        "command": [_literal(part) for part in (*command, *job.arguments)],
        "env": [{"name": name, "value": _literal(value)} for name, value in given.items()],
        "resources": _resources(settings),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - NCCL and torch need more than 64 MB
    }
    if settings.secret:
        container["envFrom"] = [{"secretRef": {"name": settings.secret}}]
    pod: dict[str, Any] = {
        "containers": [container],
        "nodeSelector": {"node.kubernetes.io/instance-type": settings.instance_type},
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    if job.exclude:
        pod["affinity"] = {"nodeAffinity": _not_on(job.exclude)}
    return {"metadata": {"labels": {LABEL: label_of(job.key)}}, "spec": pod}


def _resources(settings: EksSettings) -> dict[str, dict[str, str]]:
    wanted = {"nvidia.com/gpu": settings.gpus_per_node, "vpc.amazonaws.com/efa": settings.efa_per_node}
    counts = {name: str(count) for name, count in wanted.items() if count}
    return {"requests": counts, "limits": counts} if counts else {}


def _not_on(nodes: tuple[str, ...]) -> dict[str, Any]:
    """By the node's own name, of which Kubernetes takes one in a requirement; its host name may be another."""
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}


def _kueue(settings: EksSettings) -> dict[str, str]:
    labels = {"kueue.x-k8s.io/queue-name": settings.queue, "kueue.x-k8s.io/priority-class": settings.priority}
    return {name: value for name, value in labels.items() if value}


def _without_passwords(job: Job) -> dict[str, str]:
    """The job's environment, which anyone can read who may list jobs."""
    for name, value in job.environment.items():
        if holds_password(value):
            raise LauncherError(
                f"{name} holds a password, and a job's description is no place for one: leave it out of the address "
                "and put it into the Secret that eks.secret names (for MLflow: MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD)"
            )
    return job.environment


def _literal(text: str) -> str:
    """``text`` as Kubernetes hands it on unchanged: it replaces ``$(NAME)``, and ``$$`` by ``$``."""
    return text.replace("$", "$$")
