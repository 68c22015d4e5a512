"""What a new account and its cluster need, written out for `kubectl` and `aws`.

    python -m flows.deploy access --lake s3://BUCKET/PREFIX --account 123456789012 --region us-east-1
    python -m flows.deploy argo --lake s3://BUCKET/PREFIX --image REGISTRY/seismic:TAG --launcher eks --size large

``access`` fills in deploy/iam, deploy/bucket and deploy/kubernetes for one lake. ``argo`` uploads the flow's code to
the lake and writes the workflow template that Metaflow makes of it, the CronWorkflow that starts it on Sunday night,
and the CronJob that looks every hour whether it moves. Nothing is applied anywhere.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import zoneinfo
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from flows.argo_inputs import repair
from flows.launchers import names_secret
from flows.settings import SettingsError, read_settings
from flows.week import WORKFLOW_MADE, iso_week
from ingestion.cli.common import messages
from ingestion.lake import Lake

ROOT = Path(__file__).parents[1]
NAME = "weekly-retrain"
LONGEST = 6 * 86_400 + 20 * 3_600  # seconds; a workflow that hangs must not keep next Sunday's from starting
LATEST_START = 2 * 3_600  # seconds after its time, when the controller was down
_EXIT = "tell-when-it-died"
_MADE = {WORKFLOW_MADE: "{{workflow.creationTimestamp}}"}
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_LAKE = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9._/-]+))?")
_SECRET_TEXT = re.compile(r"://[^/\s\"':@]+:[^/\s\"'@]+@|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|x-api-key")
_DEFAULTS = {
    "METAFLOW_KUBERNETES_CPU": "4",
    "METAFLOW_KUBERNETES_MEMORY": "16384",
    "METAFLOW_KUBERNETES_DISK": "102400",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Write out what the account and the cluster need; apply nothing."""
    if not (ROOT / "deploy" / "iam").is_dir():
        raise click.ClickException(f"{ROOT} is no checkout of this project; run `python -m flows.deploy` in one")


def _lake(context: click.Context, option: click.Parameter, value: str) -> str:
    found = _LAKE.fullmatch(value.rstrip("/"))
    if not found or ".." in value:
        raise click.BadParameter(f"{value!r}: expected s3://BUCKET or s3://BUCKET/PREFIX of letters, digits, . _ - /")
    return value.rstrip("/")


