"""Manifests for EKS, checked against what the makers of both operators publish."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.run import get_args_parser

from flows.launchers import Job, LauncherError
from flows.launchers.pytorch_job import EksSettings, label_of, manifest, name_of

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-schemas/bin/python"
KINDS = ("HyperPodPyTorchJob", "PyTorchJob")
FULL = {"efa_per_node": 16, "service_account": "trainer", "secret": "tracking", "queue": "q", "priority": "high"}

Check = Callable[[dict[str, Any]], str]


def eks(kind: str = KINDS[0], **changed: Any) -> EksSettings:
    given_ = {"namespace": "training", "image": "repo/sfm:1", "instance_type": "ml.p5en.48xlarge", "kind": kind}
    return EksSettings(**(given_ | {"processes_per_node": 8, "gpus_per_node": 8} | changed))


def job(**changed: Any) -> Job:
    usual = {"key": "s3://lake/runs/2026-W48", "name": "2026-W48", "module": "seismic_model.train", "processes": 16}
    return Job(**(usual | {"arguments": ("--config", "s3://lake/runs/2026-W48/config.json")} | changed))


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    spec = body["spec"]
    replicas = spec["replicaSpecs"][0] if "replicaSpecs" in spec else spec["pytorchReplicaSpecs"]["Worker"]
    return replicas["template"]["spec"]


def expanded(text: str, environment: dict[str, str]) -> str:
    """What a kubelet hands on for ``text``: ``$(NAME)`` is replaced where it is known, ``$$`` is one ``$``."""
    pattern = re.compile(r"\$\$|\$\(([^()]*)\)", re.DOTALL)
    return pattern.sub(lambda m: "$" if m[0] == "$$" else environment.get(m[1], m[0]), text)


@pytest.fixture(scope="module")
def check() -> Iterator[Check]:
    """What the published schemas say of a manifest: "ok", or its fault."""
    assert PYTHON.exists(), "the published schemas are not installed: make .venv-schemas/ready"
    command = [str(PYTHON), str(ROOT / "tests/validate_manifests.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout

        def ask(body: dict[str, Any]) -> str:
            process.stdin.write(json.dumps(body) + "\n")
            process.stdin.flush()
            return str(json.loads(process.stdout.readline()))

        yield ask
        process.stdin.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changed", [{}, FULL], ids=["least", "full"])
def test_a_manifest_is_what_the_operator_knows(check: Check, kind: str, changed: dict[str, Any]) -> None:
    body = manifest(job(exclude=("node-1", "node-2"), hours=1.5), eks(kind, **changed), attempt=1)
    assert check(body) == "ok"
    assert body["spec"]["runPolicy"]["activeDeadlineSeconds"] == 5400


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_of_a_status_is_what_operators_write(check: Check, kind: str) -> None:
    words = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    address = {"masterAddr": "10.0.0.1"} if kind == "HyperPodPyTorchJob" else {}
    assert check(manifest(job(), eks(kind), attempt=1) | {"status": {"conditions": [words]} | address}) == "ok"


@pytest.mark.parametrize("kind", KINDS)
def test_the_schemas_refuse_fields_they_do_not_know(check: Check, kind: str) -> None:
    for place in (lambda b: b["spec"], lambda b: b["spec"]["runPolicy"], lambda b: pod_of(b)["containers"][0]):
        body = manifest(job(), eks(kind), attempt=1)
        place(body)["surprise"] = 1
        assert check(body) != "ok"


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SHELL = st.sampled_from(["$(HOME)", "$$(HOME)", "`id`", "'; rm -rf / #", '"$(id)"\n', "$", "$$", "--", "-m"])


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    key=TEXTS,
    name=TEXTS,
    arguments=st.lists(TEXTS | SHELL, max_size=4),
    environment=st.dictionaries(NAMES, TEXTS.filter(lambda t: "@" not in t) | SHELL, max_size=4),
)
def test_any_text_makes_a_valid_manifest_and_arrives_unchanged(
    check: Check, kind: str, key: str, name: str, arguments: list[str], environment: dict[str, str]
) -> None:
    body = manifest(job(key=key, name=name, arguments=tuple(arguments), environment=environment), eks(kind), 1)

    assert check(body) == "ok"
    container = pod_of(body)["containers"][0]
    known = {"HOME": "/root"} | environment
    assert [expanded(part, known) for part in container["command"]][
        -len(arguments) or None :
    ] == arguments or not arguments
    sent = {entry["name"]: expanded(entry["value"], known) for entry in container["env"]}
    assert {n: sent[n] for n in environment} == environment
    assert container["command"][0] in ("hyperpodrun", "python")
    assert "args" not in container
    for label in body["metadata"]["labels"].values():
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label)
    assert body["metadata"]["annotations"]["sfm/key"] == key


@given(first=TEXTS, second=TEXTS)
def test_names_follow_the_key_and_fit_dns(first: str, second: str) -> None:
    name = name_of(first)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 40  # and 22 more that operators append
    assert (name == name_of(second)) == (first == second)
    assert (label_of(first) == label_of(second)) == (first == second)
    assert name == manifest(job(key=first, name=second), eks(), attempt=2)["metadata"]["name"]


def test_a_person_finds_the_run_in_the_name() -> None:
    assert name_of("s3://lake/runs/2026-W48-vit_300M").startswith("sfm-2026-w48-vit-300m-")


@pytest.mark.parametrize(("processes", "nodes", "each"), [(16, 2, 8), (8, 1, 8), (4, 1, 4), (128, 16, 8)])
@pytest.mark.parametrize("kind", KINDS)
def test_processes_are_spread_over_whole_nodes(kind: str, processes: int, nodes: int, each: int) -> None:
    spec = manifest(job(processes=processes), eks(kind), attempt=1)["spec"]
    assert spec["nprocPerNode"] == str(each)
    replicas = spec["replicaSpecs"][0] if kind == KINDS[0] else spec["pytorchReplicaSpecs"]["Worker"]
    assert replicas["replicas"] == nodes


def test_processes_that_do_not_fill_nodes_are_refused() -> None:
    with pytest.raises(LauncherError, match=r"12 processes and eks\.processes_per_node is 8"):
        manifest(job(processes=12), eks(), attempt=1)


def test_torchrun_understands_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = get_args_parser()
    parser.add_argument("--shutdown-signal", choices=["SIGTERM", "SIGKILL"])  # hyperpodrun adds it to torchrun's
    container = pod_of(manifest(job(), eks(), attempt=1))["containers"][0]
    asked = parser.parse_args(container["command"][1:])
    assert (asked.nnodes, asked.nproc_per_node, asked.module) == ("2", "8", True)
    assert (asked.shutdown_signal, asked.shutdown_timeout) == ("SIGTERM", 120)
    assert (asked.training_script, asked.training_script_args) == ("seismic_model.train", list(job().arguments))

    container = pod_of(manifest(job(), eks("PyTorchJob"), attempt=1))["containers"][0]
    for entry in container["env"]:
        monkeypatch.setenv(entry["name"], entry["value"])
    monkeypatch.setenv("PET_NNODES", "2:2")  # the operator's
    asked = get_args_parser().parse_args(container["command"][3:])
    assert (asked.nnodes, asked.shutdown_timeout) == ("2:2", 120)
    assert asked.training_script_args == list(job().arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_has_time_to_save_and_whole_devices(kind: str) -> None:
    pod = pod_of(manifest(job(), eks(kind, **FULL), attempt=1))
    container = pod["containers"][0]
    assert pod["terminationGracePeriodSeconds"] > 120
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "16"}
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert environment["FI_PROVIDER"] == "efa"
    assert container["envFrom"] == [{"secretRef": {"name": "tracking"}}]
    assert pod["serviceAccountName"] == "trainer"


def test_without_efa_and_gpus_none_are_asked_for() -> None:
    container = pod_of(manifest(job(), eks(gpus_per_node=0), attempt=1))["containers"][0]
    assert container["resources"] == {}
    assert "FI_PROVIDER" not in {entry["name"] for entry in container["env"]}


@pytest.mark.parametrize("kind", KINDS)
def test_bad_nodes_are_excluded_each_by_a_requirement_of_its_own(kind: str) -> None:
    affinity = pod_of(manifest(job(exclude=("n1", "n2")), eks(kind), attempt=1))["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [(f["key"], f["operator"], f["values"]) for f in term["matchFields"]] == [
        ("metadata.name", "NotIn", ["n1"]),
        ("metadata.name", "NotIn", ["n2"]),
    ]


def test_kubeflow_restarts_nothing_and_keeps_failed_pods() -> None:
    """Its operator deletes all pods of a job that reaches a limit of restarts, and with them cause, code and log."""
    spec = manifest(job(), eks("PyTorchJob", retries=7), attempt=1)["spec"]
    assert spec["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] == "Never"
    assert "backoffLimit" not in spec["runPolicy"]
    assert spec["elasticPolicy"]["maxRestarts"] == 0
    assert spec["runPolicy"]["cleanPodPolicy"] == "Running"


def test_hyperpod_restarts_as_often_as_the_settings_say() -> None:
    assert manifest(job(), eks(retries=7), attempt=1)["spec"]["runPolicy"]["jobMaxRetryCount"] == 7


def test_a_password_stays_out_of_a_manifest() -> None:
    secret = {"MLFLOW_TRACKING_URI": "https://me:hunter2@mlflow.example"}
    with pytest.raises(LauncherError, match="MLFLOW_TRACKING_URI holds a password") as refused:
        manifest(job(environment=secret), eks(), attempt=1)
    assert "hunter2" not in str(refused.value)


def test_the_settings_in_the_guide_are_usable(check: Check) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/eks.md").read_text(), re.DOTALL)
    (shown,) = [yaml.safe_load(block)["eks"] for block in blocks if block.startswith("eks:")]
    assert set(shown) == set(EksSettings.model_fields)
    assert check(manifest(job(), EksSettings(**shown), attempt=1)) == "ok"
