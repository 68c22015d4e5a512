"""What a job's object and its pods say of it: state, cause, exit code, lost nodes. Takes the API's JSON as it comes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flows.launchers import Cause, State
from flows.launchers.pytorch_job import CONTAINER
from ingestion.names import printable

# what either operator calls its conditions; any other means that pods were started
_STATES = {
    "": State.PENDING,
    "Created": State.PENDING,
    "Suspended": State.PENDING,  # Kueue has not admitted it, or has taken its nodes away
    "Succeeded": State.SUCCEEDED,  # Kubeflow
    "Completed": State.SUCCEEDED,  # HyperPod
    "Failed": State.FAILED,
}
_LOST_REASONS = {"NodeLost", "NodeShutdown", "Shutdown", "Terminated"}
_LOST_DISRUPTIONS = {"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"}
_PREEMPTED_REASONS = {"Evicted", "Preempting", "Preempted"}
_PREEMPTED_DISRUPTIONS = {"PreemptionByScheduler", "PreemptionByKubeScheduler", "EvictionByEvictionAPI"}
_DEADLINE = re.compile("active.{0,40}deadline", re.IGNORECASE)  # Kubeflow names it in words only
_HEALTH = "sagemaker.amazonaws.com/node-health-status"


@dataclass(frozen=True)
class Pod:
    """One pod; ``ended`` is how its container last ended, with ``exitCode``, ``reason`` and ``finishedAt``."""

    name: str
    index: str
    address: str
    node: str
    reason: str
    message: str
    disruption: str
    ended: dict[str, Any] | None
    restarted: bool  # since it ended, so that its log is the previous one
    waits: str  # why it has not started

    @property
    def evicted(self) -> bool:
        """Sent away from a node that works."""
        return self.reason in _PREEMPTED_REASONS

    @property
    def lost(self) -> bool:
        """Gone with its node."""
        return self.reason in _LOST_REASONS or (self.disruption in _LOST_DISRUPTIONS and not self.evicted)

    @property
    def out_of_memory(self) -> bool:
        """Killed for memory, by the kernel or because its node ran low."""
        killed = self.ended is not None and self.ended.get("reason") == "OOMKilled"
        return killed or (self.evicted and "memory" in self.message)


def condition_of(job: dict[str, Any]) -> dict[str, Any]:
    """The newest condition that holds; operators append them."""
    conditions = job.get("status", {}).get("conditions") or []
    return next((c for c in reversed(conditions) if c["status"] == "True"), {"type": ""})


def state_of(job: dict[str, Any]) -> State:
    """The job's state by its newest condition."""
    return _STATES.get(condition_of(job)["type"], State.RUNNING)


def pod_of(item: dict[str, Any]) -> Pod:
    """The facts in a pod's JSON."""
    meta, status = item["metadata"], item.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions") or [] if c.get("type")}
    container: dict[str, Any] = next((c for c in status.get("containerStatuses") or [] if c["name"] == CONTAINER), {})
    now, before = container.get("state") or {}, container.get("lastState") or {}
    disruption = conditions.get("DisruptionTarget", {})
    return Pod(
        name=meta["name"],
        index=meta.get("labels", {}).get("training.kubeflow.org/replica-index", ""),
        address=status.get("podIP", ""),
        node=item.get("spec", {}).get("nodeName") or "",
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        disruption=disruption.get("reason", "") if disruption.get("status") == "True" else "",
        ended=now.get("terminated") or before.get("terminated"),
        restarted="terminated" not in now and "terminated" in before,
        waits=_waits(conditions.get("PodScheduled", {}), now.get("waiting") or {}),
    )


def _waits(scheduled: dict[str, Any], waiting: dict[str, Any]) -> str:
    found = waiting or (scheduled if scheduled.get("status") == "False" else {})
    return printable(": ".join(str(found[name]) for name in ("reason", "message") if found.get(name)))


def first_failed(pods: Iterable[Pod]) -> Pod | None:
    """The pod that brought the others down: the first that ended badly, one killed for memory before all."""
    failed = [pod for pod in pods if pod.ended and pod.ended.get("exitCode")]
    return min(
        failed, key=lambda p: (not p.out_of_memory, (p.ended or {}).get("finishedAt") or "", p.name), default=None
    )


def rank_zero(job: dict[str, Any], pods: list[Pod]) -> Pod | None:
    """The pod with rank 0: HyperPod writes its address, Kubeflow numbers pods."""
    master = job.get("status", {}).get("masterAddr") or ""
    by_number = sorted(pods, key=lambda pod: (not pod.index, pod.index.zfill(6), pod.name))
    return next((pod for pod in pods if master and pod.address == master), by_number[0] if by_number else None)


def cause_of(job: dict[str, Any], pods: list[Pod], lost: tuple[str, ...]) -> Cause:
    """Why a failed job failed; ``lost`` are the nodes that it lost."""
    condition = condition_of(job)
    if "DeadlineExceeded" in condition.get("reason", "") or _DEADLINE.search(condition.get("message", "")):
        return Cause.TIME_LIMIT
    if lost:
        return Cause.NODE_LOST
    if any(pod.out_of_memory for pod in pods):
        return Cause.OUT_OF_MEMORY
    if any(pod.evicted or pod.disruption in _PREEMPTED_DISRUPTIONS for pod in pods):
        return Cause.PREEMPTED
    return Cause.ERROR


def is_usable(node: dict[str, Any]) -> bool:
    """Whether a node is ready, and whether HyperPod, where it is asked, would schedule on it."""
    conditions = {c["type"]: c["status"] for c in node.get("status", {}).get("conditions") or []}
    return (
        conditions.get("Ready") == "True"
        and node["metadata"].get("labels", {}).get(_HEALTH, "Schedulable") == "Schedulable"
    )
