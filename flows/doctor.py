"""Is the cluster ready for the week? What is there, what is wrong, and what to do about it.

    python -m flows.doctor cluster --cluster NAME --lake s3://LAKE

Asks the SageMaker API for the HyperPod cluster and all its nodes, writes and deletes a small object on the lake,
and looks at the MLflow registry and the versions installed here. Nothing else is changed.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import boto3
import click
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from flows.aws_faults import advice
from ingestion.lake import Lake, LakeError
from ingestion.names import printable, store_words
from seismic_model.registry.versions import MODEL_NAME, aliases, connect

# GPUs and EFA interfaces of an instance. P5, P5e and G6e were looked up in the EC2 instance type reference in November
# 2026, the others are from memory.
GPUS_AND_EFA = {
    "ml.g5.48xlarge": (8, 1),
    "ml.g6.48xlarge": (8, 1),
    "ml.g6e.48xlarge": (8, 4),
    "ml.p4d.24xlarge": (8, 4),
    "ml.p4de.24xlarge": (8, 4),
    "ml.p5.48xlarge": (8, 32),
    "ml.p5e.48xlarge": (8, 32),
    "ml.p5en.48xlarge": (8, 16),
    "ml.p6-b200.48xlarge": (8, 8),
}
VERSIONS = ("torch", "deepspeed", "metaflow", "mlflow", "great-expectations", "obstore", "boto3", "kubernetes")
OPERATOR = "amazon-sagemaker-hyperpod-training-operator"  # the EKS add-on that runs HyperPodPyTorchJob
_BEING_MADE = ("Pending", "SystemUpdating", "DeepHealthCheckInProgress", "ShuttingDown")
_CALLS = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 4})


@dataclass(frozen=True)
class Fault:
    """One thing that keeps a week from running, and what to do."""

    what: str
    do: str


@dataclass
class Report:
    """What was seen, by name, and what is wrong."""

    facts: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, what: str, do: str) -> None:
        """Note one thing that is wrong."""
        self.faults.append(Fault(printable(what), printable(do)))

    @contextmanager
    def looking_at(self, what: str) -> Iterator[None]:
        """Whatever breaks while looking at ``what`` is a fault, not a traceback."""
        try:
            yield
        except Exception as error:
            self.fault(f"{what}: {_first_line(error)}", advice(error))


def examine(cluster: str, lake: str | None, region: str | None = None) -> Report:
    """All that can be found out; a look that fails stops no other."""
    report = Report()
    try:
        session = boto3.Session(region_name=region)
    except BotoCoreError as error:  # an AWS_PROFILE that does not exist
        report.fault(f"AWS settings: {_first_line(error)}", advice(error))
    else:
        _identity(report, session)
        _cluster(report, session, cluster)
    if lake is not None:
        _lake(report, lake)
    if os.environ.get("MLFLOW_TRACKING_URI"):
        _registry(report, os.environ["MLFLOW_TRACKING_URI"])
    report.facts["versions"] = {"python": platform.python_version()} | {name: _version(name) for name in VERSIONS}
    return report


def _identity(report: Report, session: boto3.Session) -> None:
    with report.looking_at("credentials"):
        report.facts["identity"] = _client(session, "sts").get_caller_identity()["Arn"]


def _cluster(report: Report, session: boto3.Session, name: str) -> None:
    with report.looking_at(f"cluster {name!r}"):
        sagemaker = _client(session, "sagemaker")
        cluster = sagemaker.describe_cluster(ClusterName=name)
        nodes = sagemaker.get_paginator("list_cluster_nodes").paginate(ClusterName=name)
        summaries = [node for page in nodes for node in page["ClusterNodeSummaries"]]
        report.facts["cluster"] = _described(cluster)
        _status(report, cluster)
        groups = [*cluster.get("InstanceGroups", []), *cluster.get("RestrictedInstanceGroups", [])]
        report.facts["groups"] = [_group(report, group) for group in groups]
        _gpus(report, groups)
        report.facts["nodes"] = dict(Counter(node["InstanceStatus"]["Status"] for node in summaries))
        report.facts["images"] = dict(Counter(node.get("CurrentImageReleaseVersion", "not said") for node in summaries))
        for node in summaries:
            _node(report, name, node)
        if "Eks" in cluster.get("Orchestrator", {}):
            _operator(report, session, cluster["Orchestrator"]["Eks"]["ClusterArn"])


def _described(cluster: dict[str, Any]) -> dict[str, Any]:
    eks = "Eks" in cluster.get("Orchestrator", {})
    return {
        "name": cluster["ClusterName"],
        "status": cluster["ClusterStatus"],
        "orchestrator": "EKS" if eks else "Slurm",  # the one that HyperPod takes where none is named
        "node_recovery": cluster.get("NodeRecovery", "not said"),
    }


def _status(report: Report, cluster: dict[str, Any]) -> None:
    status = cluster["ClusterStatus"]
    if status in ("Creating", "Updating", "SystemUpdating", "RollingBack"):
        report.fault(f"the cluster is {status}", "wait until it is InService; nodes may go away meanwhile")
    elif status != "InService":
        said = cluster.get("FailureMessage") or "no message"
        report.fault(f"the cluster is {status}: {said}", "repair or recreate it in the SageMaker console")
    if cluster.get("NodeRecovery") == "None":
        report.fault(
            "node recovery is off, so a broken node stays",
            f"`aws sagemaker update-cluster --cluster-name {cluster['ClusterName']} --node-recovery Automatic`",
        )


def _group(report: Report, group: dict[str, Any]) -> dict[str, Any]:
    name, current, target = group["InstanceGroupName"], group.get("CurrentCount", 0), group.get("TargetCount", 0)
    kind = group.get("InstanceType", "several")
    gpus, efa = GPUS_AND_EFA.get(kind, (None, None))
    if current < target:
        report.fault(
            f"group {name} has {current} of {target} instances",
            "wait for capacity, look at the cluster's events, or ask for a quota or a training plan",
        )
    if (status := group.get("Status", "InService")) in ("Failed", "Degraded"):
        report.fault(f"group {name} is {status}", "the cluster's events and the group's lifecycle log say why")
    if group.get("ImageVersionStatus") in ("SecurityUpdateRequired", "EndOfLife"):
        report.fault(
            f"the image of group {name} is {group['ImageVersionStatus']}",
            "`aws sagemaker update-cluster-software` between two weeks; it restarts the nodes",
        )
    return {
        "name": name,
        "type": kind,
        "current": current,
        "target": target,
        "gpus": gpus,
        "efa": efa,
        "lifecycle": group.get("LifeCycleConfig", {}).get("SourceS3Uri"),
        "image": group.get("CurrentImageReleaseVersion"),
    }


def _gpus(report: Report, groups: list[dict[str, Any]]) -> None:
    """Whether anything here can train; a type that the table does not name might."""
    kinds = {group.get("InstanceType", "several") for group in groups}
    if not any(kind in GPUS_AND_EFA or kind == "several" or kind.startswith(("ml.p", "ml.g")) for kind in kinds):
        report.fault("no group has GPUs", f"add a group of one of: {', '.join(sorted(GPUS_AND_EFA))}")


def _node(report: Report, cluster: str, node: dict[str, Any]) -> None:
    status, who = node["InstanceStatus"]["Status"], f"node {node['InstanceId']} of group {node['InstanceGroupName']}"
    said = f"{who} is {status}: {node['InstanceStatus'].get('Message') or 'no message'}"
    replace = f"aws sagemaker batch-replace-cluster-nodes --cluster-name {cluster} --node-ids {node['InstanceId']}"
    if status in _BEING_MADE:
        report.fault(said, "wait; the job's health check keeps it out until then")
    elif status != "Running":
        report.fault(said, f"`{replace}` replaces it, if node recovery has not done so within the hour")


def _operator(report: Report, session: boto3.Session, eks_arn: str) -> None:
    name = eks_arn.rpartition("/")[2]
    try:
        addon = _client(session, "eks").describe_addon(clusterName=name, addonName=OPERATOR)["addon"]
    except (BotoCoreError, ClientError) as error:
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
        if code == "ResourceNotFoundException":
            report.fault(
                f"the add-on {OPERATOR} is not on EKS cluster {name}",
                "install it, or launch plain PyTorchJobs with Kubeflow's operator",
            )
        else:
            report.facts["operator"] = f"not known: {_first_line(error)}"
        return
    report.facts["operator"] = f"{addon['addonVersion']}, {addon['status']}"
    if addon["status"] != "ACTIVE":
        report.fault(f"the add-on {OPERATOR} is {addon['status']}", f"`aws eks describe-addon --cluster-name {name} …`")


def _lake(report: Report, uri: str) -> None:
    """List, conditional PUT (which all commits rest on), read, delete; one object below ``doctor/``."""
    if not uri.startswith("s3://"):
        report.fault(f"lake {uri} is none that a cluster's nodes reach", "give it as s3://BUCKET/PREFIX")
        return
    with report.looking_at(f"lake {uri}"):
        lake = Lake(uri)
        lake.check()
        key = f"doctor/{uuid.uuid4().hex}"
        try:
            lake.create(key, b"first")
            if lake.create(key, b"second"):
                report.fault(
                    f"lake {lake.uri} takes a conditional PUT although the key exists",
                    "use a store that honours If-None-Match: manifests, checkpoints and leases rest on it",
                )
        finally:
            lake.delete([key])
        report.facts["lake"] = f"{lake.uri}: list, conditional PUT and delete work"


def _registry(report: Report, uri: str) -> None:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    place = _without_password(uri)
    try:
        now = aliases(connect(uri))
    except Exception as error:  # of the server, of the network, of a database
        said = _first_line(error).replace(uri, place)
        report.fault(
            f"MLflow at {place}: {said}",
            "start the server, or correct MLFLOW_TRACKING_URI, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
        )
        return
    champion = f"version {now['champion']}" if "champion" in now else "none"
    report.facts["registry"] = f"{place}: champion of {MODEL_NAME}: {champion}"


def _client(session: boto3.Session, service: str) -> Any:
    return session.client(service, config=_CALLS)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _without_password(uri: str) -> str:
    return re.sub(r"//[^/@]*@", "//", uri)


def _first_line(error: Exception) -> str:
    said = store_words(error).strip().partition("\n")[0]
    return (
        said
        if isinstance(error, (BotoCoreError, ClientError, LakeError)) and said
        else f"{type(error).__name__}: {said}"
    )


def _lines(report: Report) -> Iterator[str]:
    """The report for a person."""
    facts = report.facts
    for name in ("identity", "operator", "lake", "registry"):
        if name in facts:
            yield f"{name:12}{facts[name]}"
    if "cluster" in facts:
        yield f"{'cluster':12}{', '.join(f'{name} {value}' for name, value in facts['cluster'].items())}"
        for group in facts["groups"]:
            cards = f"{group['gpus']} GPUs, {group['efa']} EFA" if group["gpus"] else "GPUs and EFA not in our table"
            yield f"{'group':12}{group['name']}: {group['current']} of {group['target']} × {group['type']} ({cards})"
            yield f"{'':12}image {group['image'] or 'not said'}, lifecycle {group['lifecycle'] or 'none'}"
        for name in ("nodes", "images"):
            yield f"{name:12}{', '.join(f'{count} {value}' for value, count in facts[name].items()) or 'none'}"
    yield f"{'versions':12}{', '.join(f'{name} {version}' for name, version in facts['versions'].items())}"
    for fault in report.faults:
        yield f"\nWRONG: {fault.what}\n   do: {fault.do}"
    yield "" if report.faults else "\nready"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Look whether a place is ready for the week, and say what to do where it is not."""


@main.command()
@click.option("--cluster", "name", required=True, metavar="NAME", help="The HyperPod cluster's name or ARN.")
@click.option("--lake", metavar="URI", help="Also try the lake: s3://BUCKET/PREFIX.")
@click.option("--region", metavar="REGION", help="Default: AWS_REGION or the profile's.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cluster(name: str, lake: str | None, region: str | None, as_json: bool) -> None:
    """The HyperPod cluster, its nodes, the lake, the registry and the versions here.

    Exit status: 0 when ready, 1 with a list of what is wrong.
    """
    report = examine(name, lake, region or os.environ.get("AWS_REGION"))
    if as_json:
        click.echo(json.dumps({"ready": not report.faults} | asdict(report), indent=2))
    else:
        for line in _lines(report):
            click.echo("\n".join(printable(part) for part in line.split("\n")))
    if report.faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
