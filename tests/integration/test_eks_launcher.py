"""The EKS launcher with the real Kubernetes client, against an API over real HTTP."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_api import KubernetesApi, Object

from flows.launchers import Cause, Job, LauncherError, State, Status, UnreachableError, eks
from flows.launchers.eks import EksLauncher
from flows.launchers.pytorch_job import EksSettings, name_of

KEY = "s3://lake/runs/2026-W48"
NAME = name_of(KEY)
KINDS = {"HyperPodPyTorchJob": "hyperpodpytorchjobs", "PyTorchJob": "pytorchjobs"}
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "pytorch", "state": {"running": {}}}]}

Make = Callable[..., EksLauncher]


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    """A served API, which a kubeconfig of this test names; waits are short."""
    served = KubernetesApi()
    with served.running(tmp_path / "kubeconfig"):
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setattr(eks, "_PAUSE", 0.05)
        yield served


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def launcher(kind: str = "HyperPodPyTorchJob") -> EksLauncher:
    """As a flow makes one that was just started."""
    return EksLauncher(
        EksSettings(
            namespace="training",
            image="repo/sfm:1",
            instance_type="ml.p5en.48xlarge",
            kind=kind,
            processes_per_node=8,
            gpus_per_node=8,
        )
    )


def job(key: str = KEY, **changed: Any) -> Job:
    usual = {"name": "2026-W48", "module": "seismic_model.train", "arguments": ("--config", "c"), "processes": 16}
    return Job(key, **(usual | changed))


def say(api: KubernetesApi, kind: str, *types: str, name: str = NAME, **words: str) -> None:
    """As the operator: conditions one after another, of which the first, that it was created, and the last hold."""
    conditions = [{"type": "Created", "status": "True"}]
    conditions += [{"type": t, "status": "True" if t == types[-1] else "False"} | words for t in types]
    api.update(KINDS[kind], name, status={"conditions": conditions})


def ended(code: int, reason: str = "Error", at: str = "2026-12-01T10:00:00Z", **status: Any) -> Object:
    terminated = {"exitCode": code, "reason": reason, "finishedAt": at}
    return {"phase": "Failed", "containerStatuses": [{"name": "pytorch", "state": {"terminated": terminated}}]} | status


def disrupted(reason: str) -> Object:
    return {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}


def found(made: EksLauncher, key: str = KEY) -> Status:
    status = made.find(key)
    assert status is not None
    return status


def test_a_job_is_created_followed_and_ends(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    assert made.find(KEY) is None
    made.submit(job())
    (item,) = api.jobs()
    assert item["kind"] == kind
    assert found(made).state is State.PENDING

    say(api, kind, "Running")
    api.add_pod(item, f"{NAME}-0", "node-a", RUNNING, labels={"training.kubeflow.org/replica-index": "0"})
    api.add_pod(item, f"{NAME}-1", "node-b", RUNNING, labels={"training.kubeflow.org/replica-index": "1"})
    api.logs[f"{NAME}-0"] = "".join(f"step {n}\n" for n in range(200))
    status = found(made)
    assert (status.state, status.exit_code) == (State.RUNNING, None)
    assert status.log_tail.endswith("step 199\n")
    assert status.place == f"{kind} training/{NAME}, attempt 1, on node-a, node-b"

    say(api, kind, "Running", "Completed" if kind == "HyperPodPyTorchJob" else "Succeeded")
    assert (found(made).state, found(made).exit_code, found(made).cause) == (State.SUCCEEDED, 0, None)


def test_a_new_launcher_attaches_and_there_is_one_job(api: KubernetesApi, kind: str) -> None:
    launcher(kind).submit(job())
    say(api, kind, "Running")
    uid = api.jobs()[0]["metadata"]["uid"]
    again = launcher(kind)
    assert found(again).state is State.RUNNING
    again.submit(job())
    assert [item["metadata"]["uid"] for item in api.jobs()] == [uid]


@pytest.mark.parametrize("last", ["Failed", "Succeeded", "Completed"])
def test_an_ended_job_is_replaced_by_its_next_attempt(api: KubernetesApi, kind: str, last: str) -> None:
    made = launcher(kind)
    made.submit(job())
    say(api, kind, last)
    made.submit(job())
    (item,) = api.jobs()
    assert item["metadata"]["annotations"]["sfm/attempt"] == "2"
    assert found(made).state is State.PENDING


def test_a_job_that_is_being_deleted_is_waited_for(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job())
    api.finish_deletions = False
    api.answer_delete(KINDS[kind], NAME, {})
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(made.submit, job())
        while not any(method == "GET" and path.endswith(NAME) for method, path in api.requests):
            time.sleep(0.01)
        assert not second.done()
        api.collect_garbage()
        second.result(timeout=20)
    (item,) = api.jobs()
    assert "deletionTimestamp" not in item["metadata"]
    assert found(made).place.endswith("attempt 2")


def test_two_flows_at_once_make_one_job(api: KubernetesApi, kind: str) -> None:
    for last in (None, "Failed"):
        if last:
            say(api, kind, last)
        start = threading.Barrier(4)

        def submit(start: threading.Barrier = start) -> None:
            made = launcher(kind)
            start.wait()
            made.submit(job())

        with ThreadPoolExecutor(4) as pool:
            for flow in [pool.submit(submit) for _ in range(4)]:
                flow.result(timeout=30)
        created = [path for method, path in api.requests if method == "POST"]
        assert len(api.jobs()) == 1
        assert len(created) >= 4
    assert api.jobs()[0]["metadata"]["annotations"]["sfm/attempt"] == "2"


def test_a_job_that_another_flow_has_just_started_is_not_deleted(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job())
    say(api, kind, "Failed")
    others: list[str] = []

    def replace_before_deletion(method: str, _: str) -> None:
        if method == "DELETE" and not others:
            others.append("")  # the other's own deletion passes
            launcher(kind).submit(job())
            others[0] = api.jobs()[0]["metadata"]["uid"]

    api.faults.append(replace_before_deletion)
    made.submit(job())
    assert [item["metadata"]["uid"] for item in api.jobs()] == others
    assert found(made).state is State.PENDING


def test_jobs_of_both_kinds_are_at_two_places(api: KubernetesApi) -> None:
    """Else a flow that falls back to the other kind would start a run that still trains under the first."""
    first, second = (launcher(kind).place() for kind in KINDS)
    assert first != second
    assert launcher().place() == first


def test_jobs_of_other_keys_are_left_alone(api: KubernetesApi) -> None:
    made = launcher()
    made.submit(job())
    made.submit(job("s3://other/runs/2026-W48"))
    assert len(api.jobs()) == 2
    made.cancel(KEY)
    assert launcher().find(KEY) is None
    assert found(made, "s3://other/runs/2026-W48").state is State.PENDING


def test_a_foreign_object_of_the_same_name_is_not_touched(api: KubernetesApi) -> None:
    api.create("hyperpodpytorchjobs", {"metadata": {"name": NAME, "namespace": "training"}, "spec": {}})
    with pytest.raises(LauncherError, match=f"{NAME}, attempt 1 exists and is not the job of {KEY}"):
        launcher().submit(job())
    assert len(api.jobs()) == 1


def test_cancel_deletes_pods_first_and_returns_when_all_are_gone(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job())
    say(api, kind, "Running")
    api.add_pod(api.jobs()[0], f"{NAME}-0", "node-a", RUNNING)
    api.finish_deletions = False
    with ThreadPoolExecutor(1) as pool:
        cancelled = pool.submit(made.cancel, KEY)
        while not any("deletionTimestamp" in item["metadata"] for item in api.jobs()):
            time.sleep(0.01)
        assert not cancelled.done()
        api.collect_garbage()
        cancelled.result(timeout=20)
    assert not api.objects
    made.cancel(KEY)  # again: nothing to do
    assert (found(made).state, found(made).cause) == (State.FAILED, Cause.CANCELLED)
    assert launcher(kind).find(KEY) is None
    made.submit(job())
    assert found(made).state is State.PENDING


def test_a_job_that_a_person_deletes_is_cancelled_from_then_on(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job())
    say(api, kind, "Running")
    api.add_pod(api.jobs()[0], f"{NAME}-0", "node-a", RUNNING)
    api.logs[f"{NAME}-0"] = "saving\n"
    api.finish_deletions = False
    api.answer_delete(KINDS[kind], NAME, {})
    for other in (made, launcher(kind)):
        status = found(other)
        assert (status.state, status.cause, status.log_tail) == (State.FAILED, Cause.CANCELLED, "saving\n")
    api.collect_garbage()
    status = found(made)
    assert (status.state, status.cause) == (State.FAILED, Cause.CANCELLED)
    assert "someone deleted" in status.place


def test_a_node_that_hangs_is_named_when_a_job_does_not_go(api: KubernetesApi, monkeypatch: pytest.MonkeyPatch) -> None:
    made = launcher()
    made.submit(job())
    api.add_pod(api.jobs()[0], f"{NAME}-0", "node-a", RUNNING)
    api.finish_deletions = False
    monkeypatch.setattr(eks, "_GONE_SECONDS", 0.3)
    with pytest.raises(UnreachableError, match=rf"still there, with {NAME}-0 on node-a\. .*kubectl delete pod --force"):
        made.cancel(KEY)


@pytest.mark.parametrize(
    ("pods", "nodes", "cause", "code", "bad"),
    [
        pytest.param([ended(1)], {}, Cause.ERROR, 1, (), id="error"),
        pytest.param([ended(143), ended(137, "OOMKilled")], {}, Cause.OUT_OF_MEMORY, 137, (), id="memory"),
        pytest.param(
            [{"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}],
            {},
            Cause.OUT_OF_MEMORY,
            None,
            (),
            id="memory of the node",
        ),
        pytest.param(
            [{"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."}],
            {},
            Cause.PREEMPTED,
            None,
            (),
            id="evicted",
        ),
        pytest.param([disrupted("PreemptionByScheduler")], {}, Cause.PREEMPTED, None, (), id="preempted"),
        pytest.param([disrupted("EvictionByEvictionAPI")], {}, Cause.PREEMPTED, None, (), id="drained"),
        pytest.param(
            [disrupted("DeletionByTaintManager"), ended(1)], {}, Cause.NODE_LOST, 1, ("node-0",), id="tainted"
        ),
        pytest.param([{"phase": "Failed", "reason": "NodeLost"}], {}, Cause.NODE_LOST, None, ("node-0",), id="lost"),
        pytest.param(
            [ended(1), ended(1)], {"node-1": {"ready": False}}, Cause.NODE_LOST, 1, ("node-1",), id="not ready"
        ),
        pytest.param([ended(1), ended(1)], {"node-1": None}, Cause.NODE_LOST, 1, ("node-1",), id="node gone"),
        pytest.param(
            [ended(1)],
            {"node-0": {"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReplacement"}},
            Cause.NODE_LOST,
            1,
            ("node-0",),
            id="HyperPod replaces it",
        ),
    ],
)
def test_why_a_job_failed_and_on_which_nodes(
    api: KubernetesApi, kind: str, pods: list[Object], nodes: dict[str, Any], cause: Cause, code: int | None, bad: Any
) -> None:
    made = launcher(kind)
    made.submit(job())
    (item,) = api.jobs()
    for n, status in enumerate(pods):
        api.add_pod(item, f"{NAME}-{n}", f"node-{n}", status)
        options = nodes.get(f"node-{n}", {})
        if options is not None:
            api.add_node(f"node-{n}", **options)
    say(api, kind, "Running", "Failed", message="replicas failed")
    status = found(made)
    assert (status.state, status.cause, status.exit_code, status.bad_nodes) == (State.FAILED, cause, code, bad)
    assert "replicas failed" in status.log_tail


def test_a_time_limit_is_told_from_other_failures(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job(hours=1))
    api.add_pod(api.jobs()[0], f"{NAME}-0", "node-0", ended(143))
    message = f"PyTorchJob {NAME} has failed because it was active longer than specified deadline"
    say(api, kind, "Failed", message=message)
    assert found(made).cause is Cause.TIME_LIMIT


def test_the_log_is_that_of_the_pod_that_failed_first(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job())
    (item,) = api.jobs()
    for n, at in enumerate(("10:00:09", "10:00:02", "10:00:09")):
        api.add_node(f"node-{n}")
        api.add_pod(item, f"{NAME}-{n}", f"node-{n}", ended(9 if n == 1 else 1, at=f"2026-12-01T{at}Z"))
        api.logs[f"{NAME}-{n}"] = f"from rank {n}\n"
    say(api, kind, "Failed")
    status = found(made)
    assert status.exit_code == 9
    assert status.log_tail == "from rank 1"


def test_hyperpods_rank_zero_is_known_by_its_address(api: KubernetesApi) -> None:
    made = launcher()
    made.submit(job())
    (item,) = api.jobs()
    for n in range(2):
        api.add_pod(item, f"{NAME}-pods-{n}", f"node-{n}", RUNNING | {"podIP": f"10.0.0.{n}"})
        api.logs[f"{NAME}-pods-{n}"] = f"pod {n}\n"
    status = {"masterAddr": "10.0.0.1", "conditions": [{"type": "Running", "status": "True"}]}
    api.update("hyperpodpytorchjobs", NAME, status=status)
    assert found(made).log_tail == "pod 1\n"


def test_what_a_waiting_job_waits_for_is_said(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job())
    (item,) = api.jobs()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    api.add_pod(item, f"{NAME}-0", "node-0", {"containerStatuses": [{"name": "pytorch", "state": waiting}]})
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes"}
    api.add_pod(item, f"{NAME}-1", "", {"conditions": [full]})
    say(api, kind)
    assert found(made).place.endswith(f"on node-0, {NAME}-0 waits: ImagePullBackOff: no such image")
    api.delete("pods", f"{NAME}-0")
    assert found(made).place.endswith(f"attempt 1, {NAME}-1 waits: Unschedulable: 0/4 nodes")


def test_kueue_taking_the_nodes_away_is_waiting(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job())
    say(api, kind, "Running", "Suspended")
    assert found(made).state is State.PENDING
    made.submit(job())  # attaches
    assert len(api.jobs()) == 1


def test_nodes_that_may_not_be_read_are_taken_for_good(api: KubernetesApi) -> None:
    made = launcher()
    made.submit(job())
    api.add_pod(api.jobs()[0], f"{NAME}-0", "node-0", ended(1))
    say(api, "HyperPodPyTorchJob", "Failed")
    api.faults.append(lambda _, path: (403, "nodes is forbidden") if "/nodes/" in path else None)
    assert (found(made).cause, found(made).bad_nodes) == (Cause.ERROR, ())


def test_an_absent_operator_is_named(api: KubernetesApi, kind: str) -> None:
    api.kinds.discard(KINDS[kind])
    made = launcher(kind)
    operator = "HyperPod" if kind == "HyperPodPyTorchJob" else "Kubeflow"
    for ask in (lambda: made.submit(job()), lambda: made.find(KEY), lambda: made.cancel(KEY)):
        with pytest.raises(LauncherError, match=f"the {operator} training operator is not installed") as refused:
            ask()
        assert not isinstance(refused.value, UnreachableError)


@pytest.mark.parametrize("code", [400, 403, 422])
def test_a_refusal_is_told_in_the_apis_words(api: KubernetesApi, code: int) -> None:
    api.faults.append(lambda *_: (code, "quota is\x1b[31m spent"))
    with pytest.raises(LauncherError, match=rf"answered {code}: quota is\\x1b\[31m spent") as refused:
        launcher().submit(job())
    assert not isinstance(refused.value, UnreachableError)


@pytest.mark.parametrize("code", [401, 429, 500, 503])
def test_a_busy_api_is_worth_asking_again(api: KubernetesApi, code: int) -> None:
    made = launcher()
    api.faults.append(lambda *_: (code, "busy"))
    for ask in (lambda: made.submit(job()), lambda: made.find(KEY), lambda: made.cancel(KEY)):
        with pytest.raises(UnreachableError, match="busy"):
            ask()
    api.faults.clear()
    made.submit(job())
    assert found(made).state is State.PENDING


def test_a_restart_of_the_api_loses_nothing(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job())
    api.stop()
    for ask in (lambda: made.submit(job()), lambda: made.find(KEY), lambda: made.cancel(KEY)):
        with pytest.raises(UnreachableError, match="does not answer"):
            ask()
    api.start()
    made.submit(job())
    assert len(api.jobs()) == 1
    assert found(made).state is State.PENDING


def test_a_slow_api_is_not_waited_for_for_ever(api: KubernetesApi, monkeypatch: pytest.MonkeyPatch) -> None:
    made = launcher()
    monkeypatch.setattr(eks, "_TIMEOUT", (1.0, 0.2))
    api.slow = 1.0
    with pytest.raises(UnreachableError, match="does not answer"):
        made.submit(job())
    before = len(api.requests)
    with pytest.raises(UnreachableError, match="does not answer"):
        made.find(KEY)
    assert len(api.requests) == before + 1  # nothing asks again behind the caller's back
    api.slow = 0.0
    monkeypatch.setattr(eks, "_TIMEOUT", (5.0, 30.0))
    made.submit(job())  # the first one may have arrived all the same
    assert len(api.jobs()) == 1


def test_a_token_that_expires_is_renewed(api: KubernetesApi, tmp_path: Path) -> None:
    """As `aws eks get-token` gives them: for a quarter of an hour, while training takes days."""
    plugin = tmp_path / "get-token"
    plugin.write_text(f"""#!{sys.executable}
