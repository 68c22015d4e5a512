"""Training jobs on EKS: objects that HyperPod's or Kubeflow's operator turns into pods.

The object's name comes from the job's key, so the API itself keeps two from running under one key. Nothing is
remembered here: a flow that was killed and started again finds its job by a label.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from kubernetes.client import ApiClient, Configuration, CoreV1Api, CustomObjectsApi, V1DeleteOptions, V1Preconditions
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.watch import Watch
from urllib3.exceptions import HTTPError

from flows.launchers import Cause, Job, LauncherError, State, Status, UnreachableError
from flows.launchers.pods import Pod, cause_of, condition_of, first_failed, is_usable, pod_of, rank_zero, state_of
from flows.launchers.pytorch_job import (
    ATTEMPT,
    CONTAINER,
    GRACE_SECONDS,
    KEY,
    LABEL,
    EksSettings,
    group_and_plural,
    label_of,
    manifest,
    name_of,
)
from ingestion.names import printable

_TIMEOUT = (5.0, 30.0)  # seconds to connect, and between two parts of an answer
_GONE_SECONDS = GRACE_SECONDS + 60  # in which a deleted job and its pods are gone, unless a node hangs
_PAUSE = 1.0
_ROUNDS = 10  # of creating, and ending what stands in the way
_LOG_LINES = 60
_LOG_BYTES = 2**20  # of those lines, counted from the first: a bound for memory
_LOG_TAIL = 4000  # characters


_NO_ANSWER = (ValueError, TypeError, KeyError, AttributeError)  # what JSON that is not the API's leads to
P = ParamSpec("P")
T = TypeVar("T")


def _understood(method: Callable[P, T]) -> Callable[P, T]:
    """``method``, for which an answer that is none of the API's, such as a proxy's page, is no answer."""

    @functools.wraps(method)
    def ask(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return method(*arguments, **options)
        except _NO_ANSWER as error:
            raise _no_answer(f"{type(error).__name__}: {error}") from error

    return ask


def _object(answer: Any) -> dict[str, Any] | None:
    """``answer`` where that is an object of the API, or None. Raises ``UnreachableError``."""
    if answer is None or (isinstance(answer, dict) and isinstance(answer.get("metadata"), dict)):
        return answer
    raise _no_answer("an object without metadata")


def _no_answer(what: str) -> UnreachableError:
    return UnreachableError(f"what answers for the Kubernetes API is not it, or is cut off ({printable(what)[:300]})")


class EksLauncher:
    """Jobs of one namespace and kind; in a pod by its service account, elsewhere by the current kubeconfig context."""

    def __init__(self, settings: EksSettings) -> None:
        client = _client()
        self.settings = settings
        self._jobs = CustomObjectsApi(client)
        self._core = CoreV1Api(client)
        group, plural = group_and_plural(settings)
        self._kind = (group, "v1", settings.namespace, plural)
        self._versions: dict[str, str] = {}  # at which each job was last seen here, by key

    def place(self) -> str:
        """The kind and namespace, and the cluster by its certificate, which is the same for pods and for people."""
        configuration = self._jobs.api_client.configuration
        authority = configuration.ssl_ca_cert
        cluster = hashlib.sha256(Path(authority).read_bytes().strip()).hexdigest()[:12] if authority else ""
        kind = self.settings.kind  # a job of the other kind is not found
        return f"{kind}s in namespace {self.settings.namespace} of Kubernetes cluster {cluster or configuration.host}"

    def submit(self, job: Job) -> None:
        """Create the job's object; attach to one that waits or runs, replace one that has ended."""
        attempt = 1
        for _ in range(_ROUNDS):
            if made := self._create(manifest(job, self.settings, attempt)):
                self._versions[job.key] = made["metadata"]["resourceVersion"]
                return
            found = self._read(name_of(job.key))
            if found is None:
                continue  # gone since
            if found["metadata"].get("annotations", {}).get(KEY) != job.key:
                raise LauncherError(f"{self._place(found)} exists and is not the job of {job.key}: delete or rename it")
            if not _is_deleted(found) and state_of(found).lives:
                self._versions[job.key] = found["metadata"]["resourceVersion"]
                return
            attempt = int(found["metadata"]["annotations"].get(ATTEMPT, 1)) + 1
            self._delete(found)
        raise UnreachableError(f"{self.settings.kind} {name_of(job.key)} comes and goes: others start and end it too")

    @_understood
    def find(self, key: str) -> Status | None:
        """The status of the job under ``key``, or None; one that this launcher knew and that is gone was cancelled."""
        known = key in self._versions
        jobs = self._find(key)
        if not jobs:
            gone = f"{self.settings.kind} {self.settings.namespace}/{name_of(key)}, which someone deleted"
            return Status(State.FAILED, None, "", Cause.CANCELLED, gone) if known else None
        return self._status(jobs[0], self._pods(key))

    def wait(self, key: str, seconds: float) -> None:
        """Return when the job under ``key`` has changed since this launcher last saw it, or after ``seconds``.

        Never raises: whatever a watch runs into, ``find`` looks again and says what is wrong.
        """
        until = time.monotonic() + seconds
        stream = Watch().stream(
            self._jobs.list_namespaced_custom_object,
            *self._kind,
            label_selector=f"{LABEL}={label_of(key)}",
            resource_version=self._versions.get(key),
            timeout_seconds=max(1, math.ceil(seconds)),
            _request_timeout=(_TIMEOUT[0], seconds + _TIMEOUT[0]),
        )
        pause = _PAUSE  # a stream that breaks at once, each time, must not make a storm
        try:
            with closing(stream):
                for _ in stream:
                    return
        except ApiException as error:
            if error.status != HTTPStatus.GONE:  # the past is forgotten: look again now
                pause = seconds  # not allowed: as good as none
        except (HTTPError, OSError, *_NO_ANSWER):
            pass
        time.sleep(max(0.0, min(pause, until - time.monotonic())))

    @_understood
    def cancel(self, key: str) -> None:
        """SIGTERM to all ranks, SIGKILL to what is left after the pods' grace; the object goes with them."""
        for job in self._find(key):
            self._delete(job)

    # the API

    def _create(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The object as it was made; None when there is one of that name."""
        return _object(self._ask(self._jobs.create_namespaced_custom_object, *self._kind, body, absent=409))

    def _read(self, name: str) -> dict[str, Any] | None:
        return _object(self._ask(self._jobs.get_namespaced_custom_object, *self._kind, name, absent=404))

    def _find(self, key: str) -> list[dict[str, Any]]:
        selector = f"{LABEL}={label_of(key)}"
        listing = self._ask(self._jobs.list_namespaced_custom_object, *self._kind, label_selector=selector)
        jobs = [job for job in listing["items"] if job["metadata"].get("annotations", {}).get(KEY) == key]
        if jobs or key in self._versions:
            self._versions[key] = listing["metadata"]["resourceVersion"]
        return jobs

    def _delete(self, job: dict[str, Any]) -> None:
        """Delete exactly this object, pods first, and return when it is gone."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        options = V1DeleteOptions(propagation_policy="Foreground", preconditions=V1Preconditions(uid=uid))
        if not _is_deleted(job):
            # 409: another one has taken its name; 404: it is gone
            self._ask(self._jobs.delete_namespaced_custom_object, *self._kind, name, body=options, absent=(404, 409))
        until = time.monotonic() + _GONE_SECONDS
        while time.monotonic() < until:
            found = self._read(name)
            if found is None or found["metadata"]["uid"] != uid:
                return
            time.sleep(_PAUSE)
        pods = ", ".join(f"{pod.name} on {pod.node}" for pod in self._pods(job["metadata"]["annotations"][KEY]))
        raise UnreachableError(
            f"{self._place(job)} was deleted {_GONE_SECONDS} s ago and is still there, with {pods or 'no pods'}. When "
            "its nodes are lost: kubectl delete pod --force --grace-period=0"
        )

    def _pods(self, key: str) -> list[Pod]:
        selector = f"{LABEL}={label_of(key)}"
        answer = self._ask(
            self._core.list_namespaced_pod, self.settings.namespace, label_selector=selector, _preload_content=False
        )
        return sorted((pod_of(item) for item in json.loads(answer.data)["items"]), key=lambda pod: pod.name)

    def _ask(
        self, request: Callable[..., Any], *arguments: Any, absent: int | tuple[int, ...] = (), **options: Any
    ) -> Any:
        """The answer, or None when it is the status ``absent``. Raises ``LauncherError``, ``UnreachableError``."""
        try:
            return request(*arguments, _request_timeout=_TIMEOUT, **options)
        except ApiException as error:
            if _words(error) and error.status in ((absent,) if isinstance(absent, int) else absent):
                return None
            raise self._refusal(error) from error
        except (HTTPError, OSError) as error:
            raise UnreachableError(f"the Kubernetes API does not answer: {printable(str(error))[:500]}") from error

    def _refusal(self, error: ApiException) -> LauncherError:
        status, words = int(error.status or 0), _words(error)
        kind, space = self.settings.kind, self.settings.namespace
        said = f"the Kubernetes API answered {status}: {words or printable(str(error.reason))}"
        if status in (0, 408, 429) or status >= 500:
            return UnreachableError(said)
        if status == 401:  # the job goes on meanwhile, and the next question asks for a new token
            return UnreachableError(f"{said}. Renew the credentials that the kubeconfig names (aws sso login)")
        if status == 404 and not words:  # of an unknown kind it says nothing
            operator = "HyperPod" if kind == "HyperPodPyTorchJob" else "Kubeflow"
            return LauncherError(
                f"the {operator} training operator is not installed in this cluster, which knows no {kind} (asked in "
                f"namespace {space}): install it, or choose the other eks.kind"
            )
        if status == 403:
            return LauncherError(f"{said}. Give this identity the role in docs/eks.md, in namespace {space}")
        return LauncherError(f"{said}. What was sent, a {kind} in {space}, follows the settings under eks")

    # what is said of a job

    def _status(self, job: dict[str, Any], pods: list[Pod]) -> Status:
        state = state_of(job)
        if state is not State.FAILED:
            log, place = self._log(rank_zero(job, pods)), self._place(job, pods)
            if _is_deleted(job) and state is not State.SUCCEEDED:
                return Status(State.FAILED, None, log, Cause.CANCELLED, f"{place}, which someone deleted")
            waits = [f"{pod.name} waits: {pod.waits}" for pod in pods if pod.waits]
            return Status(state, 0 if state is State.SUCCEEDED else None, log, place=", ".join([place, *waits[:1]]))
        failed = first_failed(pods)
        lost = self._lost_nodes(pods)
        return Status(
            state,
            failed.ended["exitCode"] if failed and failed.ended else None,
            f"{self._log(failed or rank_zero(job, pods))}\n{printable(condition_of(job).get('message', ''))}".strip(),
            cause_of(job, pods, lost),
            self._place(job, pods),
            lost,
        )

    def _place(self, job: dict[str, Any], pods: list[Pod] | None = None) -> str:
        meta = job["metadata"]
        place = f"{self.settings.kind} {self.settings.namespace}/{meta['name']}"
        place += f", attempt {meta.get('annotations', {}).get(ATTEMPT, 1)}"
        nodes = sorted({pod.node for pod in pods or () if pod.node})
        return f"{place}, on {', '.join(nodes)}" if nodes else place

    def _lost_nodes(self, pods: list[Pod]) -> tuple[str, ...]:
        return tuple(sorted({p.node for p in pods if p.node and (p.lost or not self._is_usable(p.node))}))

    def _is_usable(self, node: str) -> bool:
        """A node that no longer exists is not; one that this identity may not see is taken for usable."""
        try:
            answer = self._ask(self._core.read_node, node, _preload_content=False, absent=404)
        except UnreachableError:
            raise
        except LauncherError:
            return True
        return answer is not None and is_usable(json.loads(answer.data))

    def _log(self, pod: Pod | None) -> str:
        """The end of a pod's log; empty when its node or the pod is gone."""
        if pod is None:
            return ""
        try:
            answer: Any = self._core.read_namespaced_pod_log(
                pod.name,
                self.settings.namespace,
                container=CONTAINER,
                tail_lines=_LOG_LINES,
                limit_bytes=_LOG_BYTES,
                previous=pod.restarted and pod.ended is not None,
                _preload_content=False,
                _request_timeout=_TIMEOUT,
            )
        except (ApiException, HTTPError, OSError):
            return ""
        return bytes(answer.data).decode(errors="replace")[-_LOG_TAIL:]


def _client() -> ApiClient:
    configuration = Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(client_configuration=configuration)
        else:
            load_kube_config(client_configuration=configuration)
    except ConfigException as error:
        raise LauncherError(
            f"no Kubernetes cluster is configured: {printable(str(error))}. Write a kubeconfig with "
            "`aws eks update-kubeconfig --name CLUSTER`, or run inside the cluster"
        ) from error
    configuration.retries = False  # whoever asks decides when to ask again
    return ApiClient(configuration)


def _is_deleted(job: dict[str, Any]) -> bool:
    return bool(job["metadata"].get("deletionTimestamp"))


def _words(error: ApiException) -> str:
    """What the API says in a Status object; empty when the answer is none of its own."""
    try:
        return printable(str(json.loads(error.body or "")["message"]))[:500]
    except (ValueError, KeyError, TypeError):
        return ""
