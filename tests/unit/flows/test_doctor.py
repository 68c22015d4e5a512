"""`python -m flows.doctor cluster` as a person sees it: against moto, and a stub for what moto does not know.

moto knows describe_cluster, list_cluster_nodes and get_caller_identity, but no second page, no orchestrator, no node
recovery, no image versions, no add-ons, no unhealthy node and no throttling: for those there is botocore's Stubber.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from click.testing import CliRunner, Result
from moto import mock_aws

from flows import doctor
from ingestion.embedded_s3 import BUCKET, serve
from ingestion.lake import Lake

GROUP = {
    "InstanceGroupName": "workers",
    "InstanceType": "ml.p5en.48xlarge",
    "CurrentCount": 2,
    "TargetCount": 2,
    "Status": "InService",
    "CurrentImageReleaseVersion": "1.2.3",
    "ImageVersionStatus": "UpToDate",
    "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-setup/lifecycle", "OnCreate": "on_create.sh"},
}
EKS = {"Eks": {"ClusterArn": "arn:aws:eks:us-east-1:123456789012:cluster/seismic"}}


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "MLFLOW_TRACKING_URI", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which keeps the credentials of its first use
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """On a server of its own, whose variables take the place of those above."""
    with serve(tmp_path / "s3"):
        yield Lake(f"s3://{BUCKET}/lake")


@pytest.fixture
def aws() -> Iterator[None]:
    with mock_aws():
        yield


def ask(*arguments: str) -> Result:
    result = CliRunner().invoke(doctor.main, ["cluster", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    assert "Traceback" not in result.output
    return result


def node(number: int, status: str = "Running", message: str | None = None) -> dict[str, Any]:
    state = {"Status": status} | ({"Message": message} if message else {})
    return {
        "InstanceGroupName": "workers",
        "InstanceId": f"i-{number:017x}",
        "InstanceType": "ml.p5en.48xlarge",
        "LaunchTime": "2026-11-01T00:00:00Z",
        "InstanceStatus": state,
        "CurrentImageReleaseVersion": "1.2.3",
    }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Stubber]]:
    """A stub for each service; what is not prepared is an error."""
    clients = {name: boto3.client(name, region_name="us-east-1") for name in ("sts", "sagemaker", "eks")}
    stubs = {name: Stubber(client) for name, client in clients.items()}
    stubs["sts"].add_response("get_caller_identity", {"Arn": "arn:aws:sts::123456789012:assumed-role/seismic-flow/x"})
    monkeypatch.setattr(doctor, "_client", lambda session, service: clients[service])
    for stub in stubs.values():
        stub.activate()
    yield stubs
    for stub in stubs.values():
        stub.assert_no_pending_responses()


def cluster(stubs: dict[str, Stubber], *pages: list[dict[str, Any]], **changes: Any) -> None:
    described = {
        "ClusterArn": "arn:aws:sagemaker:us-east-1:123456789012:cluster/abcdef123456",
        "ClusterName": "seismic",
        "ClusterStatus": "InService",
        "NodeRecovery": "Automatic",
        "InstanceGroups": [GROUP],
    }
    stubs["sagemaker"].add_response("describe_cluster", described | changes, {"ClusterName": "seismic"})
    for number, nodes in enumerate(pages):
        more = {"NextToken": f"page{number + 1}"} if number < len(pages) - 1 else {}
        asked = {"ClusterName": "seismic"} | ({"NextToken": f"page{number}"} if number else {})
        stubs["sagemaker"].add_response("list_cluster_nodes", {"ClusterNodeSummaries": nodes} | more, asked)


def test_a_whole_cluster_with_a_lake_is_ready(answers: dict[str, Stubber], lake: Lake) -> None:
    cluster(answers, [node(1)], [node(2)])

    said = ask("--cluster", "seismic", "--lake", lake.uri)

    assert said.exit_code == 0
    assert said.output.endswith("\nready\n")
    for fact in ("Slurm", "2 of 2 × ml.p5en.48xlarge (8 GPUs, 16 EFA)", "2 Running", "image 1.2.3", "seismic-flow"):
        assert fact in said.output
    assert list(lake.objects()) == []


def test_the_same_as_json(answers: dict[str, Stubber]) -> None:
    cluster(answers, [node(1), node(2)])

    facts = json.loads(ask("--cluster", "seismic", "--json").output)

    assert facts["ready"] is True
    assert facts["facts"]["groups"][0]["gpus"] == 8
    assert facts["facts"]["nodes"] == {"Running": 2}
    assert facts["facts"]["versions"]["torch"] != "not installed"


def test_an_unhealthy_node_on_the_second_page_is_named_with_what_to_do(answers: dict[str, Stubber]) -> None:
    cluster(answers, [node(1)], [node(2, "Failure", "GPU 3 fell off the bus\x1b[2J")])

    said = ask("--cluster", "seismic")

    assert said.exit_code == 1
    assert "node i-00000000000000002 of group workers is Failure: GPU 3 fell off the bus" in said.output
    assert "batch-replace-cluster-nodes --cluster-name seismic --node-ids i-00000000000000002" in said.output
    assert "\x1b" not in said.output
    assert "ready" not in said.output


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"ClusterStatus": "Updating"}, "the cluster is Updating"),
        ({"ClusterStatus": "Failed", "FailureMessage": "no capacity"}, "the cluster is Failed: no capacity"),
        ({"NodeRecovery": "None"}, "node recovery is off"),
        ({"InstanceGroups": [GROUP | {"TargetCount": 16}]}, "group workers has 2 of 16 instances"),
        ({"InstanceGroups": [GROUP | {"Status": "Degraded"}]}, "group workers is Degraded"),
        ({"InstanceGroups": [GROUP | {"ImageVersionStatus": "EndOfLife"}]}, "the image of group workers is EndOfLife"),
        ({"InstanceGroups": [GROUP | {"InstanceType": "ml.m5.xlarge"}]}, "no group has GPUs"),
    ],
)
def test_what_is_wrong_with_a_cluster(answers: dict[str, Stubber], changes: dict[str, Any], what: str) -> None:
    cluster(answers, [node(1), node(2)], **changes)

    said = ask("--cluster", "seismic")

    assert said.exit_code == 1
    assert f"WRONG: {what}" in said.output
    assert said.output.count("WRONG") == 1
    assert "   do: " in said.output


def test_eks_tells_the_version_of_the_training_operator(answers: dict[str, Stubber]) -> None:
    cluster(answers, [node(1), node(2)], Orchestrator=EKS)
    addon = {"addonName": doctor.OPERATOR, "addonVersion": "v1.4.0-eksbuild.1", "status": "ACTIVE"}
    answers["eks"].add_response(
        "describe_addon", {"addon": addon}, {"clusterName": "seismic", "addonName": doctor.OPERATOR}
    )

    said = ask("--cluster", "seismic")

    assert said.exit_code == 0
    assert "orchestrator EKS" in said.output
    assert "v1.4.0-eksbuild.1, ACTIVE" in said.output


def test_eks_without_the_training_operator_is_not_ready(answers: dict[str, Stubber]) -> None:
    cluster(answers, [node(1), node(2)], Orchestrator=EKS)
    answers["eks"].add_client_error("describe_addon", "ResourceNotFoundException", "no addon", 404)

    said = ask("--cluster", "seismic")

    assert said.exit_code == 1
    assert "Kubeflow" in said.output


@pytest.mark.parametrize(
    ("code", "do"),
    [
        ("ThrottlingException", "asked too often"),
        ("AccessDeniedException", "deploy/iam"),
        ("ExpiredTokenException", "log in again"),
        ("ResourceNotFound", "list-clusters"),
    ],
)
def test_what_sagemaker_refuses_is_a_line_with_advice(answers: dict[str, Stubber], code: str, do: str) -> None:
    answers["sagemaker"].add_client_error("describe_cluster", code, "refused\nover two lines", 400)

    said = ask("--cluster", "seismic")

    assert said.exit_code == 1
    assert code in said.output
    assert do in said.output


@pytest.mark.usefixtures("aws")
def test_moto_a_cluster_that_is_not_there() -> None:
    said = ask("--cluster", "elsewhere")

    assert said.exit_code == 1
    assert "arn:aws:sts::123456789012" in said.output
    assert "cluster 'elsewhere'" in said.output
    assert "list-clusters" in said.output


@pytest.mark.usefixtures("aws")
def test_moto_counts_the_nodes() -> None:
    boto3.client("sagemaker").create_cluster(
        ClusterName="seismic",
        InstanceGroups=[
            {
                "InstanceGroupName": "workers",
                "InstanceType": "ml.p5.48xlarge",
                "InstanceCount": 5,
                "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-setup/x", "OnCreate": "on_create.sh"},
                "ExecutionRole": "arn:aws:iam::123456789012:role/seismic-training",
                "ThreadsPerCore": 1,
            }
        ],
    )

    facts = json.loads(ask("--cluster", "seismic", "--json").output)["facts"]

    assert facts["groups"][0]["efa"] == 32
    assert sum(facts["nodes"].values()) == facts["groups"][0]["target"]


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    said = ask("--cluster", "seismic")

    assert said.exit_code == 1
    assert "Unable to locate credentials" in said.output
    assert "instance role" in said.output


def test_no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")

    assert "give --region" in ask("--cluster", "seismic").output


def test_a_region_that_cannot_be() -> None:
    assert "give --region" in ask("--cluster", "seismic", "--region", "us east 1").output


def test_a_region_that_nobody_answers_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_CALLS", doctor.Config(retries={"total_max_attempts": 1}, connect_timeout=2))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    said = ask("--cluster", "seismic")

    assert said.exit_code == 1
    assert "check the region" in said.output


def test_a_profile_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")

    said = ask("--cluster", "seismic")

    assert said.exit_code == 1
    assert "correct AWS_PROFILE" in said.output


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("name", ["a b", "x" * 300])
def test_a_name_that_no_cluster_has(name: str) -> None:
    assert ask("--cluster", name).exit_code == 1


@pytest.mark.parametrize("scheme", ["gs://", "file://"])
def test_a_lake_that_no_node_reaches_is_wrong_and_not_made(
    answers: dict[str, Stubber], tmp_path: Path, scheme: str
) -> None:
    cluster(answers, [node(1), node(2)])

    said = ask("--cluster", "seismic", "--lake", f"{scheme}{tmp_path}/x")

    assert said.exit_code == 1
    assert f"lake {scheme}{tmp_path}/x is none that a cluster's nodes reach" in said.output
    assert not (tmp_path / "x").exists()


def test_a_lake_that_forgets_conditions_is_wrong(
    answers: dict[str, Stubber], lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(answers, [node(1), node(2)])
    monkeypatch.setattr(Lake, "create", lambda self, key, data: self.write(key, data) or True)

    said = ask("--cluster", "seismic", "--lake", lake.uri)

    assert said.exit_code == 1
    assert "If-None-Match" in said.output
    assert list(lake.objects()) == []


def test_a_registry_that_does_not_answer_is_wrong_and_its_password_is_not_shown(
    answers: dict[str, Stubber], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(answers, [node(1), node(2)])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:hunter22@127.0.0.1:9")

    said = ask("--cluster", "seismic")

    assert said.exit_code == 1
    assert "MLflow at http://127.0.0.1:9" in said.output
    assert "hunter22" not in said.output


def test_a_registry_that_answers_is_named(
    answers: dict[str, Stubber], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster(answers, [node(1), node(2)])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")

    said = ask("--cluster", "seismic")

    assert said.exit_code == 0
    assert f"sqlite:///{tmp_path}/mlflow.db: champion of seismic-vit-mae: none" in said.output
