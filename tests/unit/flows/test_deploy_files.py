"""What lies in deploy/: policies that let each part do what the code does and no more, units, the container file."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import click
import pytest
import yaml
from click.testing import CliRunner
from moto import mock_aws

from flows import deploy
from flows.week import begun_key, iso_week, outcome_key, week_folder
from ingestion.manifest import manifest_key, quarantine_folder, survey_folder, verdict_key
from ingestion.quarantine import report_key
from ingestion.withdrawal import FOLDER as WITHDRAWALS
from seismic_model.config import run_folder
from seismic_model.data.dataset import dataset_key
from seismic_model.data.freeze import SPLIT_KEY
from seismic_model.evaluation.scores import evaluation_path
from seismic_model.training.checkpoint import checkpoint_folder
from validation.releases import request_key

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
DIGEST = "0" * 64
LAKE = "s3://seismic-lake/north/sea"
FLOW, TRAINING, REVIEWER, MANAGER, OPERATOR = "flow-role", "training-role", "reviewer", "data-manager", "operator"
ALARM, MLFLOW = "alarm", "mlflow-server"
VOLUME = f"{survey_folder('rift', DIGEST)}/volume.mdio/amplitude/c/0/0/0"
REPORT = report_key("rift", DIGEST)
RUN = run_folder("2026-w49-large-s0")
CHECKPOINT = checkpoint_folder("2026-w49-large-s0", 100)

# Every module that writes to or deletes from a lake: whose credentials it runs with, and such keys.
WRITERS: dict[str, tuple[tuple[str, ...], list[str], list[str]]] = {
    "flows/budget.py": ((FLOW,), [f"{RUN}/cost.json"], []),
    "flows/demo.py": ((), [], []),  # its own S3
    "flows/doctor.py": ((FLOW, MANAGER, OPERATOR), ["doctor/0"], ["doctor/0"]),
    "flows/notify.py": ((FLOW, OPERATOR, ALARM), ["notified/2026-W49/held-0-sns.json"], []),
    "flows/pause.py": ((OPERATOR,), ["control/paused.json"], ["control/paused.json"]),
    "flows/mlflow_backup.py": ((OPERATOR,), ["backups/mlflow/20261130T020000Z/mlflow.db"], []),
    "flows/releasing.py": ((MANAGER,), [], [REPORT]),
    "flows/report.py": ((FLOW,), [f"{week_folder('2026-W49')}/report.html", f"{RUN}/report.html"], []),
    "flows/retention.py": (
        (OPERATOR,),
        [],
        [f"{CHECKPOINT}/manifest.json", "backups/mlflow/20261130T020000Z/mlflow.db"],
    ),
    "flows/steps.py": (
        (FLOW,),
        [f"{RUN}/config.json", evaluation_path("2026-w49-large-s0"), outcome_key("2026-w49-large-s0")],
        [],
    ),
    "flows/surveys.py": ((FLOW,), [f"{week_folder('2026-W49')}/surveys/rift.json"], []),
    "flows/week.py": ((FLOW,), [begun_key("2026-W49")], []),
    "ingestion/discover.py": ((FLOW,), ["index/arrivals/0.json"], []),
    "ingestion/embedded_s3.py": ((), [], []),
    "ingestion/ingest.py": ((FLOW, MANAGER), [manifest_key("rift", DIGEST), "index/sources/0.json"], []),
    "ingestion/quarantine.py": ((FLOW, MANAGER), [REPORT, f"{quarantine_folder('rift', DIGEST)}/report.html"], []),
    "ingestion/sweep.py": ((MANAGER,), [], [VOLUME, REPORT]),
    "ingestion/volume/conversion.py": ((FLOW, MANAGER), [VOLUME], []),
    "ingestion/volume/export.py": ((), [], []),  # to a folder
    "ingestion/volume/mdio_layout.py": ((FLOW, MANAGER), [VOLUME], []),
    "ingestion/withdrawal.py": ((MANAGER,), [f"{WITHDRAWALS}/rift/0.json"], []),
    "seismic_model/comparison/command.py": ((TRAINING,), ["strategies/0.json"], []),
    "seismic_model/data/freeze.py": ((FLOW,), [dataset_key("2026-W49"), SPLIT_KEY], []),
    "seismic_model/registry/audit.py": ((FLOW, REVIEWER), ["audit/0-approve-v3.json"], []),
    "seismic_model/training/heartbeat.py": ((TRAINING,), [f"{RUN}/heartbeat.json"], []),
    "seismic_model/training/lease.py": (
        (TRAINING,),
        ["locks/training/000000000001.json", "locks/training/clock"],
        ["locks/training/000000000001.json"],
    ),
    "seismic_model/training/metrics.py": ((TRAINING,), [f"{RUN}/metrics.jsonl"], []),
    "seismic_model/training/retention.py": ((TRAINING,), [f"{CHECKPOINT}/in-use"], [f"{CHECKPOINT}/manifest.json"]),
    "seismic_model/training/saving.py": ((TRAINING,), [f"{CHECKPOINT}/manifest.json"], []),
    "validation/checks.py": ((FLOW, MANAGER), [f"{survey_folder('rift', DIGEST)}/facts.json"], [REPORT]),
    "validation/data_docs.py": ((FLOW, MANAGER), ["datadocs/rift.html"], []),
    "validation/releases.py": ((MANAGER,), [request_key("rift", DIGEST)], []),
    "validation/verdict.py": ((FLOW, MANAGER), [verdict_key("rift", DIGEST)], []),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `python -m flows.deploy access` writes."""
    return fill(LAKE, tmp_path_factory.mktemp("filled"))