def _plain(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A workflow parameter is read by a shell in every pod: `set_parameters.py` of Metaflow quotes it as JSON."""
    if value is not None and not _PLAIN.fullmatch(value):
        raise click.BadParameter(f"{value!r}: expected letters, digits, and . _ -")
    return value


def _account(context: click.Context, option: click.Parameter, value: str) -> str:
    """The bucket is closed to every other account."""
    if not re.fullmatch(r"[0-9]{12}", value):
        raise click.BadParameter(f"{value!r}: expected the 12 digits of an AWS account")
    return value


def _region(context: click.Context, option: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[a-z]{2,4}(-[a-z]+)+-[0-9]", value):
        raise click.BadParameter(f"{value!r}: expected an AWS region, such as us-east-1")
    return value


def _cluster(context: click.Context, option: click.Parameter, value: str) -> str | None:
    return value if value == "*" else _plain(context, option, value)


lake_option = click.option("--lake", required=True, callback=_lake, metavar="URI", help="s3://BUCKET/PREFIX")
out_option = click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=ROOT / "deploy" / "build", show_default=False,
    metavar="DIR", help="Where to write. Default: deploy/build.",
)  # fmt: skip
namespace_option = click.option("--namespace", default="seismic", callback=_plain, help="Of the flow's pods.")


@main.command()
@lake_option
@click.option("--account", required=True, callback=_account, metavar="ID", help="The AWS account, 12 digits.")
@click.option("--region", required=True, callback=_region, help="Of the bucket and the cluster.")
@click.option("--cluster", default="*", callback=_cluster, metavar="ID", help="HyperPod's, for sessions. Default: any.")
@click.option("--topic", default="seismic-weekly", callback=_plain, help="The SNS topic that is told.")
@namespace_option
@out_option
def access(lake: str, account: str, region: str, cluster: str, topic: str, namespace: str, out: Path) -> None:
    """IAM and bucket policies, and the service account, for one lake."""
    bucket, _, prefix = lake.removeprefix("s3://").partition("/")
    words = {
        "@LAKE@": lake.removeprefix("s3://"),
        "@BUCKET@": bucket,
        "@PREFIX@": f"{prefix}/" if prefix else "",
        "@ACCOUNT@": account,
        "@REGION@": region,
        "@CLUSTER@": cluster,
        "@TOPIC@": topic,
        "@NAMESPACE@": namespace,
    }
    for folder in ("iam", "bucket", "kubernetes"):
        for source in sorted((ROOT / "deploy" / folder).iterdir()):
            text = source.read_text()
            for word, value in words.items():
                text = text.replace(word, value)
            _write(out / folder / source.name, text)


@main.command()
@lake_option
@click.option("--image", required=True, metavar="IMAGE", help="Built from deploy/Containerfile, with a tag or digest.")
@click.option("--launcher", required=True, type=click.Choice(["eks", "slurm"]), help="Where training runs.")
@click.option("--size", required=True, callback=_plain, help="Model size, one of the settings' recipes.")
@click.option(
    "--settings", type=click.Path(exists=True, dir_okay=False), default=str(ROOT / "flows" / "cluster.yaml"),
    metavar="FILE", help="Settings of the week. Default: flows/cluster.yaml.",
)  # fmt: skip
@click.option("--time", "time", default="20:00", metavar="HH:MM", help="On Sunday. Default: 20:00.")
@click.option("--timezone", default="Etc/UTC", help="IANA name, such as Europe/Oslo. Default: Etc/UTC.")
@click.option("--variable", "variables", multiple=True, metavar="NAME=VALUE", help="For all pods; nothing secret.")
@click.option("--secret", callback=_plain, metavar="NAME", help="Kubernetes Secret whose keys all pods get.")
@click.option("--service-account", default="seismic-flow", callback=_plain, help="Of the flow's pods.")
@namespace_option
@out_option
def argo(
    lake: str,
    image: str,
    launcher: str,
    size: str,
    settings: str,
    time: str,
    timezone: str,
    variables: tuple[str, ...],
    secret: str | None,
    service_account: str,
    namespace: str,
    out: Path,
) -> None:
    """Argo's workflow template, its schedule and its alarm; needs the lake, since the flow's code is uploaded."""
    _check(Path(settings), launcher, size)
    pods = {
        "METAFLOW_DATASTORE_SYSROOT_S3": f"{lake}/metaflow",
        "METAFLOW_KUBERNETES_CONTAINER_IMAGE": image,
        "METAFLOW_KUBERNETES_NAMESPACE": namespace,
        "METAFLOW_KUBERNETES_SERVICE_ACCOUNT": service_account,
        "METAFLOW_KUBERNETES_SECRETS": secret or "",
    }
    more = _pairs(variables)
    cron = cron_workflow(namespace, time, timezone)
    with messages():
        Lake(lake).check()  # Metaflow would try for many minutes
    template = repair(_metaflow(settings, pods))
    template = completed(template, {"lake": lake, "launcher": launcher, "size": size}, more)
    look = look_at_week(lake, image, more, secret)
    template = with_exit_handler(template, {**look, "command": [*look["command"], "--ended"]}, service_account)
    alarm = alarm_job({**look, "command": [*look["command"], "--alarm"]}, namespace)
    made = {"workflow-template": template, "cron-workflow": cron, "alarm": alarm}
    texts = {name: json.dumps(each, indent=2) for name, each in made.items()}
    refuse_secrets("".join(texts.values()), os.environ)
    for name, text in texts.items():
        _write(out / "argo" / f"{name}.json", text)
    click.echo(f"then: kubectl apply -f {out / 'argo'}")


def _check(file: Path, launcher: str, size: str) -> None:
    """Say now what would stop the week on Sunday night."""
    try:
        settings = read_settings(yaml.safe_load(file.read_text()))
        settings.recipe(size)
    except (SettingsError, yaml.YAMLError, TypeError, ValueError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    if getattr(settings, launcher) is None:
        raise click.ClickException(f"{file} has no `{launcher}:` part; docs/{launcher}.md says what stands there")


def _metaflow(settings: str, pods: Mapping[str, str]) -> dict[str, Any]:
    """The workflow template that Metaflow makes of the weekly flow; its code package is on the lake afterwards."""
    drop_egg_info(ROOT)
    dropped = ("METAFLOW_SERVICE_AUTH_KEY", "METAFLOW_SERVICE_HEADERS")  # would be written into the template
    environment = _DEFAULTS | {name: value for name, value in os.environ.items() if name not in dropped} | dict(pods)
    environment["METAFLOW_DEFAULT_DATASTORE"] = "s3"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # this code
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        environment.setdefault("METAFLOW_S3_ENDPOINT_URL", endpoint)
    flow = [sys.executable, str(ROOT / "flows" / "weekly_retrain.py"), "--no-pylint", "--datastore", "s3"]
    create = ["argo-workflows", "--name", NAME, "create", "--only-json", "--new-token", NAME]
    done = subprocess.run(
        [*flow, "--config", "settings", settings, *create, "--workflow-timeout", str(LONGEST)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise click.ClickException(f"Metaflow made no workflow template; it said:\n{done.stderr.strip()[-3000:]}")
    try:
        template: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise click.ClickException(f"Metaflow printed no workflow template but:\n{done.stdout[:1000]}") from error
    return template


def drop_egg_info(root: Path) -> None:
    """Delete what `pip install -e` leaves in a checkout beside what it installs.

    Metaflow packs the first description of a distribution that it finds. Of this one it takes no name, and in the pods
    everything then fails that asks for entry points, such as xarray and MLflow.
    """
    for folder in root.glob("*.egg-info"):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise click.ClickException(
                f"{folder} would break the pods, and cannot be deleted: {error.strerror}; delete it, it is not needed"
            ) from error


def cron_workflow(namespace: str, time: str, timezone: str) -> dict[str, Any]:
    """Every Sunday at ``time``: one at a time, late by two hours at most, the last eight of each kind kept."""
    start = _on_sunday(time, timezone)
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "CronWorkflow",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "schedules": [f"{start.minute} {start.hour} * * 0"],
            "timezone": timezone,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": LATEST_START,
            "successfulJobsHistoryLimit": 8,
            "failedJobsHistoryLimit": 8,
            "workflowSpec": {"workflowTemplateRef": {"name": NAME}},
        },
    }


def _on_sunday(time: str, timezone: str) -> dt.time:
    """The start, when it and the latest one lie in their Sunday's own week in UTC, all year."""
    try:
        start, zone = dt.datetime.strptime(time, "%H:%M").time(), zoneinfo.ZoneInfo(timezone)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise click.ClickException(
            f"--time {time!r} --timezone {timezone!r}: {error}; expected e.g. 20:00 UTC"
        ) from error
    for week in range(1, 53):
        sunday = dt.date.fromisocalendar(2027, week, 7)
        begin = dt.datetime.combine(sunday, start, zone).astimezone(dt.UTC)
        for moment in (begin, begin + dt.timedelta(seconds=LATEST_START)):
            if iso_week(moment.date()) != iso_week(sunday):
                raise click.ClickException(
                    f"a start on Sunday at {time} in {timezone}, up to two hours late, can be a Monday in UTC, by "
                    "which weeks are counted: the alarm would look at another week; choose an earlier --time"
                )
    return start


def completed(template: dict[str, Any], parameters: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, Any]:
    """``template`` that starts with ``parameters`` where none are given, and has ``variables`` in every container."""
    for parameter in template["spec"]["arguments"]["parameters"]:
        if parameter["name"] in parameters:
            parameter["value"] = json.dumps(parameters[parameter["name"]])
    for each in template["spec"]["templates"]:
        if "container" in each:
            each["container"]["env"] += _environment({**variables, **_MADE})
    return template


def look_at_week(lake: str, image: str, variables: Mapping[str, str], secret: str | None) -> dict[str, Any]:
    """A container that runs `week status`, which tells by SFM_WEBHOOK_URL or SFM_SNS_TOPIC when to look."""
    return {
        "name": "look",
        "image": image,
        "command": ["week", "status", "--lake", lake],
        "env": _environment(variables),
        "envFrom": [{"secretRef": {"name": secret}}] if secret else [],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
    }


def with_exit_handler(template: dict[str, Any], container: dict[str, Any], service_account: str) -> dict[str, Any]:
    """``template`` whose workflows, however they end, run ``container``: a flow that died tells people at once."""
    handler = {
        **container,
        "name": "main",
        "command": [*container["command"], "--week", "{{workflow.parameters.week}}"],
        "env": [*container["env"], *_environment(_MADE)],
    }
    template["spec"]["onExit"] = _EXIT
    template["spec"]["templates"].append(
        {"name": _EXIT, "serviceAccountName": service_account, "activeDeadlineSeconds": 600, "container": handler}
    )
    return template


def alarm_job(container: dict[str, Any], namespace: str) -> dict[str, Any]:
    """``container`` every hour, with an account that may look and tell."""
    pod = {"serviceAccountName": "seismic-alarm", "restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"{NAME}-alarm", "namespace": namespace},
        "spec": {
            "schedule": "7 * * * *",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 1800,
            "jobTemplate": {"spec": {"backoffLimit": 0, "activeDeadlineSeconds": 600, "template": {"spec": pod}}},
        },
    }


def _environment(variables: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def refuse_secrets(text: str, environment: Mapping[str, str]) -> None:
    """Raises ``ClickException`` when ``text`` holds a password, a key, or the value of a secret variable."""
    found = _SECRET_TEXT.search(text)
    names = [name for name, value in environment.items() if names_secret(name) and len(value) > 7 and value in text]
    if found or names:
        what = ", ".join(names) or "something like a password in a URL, or an access key"
        raise click.ClickException(
            f"the workflow template would hold {what}; put it into a Kubernetes Secret and give --secret NAME "
            "(a git remote with a password in it counts too: Metaflow writes it down)"
        )


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = dict(each.partition("=")[::2] for each in given)
    for name in pairs:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise click.ClickException(f"--variable {name!r}: expected NAME=VALUE")
        if names_secret(name):
            raise click.ClickException(
                f"--variable {name}: its value would stand in the templates; put it into a Kubernetes Secret and give "
                "--secret NAME"
            )
    return pairs


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.rstrip("\n") + "\n")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}; give --out another folder") from error
    click.echo(f"wrote {path}")


if __name__ == "__main__":
    main()
