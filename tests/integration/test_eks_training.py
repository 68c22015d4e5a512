"""Training on EKS with all that is ours: the flow's loop, the launcher, torchrun, ranks. Only Kubernetes is small."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubelet import Kubelets
from kubernetes_api import KubernetesApi
from planned import plan

from flows.launchers import eks
from flows.launchers.eks import EksLauncher
from flows.launchers.pytorch_job import EksSettings
from flows.training import Patience, TrainingFailedError, train
from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.training import checkpoint
from seismic_model.training.metrics import read_metrics

NODES = ["node-a", "node-b", "node-c"]
STEPS = 20


class Silent:
    def update(self, metrics: list[dict[str, Any]]) -> None:
        """Nobody looks."""

    def say(self, words: str) -> None:
        """Nor listens."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubelets]:
    api = KubernetesApi()
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.setattr(eks, "_PAUSE", 0.1)
    (tmp_path / "logs").mkdir()
    with api.running(tmp_path / "kubeconfig"), Kubelets(api, NODES, tmp_path / "logs") as kubelets:
        yield kubelets


class Flow:
    """``train`` as the flow calls it, in a thread; two nodes with one process each."""

    def __init__(self, config: RunConfig) -> None:
        settings = EksSettings(
            namespace="training",
            image="i",
            instance_type="cpu",
            kind="PyTorchJob",
            processes_per_node=1,
            gpus_per_node=0,
        )
        self.launcher = EksLauncher(settings)
        self.error: Exception | None = None
        self.config = config
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            train(self.config, 2, self.launcher, Silent(), patience=Patience(hang=200, poll=0.2, again=0.1))
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self._thread.join(timeout=240)
        assert not self._thread.is_alive()


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 200
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def attempts(cluster: Kubelets) -> list[str]:
    return [job["metadata"]["annotations"]["sfm/attempt"] for job in cluster.api.jobs()]


def left_out(cluster: Kubelets) -> list[str]:
    """The nodes on which the one job must not run."""
    (job,) = cluster.api.jobs()
    affinity = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [node for field in term["matchFields"] for node in field["values"]]


def assert_finished(lake: Lake, config: RunConfig) -> None:
    newest = checkpoint.latest(lake, config.run)
    assert newest is not None
    assert newest.step == STEPS
    assert [entry["step"] for entry in read_metrics(lake, config.run)] == list(range(1, STEPS + 1))


@pytest.mark.timeout(600)
def test_a_job_that_a_lost_node_ended_goes_on_elsewhere(lake: Lake, cluster: Kubelets) -> None:
    config = plan(lake, steps=STEPS, warmup_steps=2, checkpoint_every=5)
    flow = Flow(config)
    until(lambda: checkpoint.committed(lake, config.run))
    cluster.lose("node-b")
    flow.end()
    assert flow.error is None
    assert_finished(lake, config)
    assert attempts(cluster) == ["2"]
    (job,) = cluster.jobs.values()
    assert set(job.places.values()) == {"node-a", "node-c"}
    assert left_out(cluster) == ["node-b"]


@pytest.mark.timeout(600)
def test_a_deleted_job_saves_its_work_and_ends_the_week(lake: Lake, cluster: Kubelets) -> None:
    config = plan(lake, steps=5000, warmup_steps=2, checkpoint_every=5000)
    flow = Flow(config)
    until(lambda: len(read_metrics(lake, config.run)) > 3)
    (job,) = cluster.api.jobs()
    cluster.api.answer_delete("pytorchjobs", job["metadata"]["name"], {})
    flow.end()
    assert isinstance(flow.error, TrainingFailedError)
    assert "cancellation" in str(flow.error)
    until(lambda: not cluster.api.jobs())
    newest = checkpoint.latest(lake, config.run)
    assert newest is not None  # though none was due
    assert newest.step > 3