def fill(lake: str, out: Path, *more: str) -> Path:
    given = ["access", "--lake", lake, "--account", "123456789012", "--region", "us-east-1", "--out", str(out), *more]
    done = CliRunner().invoke(deploy.main, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out


def allows(policy: Path, action: str, key: str) -> bool:
    """Whether ``policy`` lets its holder do ``action`` on an object of the lake, by its unconditional Allows."""
    arn = f"arn:aws:s3:::{LAKE.removeprefix('s3://')}/{key}"
    return any(
        statement["Effect"] == "Allow"
        and "Condition" not in statement
        and action in _listed(statement["Action"])
        and any(fnmatchcase(arn, pattern) for pattern in _listed(statement["Resource"]))
        for statement in json.loads(policy.read_text())["Statement"]
    )


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_every_module_that_writes_to_a_lake_is_known() -> None:
    found = {
        str(file.relative_to(ROOT))
        for room in ("flows", "ingestion", "validation", "seismic_model")
        for file in (ROOT / room).rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("write", "create", "replace", "delete")
        and re.search(r"lake|^into$", ast.unparse(call.func.value), re.IGNORECASE)
    }
    assert found == set(WRITERS), "say in WRITERS whose credentials it runs with, and allow it in deploy/iam"


@pytest.mark.parametrize("module", WRITERS)
def test_each_part_may_do_what_its_code_does(filled: Path, module: str) -> None:
    parts, written, deleted = WRITERS[module]
    for part in parts:
        policy = filled / "iam" / f"{part}.json"
        for key in written:
            assert allows(policy, "s3:PutObject", key), (part, key)
            assert allows(policy, "s3:AbortMultipartUpload", key) or part in (REVIEWER, OPERATOR), (part, key)
        for key in deleted:
            assert allows(policy, "s3:DeleteObject", key), (part, key)


def test_registering_protects_a_checkpoint_as_the_flow(filled: Path) -> None:
    assert allows(filled / "iam" / "flow-role.json", "s3:PutObject", f"{CHECKPOINT}/in-use")


@pytest.mark.parametrize(
    ("part", "action", "keys"),
    [
        (FLOW, "s3:DeleteObject", ["incoming/a.sgy", VOLUME, "audit/0.json", SPLIT_KEY, "index/sources/0.json"]),
        (FLOW, "s3:PutObject", ["incoming/a.sgy", "releases/rift/0.json", "control/paused.json", "elsewhere/0"]),
        (OPERATOR, "s3:PutObject", [VOLUME, f"{RUN}/config.json", "audit/0.json", "locks/training/0.json"]),
        (TRAINING, "s3:PutObject", [VOLUME, SPLIT_KEY, "audit/0.json", "incoming/a.sgy", "weeks/2026-W49/report.html"]),
        (TRAINING, "s3:DeleteObject", [VOLUME, f"{RUN}/config.json", f"{RUN}/metrics.jsonl", SPLIT_KEY]),
        (TRAINING, "s3:GetObject", ["incoming/a.sgy", "audit/0.json", "quarantine/rift/0/report.json"]),
        (ALARM, "s3:PutObject", ["weeks/2026-W49/report.html", f"{RUN}/outcome.json", "control/paused.json"]),
        (ALARM, "s3:GetObject", ["incoming/a.sgy", VOLUME, f"{CHECKPOINT}/weights-0.safetensors", "backups/mlflow/0"]),
        (ALARM, "s3:DeleteObject", ["notified/0.json", "locks/training/0.json"]),
        (MLFLOW, "s3:PutObject", [VOLUME, f"{RUN}/outcome.json", "audit/0.json", "backups/mlflow/0"]),
        (MLFLOW, "s3:DeleteObject", ["mlflow/1/models/0/artifacts/model.py", VOLUME]),
        (REVIEWER, "s3:DeleteObject", [VOLUME, "audit/0.json", f"{CHECKPOINT}/manifest.json"]),
        (REVIEWER, "s3:PutObject", [VOLUME, f"{RUN}/config.json", "releases/rift/0.json"]),
        (MANAGER, "s3:DeleteObject", ["incoming/a.sgy", "audit/0.json", f"{CHECKPOINT}/manifest.json", "releases/r/0"]),
        (MANAGER, "s3:PutObject", [f"{RUN}/config.json", "audit/0.json", SPLIT_KEY]),
    ],
)
def test_no_part_may_do_more(filled: Path, part: str, action: str, keys: list[str]) -> None:
    assert [key for key in keys if allows(filled / "iam" / f"{part}.json", action, key)] == []


def test_the_alarm_may_read_all_that_a_week_s_status_is_made_of(filled: Path) -> None:
    keys = [begun_key("2026-W49"), "index/arrivals/0.json", dataset_key("2026-W49"), "control/paused.json"]
    keys += [
        f"{RUN}/{name}" for name in ("config.json", "heartbeat.json", "metrics.jsonl", "cost.json", "outcome.json")
    ]
    keys += ["locks/training/000000000001.json", "audit/0.json", "notified/2026-W49/alarm-0-sns.json"]
    assert [key for key in keys if not allows(filled / "iam" / "alarm.json", "s3:GetObject", key)] == []


def test_sessions_run_one_document_on_one_cluster_only(tmp_path: Path) -> None:
    fill(LAKE, tmp_path, "--cluster", "abc123")
    start, own = json.loads((tmp_path / "iam" / "submit-by-session.json").read_text())["Statement"]
    assert [arn.rpartition(":")[2] for arn in start["Resource"]] == [
        "cluster/abc123",
        "document/AWS-StartNonInteractiveCommand",
    ]
    assert start["Condition"] == {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}
    assert own["Action"] == ["ssmmessages:OpenDataChannel", "ssm:TerminateSession"]  # the AWS quickstart's
    assert own["Resource"].endswith(":session/${aws:userid}-*")


def test_a_secret_is_no_variable_of_all_pods(tmp_path: Path) -> None:
    given = ["argo", "--lake", LAKE, "--image", "i:1", "--launcher", "eks", "--size", "tiny", "--out", str(tmp_path)]
    settings = tmp_path / "week.yaml"
    eks = "eks: {namespace: s, image: i, instance_type: m, processes_per_node: 1, gpus_per_node: 0}"
    settings.write_text(f"{(ROOT / 'flows' / 'weekly.yaml').read_text()}\n{eks}\n")
    given += ["--settings", str(settings), "--variable", "MLFLOW_TRACKING_PASSWORD=hunter2"]
    refused = CliRunner().invoke(deploy.main, given)
    assert refused.exit_code == 1
    assert "--variable MLFLOW_TRACKING_PASSWORD: its value would stand in the templates" in refused.output
    assert "hunter2" not in refused.output


def test_policies_stay_on_the_lake_and_name_no_action_of_all(filled: Path) -> None:
    for file in (filled / "iam").iterdir():
        for statement in json.loads(file.read_text())["Statement"]:
            assert not any("*" in action for action in _listed(statement["Action"])), file.name
            for arn in _listed(statement["Resource"]):
                assert not arn.startswith("arn:aws:s3:::") or arn.startswith("arn:aws:s3:::seismic-lake"), file.name
                assert statement["Sid"] == "ListTheLake" or arn != "arn:aws:s3:::seismic-lake/*", file.name


@pytest.mark.parametrize(("lake", "below"), [(LAKE, "north/sea/*"), ("s3://seismic-lake", "*")])
def test_every_part_that_reads_may_list_too_so_that_what_is_missing_is_not_called_denied(
    lake: str, below: str, tmp_path: Path
) -> None:
    """S3 answers 404 only to who may list, and a GET names no prefix; hence the IfExists."""
    for part in (FLOW, TRAINING, REVIEWER, MANAGER, OPERATOR, ALARM):
        statements = json.loads((fill(lake, tmp_path) / "iam" / f"{part}.json").read_text())["Statement"]
        (listing,) = (each for each in statements if each["Action"] == "s3:ListBucket")
        assert listing["Resource"] == "arn:aws:s3:::seismic-lake"
        assert listing["Condition"] == {"StringLikeIfExists": {"s3:prefix": below}}


def test_nothing_is_left_to_fill_in(filled: Path) -> None:
    made = [file for file in filled.rglob("*") if file.is_file()]

    assert len(made) == sum(
        file.is_file() for part in ("iam", "bucket", "kubernetes") for file in (DEPLOY / part).iterdir()
    )
    for file in made:
        assert not re.search(r"@[A-Z]+@", file.read_text()), file.name


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which keeps the credentials of its first use
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield


@pytest.mark.usefixtures("aws")
def test_moto_takes_policies_and_bucket_settings(filled: Path) -> None:
    iam, s3 = (boto3.client(name, region_name="us-east-1") for name in ("iam", "s3"))
    for file in (filled / "iam").iterdir():
        iam.create_policy(PolicyName=file.stem, PolicyDocument=file.read_text())
    s3.create_bucket(Bucket="seismic-lake")
    bucket: dict[str, Any] = {file.stem: json.loads(file.read_text()) for file in (filled / "bucket").iterdir()}
    s3.put_bucket_policy(Bucket="seismic-lake", Policy=json.dumps(bucket["policy"]))
    s3.put_bucket_lifecycle_configuration(Bucket="seismic-lake", LifecycleConfiguration=bucket["lifecycle"])
    s3.put_public_access_block(Bucket="seismic-lake", PublicAccessBlockConfiguration=bucket["public-access-block"])

    rules = s3.get_bucket_lifecycle_configuration(Bucket="seismic-lake")["Rules"]
    assert any("AbortIncompleteMultipartUpload" in rule for rule in rules)


def test_lifecycle_deletes_nothing_that_is_current_but_cards_and_the_doctors(filled: Path) -> None:
    for rule in json.loads((filled / "bucket" / "lifecycle.json").read_text())["Rules"]:
        expires, prefix = "Days" in rule.get("Expiration", {}), rule["Filter"]["Prefix"]
        assert expires == (prefix in ("north/sea/doctor/", "north/sea/metaflow/mf.cards/")), rule["ID"]


def test_the_cluster_lets_the_flow_do_what_the_launcher_asks() -> None:
    objects = [each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "flow.yaml").read_text()) if each]
    rules = {
        (group, resource): set(rule["verbs"])
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    for kind in (("sagemaker.amazonaws.com", "hyperpodpytorchjobs"), ("kubeflow.org", "pytorchjobs")):
        assert rules[kind] == {"create", "get", "list", "watch", "delete"}
    assert "secrets" not in {resource for _, resource in rules}
    assert "*" not in {word for pair in rules for word in pair} | set().union(*rules.values())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for file in (DEPLOY / "systemd").iterdir():
        shutil.copy(file, tmp_path)
    for unit in tmp_path.glob("*.service"):
        text = unit.read_text().replace("/opt/seismic-retraining/deploy/systemd", str(tmp_path))
        unit.write_text(text.replace("/opt/seismic-retraining/.venv/bin/week", "/bin/true"))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, tmp_path.glob("seismic-*"))], capture_output=True, text=True
    )

    assert [line for line in done.stderr.splitlines() if "seismic-" in line] == []