import json, pathlib, sys
count = pathlib.Path({str(tmp_path / "count")!r})
n = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(n))
answer = {{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential"}}
answer["status"] = {{"token": f"token-{{n}}", "expirationTimestamp": "2020-01-01T00:00:00Z"}}
json.dump(answer, sys.stdout)
""")
    plugin.chmod(0o755)
    kubeconfig = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(plugin), "interactiveMode": "Never"}
    kubeconfig["users"][0]["user"] = {"exec": exec_}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    made = launcher()
    for _ in range(3):
        made.find(KEY)
    assert api.tokens[0].startswith("Bearer token-")
    assert len(set(api.tokens)) == 3


def test_without_a_cluster_the_message_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(LauncherError, match="aws eks update-kubeconfig"):
        launcher()


class Waiting:
    """A ``wait`` in a thread."""

    def __init__(self, made: EksLauncher, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(1)
        self.done = self._pool.submit(made.wait, KEY, seconds)

    def watched(self, api: KubernetesApi) -> None:
        while not any("watch=true" in path for _, path in api.requests):
            time.sleep(0.01)


def test_a_wait_ends_with_a_change(api: KubernetesApi, kind: str) -> None:
    made = launcher(kind)
    made.submit(job())
    made.find(KEY)
    waiting = Waiting(made, 200)
    waiting.watched(api)
    assert not waiting.done.done()
    say(api, kind, "Running")
    waiting.done.result(timeout=20)
    assert found(made).state is State.RUNNING


def test_a_change_between_find_and_wait_is_not_missed(api: KubernetesApi) -> None:
    made = launcher()
    made.submit(job())
    made.find(KEY)
    say(api, "HyperPodPyTorchJob", "Failed")
    Waiting(made, 200).done.result(timeout=20)


def test_a_wait_sees_other_jobs_change_and_goes_on(api: KubernetesApi) -> None:
    made = launcher()
    made.submit(job())
    made.submit(job("other"))
    made.find(KEY)
    waiting = Waiting(made, 200)
    waiting.watched(api)
    say(api, "HyperPodPyTorchJob", "Failed", name=name_of("other"))
    time.sleep(0.3)
    assert not waiting.done.done()
    api.delete("hyperpodpytorchjobs", NAME)
    waiting.done.result(timeout=20)
    assert found(made).cause is Cause.CANCELLED


@pytest.mark.parametrize("trouble", ["compacted", "cut", "restarted", "down"])
def test_a_wait_survives_what_happens_to_watches(api: KubernetesApi, trouble: str) -> None:
    made = launcher()
    made.submit(job())
    made.find(KEY)
    if trouble == "compacted":
        api.compact()  # 410 Gone
    if trouble == "cut":
        api.cut_watches = True
    if trouble == "down":
        api.stop()
    waiting = Waiting(made, 200)
    if trouble == "restarted":
        waiting.watched(api)
        api.stop()
    waiting.done.result(timeout=20)  # long before its time: the caller looks again
    if trouble in ("down", "restarted"):
        api.start()
    say(api, "HyperPodPyTorchJob", "Running")
    assert found(made).state is State.RUNNING
    api.cut_watches = False
    again = Waiting(made, 200)
    say(api, "HyperPodPyTorchJob", "Failed")
    again.done.result(timeout=20)  # watches work again


def test_a_wait_ends_with_its_time(api: KubernetesApi) -> None:
    made = launcher()
    made.submit(job())
    made.find(KEY)
    made.wait(KEY, 0.2)
    assert found(made).state is State.PENDING


def test_where_watches_are_not_allowed_a_wait_is_a_sleep(api: KubernetesApi) -> None:
    made = launcher()
    made.submit(job())
    api.faults.append(lambda _, path: (403, "no watch") if "watch=true" in path else None)
    waiting = Waiting(made, 4.0)
    waiting.watched(api)
    time.sleep(0.3)
    assert not waiting.done.done()
    waiting.done.result(timeout=20)
    assert sum("watch=true" in path for _, path in api.requests) == 1