def run_week(folder: Path, flow: str, week: str = "exit 1", **variables: str) -> subprocess.CompletedProcess[str]:
    """The script of the timer with shell scripts in the place of the flow and of the `week` command."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name, text in (("python", flow), ("week", week)):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return subprocess.run(
        [DEPLOY / "systemd" / "run-week"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LAKE": "s3://lake", **variables},
        capture_output=True,
        text=True,
    )


SHOW = 'printf "%s\\n" "$@"'


def test_the_timer_runs_last_sundays_week_whenever_it_comes(tmp_path: Path) -> None:
    done = run_week(tmp_path, SHOW, LAKE="s3://lake/with space; id")
    assert done.returncode == 0
    given = done.stdout.splitlines()
    today = datetime.now(UTC).date()
    sunday = today - timedelta(days=today.isoweekday() % 7)
    assert given[given.index("--week") + 1] == iso_week(sunday)
    assert given[given.index("--lake") + 1] == "s3://lake/with space; id"
    assert "--config" not in given


@pytest.mark.parametrize(
    ("flow", "week", "code"),
    [
        ("exit 0", "exit 0", 0),
        ("exit 1", '[ "$1" = status ]', 3),  # it was reported
        ("exit 1", "exit 1", 1),
        ("exit 1", 'printf "%s\\n" "$@"; [ "$1" = dry-run ] && exit 2; exit 1', 3),  # it cannot be run as asked
        ("exit 2", '[ "$1" = dry-run ] && exit 2; exit 1', 3),  # nor can its settings be found
        ("kill -9 $$", "exit 0", 137),
    ],
)
def test_a_week_that_would_fail_again_is_not_started_again_by_the_timer(
    tmp_path: Path, flow: str, week: str, code: int
) -> None:
    assert run_week(tmp_path, flow, week).returncode == code
    unit = (DEPLOY / "systemd" / "seismic-week.service").read_text()
    assert "RestartPreventExitStatus=3\n" in unit
    assert "OnFailure=seismic-week-died.service\n" in unit


def test_the_timer_asks_for_a_report_of_this_start_and_notes_it_for_the_unit_that_tells(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    look = "echo SFM_WORKFLOW_MADE=$SFM_WORKFLOW_MADE"
    before = datetime.now(UTC).replace(microsecond=0)
    done = run_week(tmp_path, "exit 1", look, STATE_DIRECTORY=str(state))
    week, made = (state / "started").read_text().splitlines()
    assert done.stdout.splitlines() == [made]
    assert before <= datetime.fromisoformat(made.partition("=")[2]) <= datetime.now(UTC)
    assert re.fullmatch(r"WEEK=\d{4}-W\d\d", week)
    unit = (DEPLOY / "systemd" / "seismic-week-died.service").read_text()
    assert "EnvironmentFile=-/var/lib/seismic/started\n" in unit
    assert "--week ${WEEK} --ended" in unit


def test_stopping_the_timers_service_stops_the_flow(tmp_path: Path) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    flow = "trap 'sleep 0.3; touch ended; exit 5' TERM\ntouch runs\nwhile :; do sleep 0.05; done"
    (programs / "python").write_text(f"#!/bin/sh\n{flow}\n")
    (programs / "python").chmod(0o755)
    script = subprocess.Popen(
        [DEPLOY / "systemd" / "run-week"], cwd=tmp_path, env={"PATH": os.environ["PATH"], "LAKE": "s3://lake"}
    )
    while not (tmp_path / "runs").exists():
        time.sleep(0.02)
    script.terminate()
    assert script.wait() == 5
    assert (tmp_path / "ended").exists()


def test_the_timer_takes_its_settings_and_its_launcher(tmp_path: Path) -> None:
    done = run_week(tmp_path, SHOW, SETTINGS="/etc/my week.yaml", LAUNCHER="slurm")
    given = done.stdout.splitlines()
    assert given[given.index("--config") :][:4] == ["--config", "settings", "/etc/my week.yaml", "run"]
    assert given[given.index("--launcher") + 1] == "slurm"


def test_the_container_file_copies_what_exists_and_holds_no_secret() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    known = {"FROM", "RUN", "ARG", "ENV", "WORKDIR", "COPY", "USER"}
    copied = [word for name, rest in lines if name == "COPY" for word in rest.split()[:-1]]
    users = [rest for name, rest in lines if name == "USER"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert {name for name, _ in lines} <= known
    assert {"constraints.txt", "pyproject.toml", "flows", "ingestion", "validation", "seismic_model"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source
    assert users[-1] == "1000"
    assert not re.search(r"SECRET|PASSWORD|TOKEN|AWS_ACCESS", text)
    for script in (rest for name, rest in lines if name == "RUN"):
        assert subprocess.run(["bash", "-n", "-c", script], capture_output=True).returncode == 0, script


@pytest.mark.parametrize(
    ("time", "zone"), [("18:30", "America/Chicago"), ("20:00", "America/Chicago"), ("23:00", "Etc/UTC")]
)
def test_a_start_that_can_be_a_monday_in_utc_is_refused(time: str, zone: str) -> None:
    with pytest.raises(click.ClickException, match="the alarm would look at another week"):
        deploy.cron_workflow("seismic", time, zone)


@pytest.mark.parametrize(
    ("time", "zone"), [("12:00", "America/Chicago"), ("20:00", "Etc/UTC"), ("00:30", "Asia/Tokyo")]
)
def test_other_starts_are_taken_as_they_are(time: str, zone: str) -> None:
    spec = deploy.cron_workflow("seismic", time, zone)["spec"]

    hour, minute = time.split(":")
    assert spec["schedules"] == [f"{int(minute)} {int(hour)} * * 0"]
    assert spec["timezone"] == zone


@pytest.mark.parametrize(
    ("time", "zone"),
    [("25:00", "Etc/UTC"), ("20:00+05:00", "Etc/UTC"), ("20:00", "Mars/Olympus"), ("20:00", "../etc/passwd")],
)
def test_a_time_that_is_none_is_said(time: str, zone: str) -> None:
    with pytest.raises(click.ClickException, match="expected e"):
        deploy.cron_workflow("seismic", time, zone)


@pytest.mark.parametrize(
    "lake", ["s3://lake/$(id)", "s3://lake/a b", 's3://lake/"', "file:///tmp", "s3://lake/../x", "s3://"]
)
def test_a_lake_that_a_shell_would_read_is_refused(lake: str, tmp_path: Path) -> None:
    given = ["access", "--lake", lake, "--account", "123456789012", "--region", "us-east-1", "--out", str(tmp_path)]

    assert CliRunner().invoke(deploy.main, given).exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("account", "region"), [("12345", "us-east-1"), ("123456789012", "mars"), ("x" * 12, "eu-west-1")]
)
def test_an_account_or_a_region_that_cannot_be_is_refused(account: str, region: str, tmp_path: Path) -> None:
    given = ["access", "--lake", LAKE, "--account", account, "--region", region, "--out", str(tmp_path)]
    done = CliRunner().invoke(deploy.main, given)
    assert (done.exit_code, "expected" in done.output) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    here = ["--account", "123456789012", "--region", "us-east-1", "--out", str(tmp_path / "file" / "below")]
    given = ["access", "--lake", LAKE, *here]

    done = CliRunner().invoke(deploy.main, given)

    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert "cannot be written" in done.output


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ('{"repo_url": "https://ann:hunter22@git.example.com/x"}', {}),
        ('{"value": "AKIAIOSFODNN7EXAMPLE"}', {}),
        ('{"value": "{\\"x-api-key\\": 1}"}', {}),
        ('{"value": "http://mlflow/?token=hunter2222"}', {"MLFLOW_TRACKING_TOKEN": "hunter2222"}),
    ],
)
def test_a_template_with_a_secret_is_refused_without_showing_it(text: str, environment: dict[str, str]) -> None:
    with pytest.raises(click.ClickException) as refused:
        deploy.refuse_secrets(text, environment)

    assert "hunter" not in refused.value.message
    assert "--secret" in refused.value.message


def test_a_template_without_secrets_is_taken() -> None:
    deploy.refuse_secrets('{"url": "http://mlflow:5000/a@b", "arn": "arn:aws:iam::123456789012:role/x"}', {"A_KEY": ""})


@pytest.mark.parametrize(
    ("settings", "size", "said"),
    [
        (ROOT / "flows" / "demo.yaml", "tiny", "has no `slurm:` part"),
        (ROOT / "flows" / "weekly.yaml", "enormous", "has no recipe"),
        (ROOT / "constraints.txt", "tiny", "constraints.txt"),
    ],
)
def test_settings_that_would_stop_sunday_are_said_now(settings: Path, size: str, said: str, tmp_path: Path) -> None:
    given = ["argo", "--lake", "s3://nowhere", "--image", "i", "--launcher", "slurm", "--size", size]

    done = CliRunner().invoke(deploy.main, [*given, "--settings", str(settings), "--out", str(tmp_path)])

    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert said in done.output
