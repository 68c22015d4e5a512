"""What `python -m flows.deploy argo` makes: by Metaflow, on a real S3, judged by the rules that Argo follows.

There is no Argo here. Its rules for `depends`, `when` and what a step is given are those of its source (4.1.2,
workflow/controller/dag.go): a task whose `depends` is false is Omitted, one whose `when` is false is Skipped, and an
argument that names an output which does not exist keeps its task from starting.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flows import deploy, week_command
from flows.argo_inputs import repair
from flows.weekly_retrain import WeeklyRetrain
from ingestion.lake import Lake

ROOT = Path(__file__).parents[2]
STEPS = {
    name.replace("_", "-") for name, value in vars(WeeklyRetrain).items() if getattr(value, "is_step", None) is True
}
KUBECONFIG = """
clusters: [{name: none, cluster: {server: "https://127.0.0.1:9"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
"""
SENTINEL = "sentinel-metadata-key-2f9c"
TRAINED = {"plan", "train"}
SCORED = {"evaluate", "gate", "register"}
TAKEN_IN = {"each-survey", "each-survey-foreach-work", "collect"}
ALWAYS = {"start", "freeze", "decide", "report", "end"}


@dataclass(frozen=True)
class Made:
    """The manifests, the code package, and what the command said."""

    template: dict[str, Any]
    cron: dict[str, Any]
    alarm: dict[str, Any]
    text: str
    package: bytes

    @property
    def steps(self) -> dict[str, Any]:
        """Templates that run a step, by name."""
        return {each["name"]: each for each in self.template["spec"]["templates"] if each["name"] in STEPS}

    @property
    def dag(self) -> list[dict[str, Any]]:
        """The tasks of the whole flow."""
        return top(self.template)

    @property
    def parameters(self) -> dict[str, str]:
        """What the flow is given, by name, as Argo has it: JSON."""
        return {each["name"]: each["value"] for each in self.template["spec"]["arguments"]["parameters"]}

    @property
    def root(self) -> str:
        """Where Metaflow keeps what it keeps."""
        return next(e["value"] for e in self.steps["start"]["container"]["env"] if e["name"].endswith("SYSROOT_S3"))


def top(template: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks of the whole flow."""
    (whole,) = (each for each in template["spec"]["templates"] if each["name"] == "WeeklyRetrain")
    tasks: list[dict[str, Any]] = whole["dag"]["tasks"]
    return tasks


@pytest.fixture(scope="module")
def made(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Made:
    out = tmp_path_factory.mktemp("deploy")
    (ROOT / "seismic_retraining.egg-info").mkdir(exist_ok=True)  # as `pip install -e` leaves one
    (ROOT / "seismic_retraining.egg-info" / "PKG-INFO").write_text(
        "Metadata-Version: 2.4\nName: seismic-retraining\nVersion: 9\n"
    )
    (ROOT / "seismic_retraining.egg-info" / "top_level.txt").write_text("flows\ningestion\nseismic_model\nvalidation\n")
    settings = out / "settings.yaml"
    shared = "namespace: seismic, image: registry/seismic:1, instance_type: ml.p5en.48xlarge"
    eks = f"eks: {{{shared}, processes_per_node: 8, gpus_per_node: 8}}"
    settings.write_text(f"{(ROOT / 'flows' / 'cluster.yaml').read_text()}\n{eks}\n")
    command = [
        sys.executable,
        "-m",
        "flows.deploy",
        "argo",
        "--lake",
        f"{s3}/deployed",
        "--image",
        "registry/seismic:1",
    ]
    options = [
        "--launcher",
        "eks",
        "--size",
        "large",
        "--secret",
        "seismic",
        "--out",
        str(out),
        "--settings",
        str(settings),
    ]
    variable = ["--variable", 'MLFLOW_TRACKING_URI=http://mlflow:5000/?a="b",c=d']
    done = subprocess.run(
        [*command, *options, *variable],
        cwd=ROOT,
        env=os.environ | {"METAFLOW_HOME": str(out), "METAFLOW_SERVICE_AUTH_KEY": SENTINEL},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    text = (out / "argo" / "workflow-template.json").read_text()
    template = json.loads(text)
    (url,) = {
        each["value"]
        for step in template["spec"]["templates"]
        if "container" in step
        for each in step["container"]["env"]
        if each["name"] == "METAFLOW_CODE_URL"
    }
    package = Lake(s3).read(url.removeprefix(f"{s3}/"))
    cron, alarm = (json.loads((out / "argo" / f"{name}.json").read_text()) for name in ("cron-workflow", "alarm"))
    return Made(template, cron, alarm, text, package)


def test_the_pods_can_ask_for_entry_points(made: Made) -> None:
    """Which they cannot with a distribution that has no name, such as one by its egg-info."""
    with tarfile.open(fileobj=io.BytesIO(made.package)) as package:
        (file,) = (each for each in package.getmembers() if each.name.endswith("DIST_INFO"))
        described = json.load(package.extractfile(file))  # type: ignore[arg-type]
    assert described
    assert all(each["METADATA"].startswith("Metadata-Version") for each in described.values())


def test_the_pod_that_scores_has_the_gpu_that_the_settings_ask_for(made: Made) -> None:
    asked = {name: each["container"]["resources"].get("limits", {}) for name, each in made.steps.items()}
    assert {name: int(limits["nvidia.com/gpu"]) for name, limits in asked.items() if "nvidia.com/gpu" in limits} == {
        "evaluate": 1
    }


def test_every_step_is_there_with_image_account_secret_and_variables(made: Made) -> None:
    assert set(made.steps) == STEPS
    for step in made.steps.values():
        container = step["container"]
        variables = {each["name"]: each["value"] for each in container["env"]}
        assert container["image"] == "registry/seismic:1"
        assert step["serviceAccountName"] == "seismic-flow"
        assert [each["secretRef"]["name"] for each in container["envFrom"]] == ["seismic"]
        assert variables["MLFLOW_TRACKING_URI"] == 'http://mlflow:5000/?a="b",c=d'
        assert variables["METAFLOW_DATASTORE_SYSROOT_S3"].endswith("/deployed/metaflow")
    assert made.template["metadata"]["name"] == "weekly-retrain"
    assert made.template["metadata"]["namespace"] == "seismic"


def test_the_schedule_starts_this_template_on_sunday_one_at_a_time(made: Made) -> None:
    spec = made.cron["spec"]

    assert spec["schedules"] == ["0 20 * * 0"]
    assert spec["timezone"] == "Etc/UTC"
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["workflowSpec"]["workflowTemplateRef"]["name"] == made.template["metadata"]["name"]
    assert made.cron["metadata"]["namespace"] == made.template["metadata"]["namespace"]
    assert json.loads(made.parameters["lake"]).endswith("/deployed")
    assert (made.parameters["launcher"], made.parameters["size"]) == ('"eks"', '"large"')
    assert made.template["spec"]["activeDeadlineSeconds"] + spec["startingDeadlineSeconds"] < 7 * 86_400


def test_the_alarm_looks_at_the_same_lake_with_an_account_of_its_own(made: Made) -> None:
    spec = made.alarm["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert container["command"][:2] == ["week", "status"]
    assert container["command"][container["command"].index("--lake") + 1] == json.loads(made.parameters["lake"])
    assert CliRunner().invoke(week_command.main, [*container["command"][1:], "--help"]).exit_code == 0
    assert spec["serviceAccountName"] == "seismic-alarm"
    assert container["image"] == made.steps["start"]["container"]["image"]


def test_a_workflow_that_ends_without_a_report_tells_people(made: Made, lake: Lake, monkeypatch: Any) -> None:
    spec = made.template["spec"]
    (handler,) = (each for each in spec["templates"] if each["name"] == spec["onExit"])
    container = handler["container"]
    (told,) = {each["value"] for each in container["env"] if each["name"] == "SFM_WORKFLOW_MADE"}
    assert told == "{{workflow.creationTimestamp}}"
    assert [each["secretRef"]["name"] for each in container["envFrom"]] == ["seismic"]
    assert container["command"][:4] == ["week", "status", "--lake", json.loads(made.parameters["lake"])]

    monkeypatch.setenv("SFM_WORKFLOW_MADE", "2026-11-29T20:00:05Z")
    lake.write("weeks/2026-W48/begun.json", b"{}")
    for parameter, code in ((made.parameters["week"], 1), ('"2026-W48"', 1), ('"2026-W47; id"', 2)):
        command = [parameter if each == "{{workflow.parameters.week}}" else each for each in container["command"]]
        command[3] = lake.uri
        ended = CliRunner().invoke(week_command.main, command[1:])
        assert ended.exit_code == code
        assert code == 2 or "the flow of week 2026-W48 ended without a report (taking in surveys)" in ended.output


@pytest.mark.parametrize("found", ["each_survey", "freeze"])
@pytest.mark.parametrize(
    ("action", "ended", "ran", "last"),
    [
        ("plan", "evaluate", TRAINED | SCORED, "register"),
        ("plan", "report", TRAINED, "train"),
        ("report", "", set(), "decide"),
    ],
)
def test_conditional_steps_run_and_get_what_the_branch_that_ran_made(
    made: Made, found: str, action: str, ended: str, ran: set[str], last: str
) -> None:
    argo = Argo({"start": found, "decide": action, "train": ended})

    argo.run(made.dag)

    before = TAKEN_IN if found == "each_survey" else set()
    assert {name for name, status in argo.status.items() if status == "Succeeded"} == ALWAYS | before | ran
    first = "collect" if before else "start"
    assert argo.given["freeze"] == f"argo-{{{{workflow.name}}}}/{first}/id-{first}"
    assert argo.given["report"] == f"argo-{{{{workflow.name}}}}/{last}/id-{last}"


def test_without_the_repair_weeks_that_do_not_train_stop_on_argo(made: Made) -> None:
    """As Metaflow makes it; when this fails, it has been repaired there and flows/argo_inputs.py can go."""
    as_made = deploy._metaflow(str(ROOT / "flows" / "cluster.yaml"), {"METAFLOW_DATASTORE_SYSROOT_S3": made.root})

    with pytest.raises(KeyError, match="has no output"):
        Argo({"start": "freeze", "decide": "report"}).run(top(as_made))
    assert top(repair(as_made)) == made.dag


class Argo:
    """Runs a DAG whose switches choose ``chosen``; every task that starts succeeds and makes ``id-NAME``."""

    def __init__(self, chosen: dict[str, str]) -> None:
        self.chosen, self.status, self.given = chosen, {}, {}  # type: ignore[var-annotated]

    def run(self, tasks: list[dict[str, Any]]) -> None:
        waiting = list(tasks)
        while waiting:
            task = next(each for each in waiting if self._ready(each))
            waiting.remove(task)
            self.status[task["name"]] = self._outcome(task)

    def _ready(self, task: dict[str, Any]) -> bool:
        return all(name in self.status for name in re.findall(r"([\w-]+)\.Succeeded", task.get("depends") or ""))

    def _outcome(self, task: dict[str, Any]) -> str:
        depends = re.sub(
            r"([\w-]+)\.Succeeded", lambda m: str(self.status[m[1]] == "Succeeded"), task.get("depends") or "True"
        )
        if not _true(depends):
            return "Omitted"
        when = self._filled(task.get("when") or "True")
        if not _true(re.sub(r"([\w-]+) ?== ?([\w-]+)", lambda m: str(m[1] == m[2]), when)):
            return "Skipped"
        for parameter in task.get("arguments", {}).get("parameters", []):
            self.given[task["name"]] = self._filled(parameter["value"])
        return "Succeeded"

    def _filled(self, text: str) -> str:
        """Expressions look at a status before they take an output; a plain name needs the output to be there."""
        output = (
            r"(?:tasks\['\1'\]\.outputs\.parameters\['switch-step'\]|get\(get\(get\(tasks\['\1'\], .*?'switch-step'\))"
        )
        switch = rf"\{{\{{=\(tasks\['([\w-]+)'\]\.status == 'Succeeded' \? ({output}) : nil\) == '(\w+)'\}}\}}"
        text = re.sub(switch, self._choice, text)
        text = re.sub(r"\{\{=(.*)\}\}", lambda m: self._chosen(m[1]), text)
        text = re.sub(r"\{\{tasks\.([\w-]+)\.status\}\}", lambda m: self.status[m[1]], text)
        return re.sub(
            r"\{\{tasks\.([\w-]+)\.outputs\.parameters\.([\w-]+)\}\}", lambda m: self._output(m[1], m[2]), text
        )

    def _choice(self, found: re.Match[str]) -> str:
        task, output, wanted = found.groups()
        named = not output.startswith("get(")  # then Argo wants it to be there, also where it is not taken
        return str((named or self.status[task] == "Succeeded") and self._output(task, "switch-step") == wanted)

    def _chosen(self, expression: str) -> str:
        """``tasks['a'].status == 'Succeeded' ? A : (B)``, as deep as it goes."""
        if found := re.fullmatch(r"tasks\['([\w-]+)'\]\.status == 'Succeeded' \? ([^?:]+) : \((.*)\)", expression):
            return self._chosen(found[2] if self.status[found[1]] == "Succeeded" else found[3])
        output = r"get\(get\(get\(tasks\['([\w-]+)'\], 'outputs'\), 'parameters'\), 'task-id'\)"
        found = re.fullmatch(rf"'(\w+/)' \+ {output}", expression)
        assert found, expression
        return found[1] + self._output(found[2], "task-id")

    def _output(self, task: str, name: str) -> str:
        if self.status[task] != "Succeeded":
            raise KeyError(f"{task} has no output {name}: it is {self.status[task]}")
        return self.chosen[task] if name == "switch-step" else f"id-{task}" if name == "task-id" else name


class Pods(Argo):
    """Argo that runs each task's container, as a process that sees an empty /mnt/out and leaves its outputs there."""

    def __init__(self, made: Made, folder: Path) -> None:
        super().__init__({})
        self.made, self.folder, self.said = made, folder, ""

    def _outcome(self, task: dict[str, Any]) -> str:
        return self._run(task["name"]) if (outcome := super()._outcome(task)) == "Succeeded" else outcome

    def _output(self, task: str, name: str) -> str:
        if self.status[task] != "Succeeded":
            return super()._output(task, name)
        return (self.folder / task / "out" / name.replace("-", "_")).read_text()

    def _run(self, name: str) -> str:
        container, pod = self.made.steps[name]["container"], self.folder / name
        (pod / "out").mkdir(parents=True)
        mount = 'mount -t tmpfs none /mnt && mkdir /mnt/out && mount --bind "$0" /mnt/out && exec "$@"'
        variables = {each["name"]: self._in_pod(name, each["value"] or "none") for each in container["env"]}
        aws = {each: value for each, value in os.environ.items() if each.startswith("AWS_")}
        image = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "METAFLOW_SKIP_INSTALL_DEPENDENCIES": "1"}
        (pod / "kubeconfig").write_text(KUBECONFIG)  # a pod has its service account
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", mount, str(pod / "out"),
             *(self._in_pod(name, word) for word in container["command"])],
            cwd=pod,
            env=aws | variables | image | {"HOME": str(pod), "KUBECONFIG": str(pod / "kubeconfig")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        self.said += done.stdout
        assert done.returncode == 0, done.stdout[-3000:]
        return "Succeeded"

    def _in_pod(self, name: str, text: str) -> str:
        """What Argo fills in when it makes the pod."""
        words = {"name": "weekly-retrain-x1", "creationTimestamp": "2026-11-29 20:00:00Z"}
        inputs = self.given.get(name, "").replace("{{workflow.name}}", words["name"])
        text = text.replace(
            "{{=toBase64(inputs.parameters['input-paths'])}}", base64.b64encode(inputs.encode()).decode()
        )
        text = re.sub(
            r"\{\{=toBase64\(workflow\.parameters\['(\w+)'\]\)\}\}",
            lambda m: base64.b64encode(self.made.parameters[m[1]].encode()).decode(),
            text,
        )
        text = text.replace("/tmp/mf-", f"{self.folder}/{name}/mf-")  # each pod has its own
        return re.sub(r"\{\{workflow\.(\w+)\}\}", lambda m: words[m[1]], text).replace("{{retries}}", "0")


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True).returncode != 0,
    reason="mounts of one's own are not allowed here",
)
def test_a_week_with_nothing_new_runs_from_pod_to_pod(made: Made, tmp_path: Path) -> None:
    pods = Pods(made, tmp_path)

    pods.run(made.dag)

    assert {name for name, status in pods.status.items() if status == "Succeeded"} == ALWAYS
    assert "survey(s) to take in" in pods.said
    assert Lake(json.loads(made.parameters["lake"])).folders("weeks") != []


def _true(text: str) -> bool:
    assert not set(re.findall(r"\w+", text)) - {"True", "False"}, text
    return bool(eval(text.replace("||", " or ").replace("&&", " and ")))


def test_the_code_package_runs_where_nothing_else_is(made: Made, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(made.package)) as packed:
        packed.extractall(tmp_path, filter="data")
    code = tmp_path / ".mf_code"
    rooms = "flows, ingestion, seismic_model, validation"
    read = (
        "from validation.rules import load; load();"
        "from seismic_model.planner.assumptions import read_machine; read_machine('h200')"
    )
    environment = os.environ | {"PYTHONPATH": str(code), "METAFLOW_EXTRACTED_ROOT": str(tmp_path)}

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    files = python("-c", f"import {rooms}; print(*(room.__file__ for room in ({rooms})))").split()
    assert all(Path(file).is_relative_to(code) for file in files)
    assert python("-c", read) == ""
    shown = python("weekly_retrain.py", "--no-pylint", "show")
    assert all(f"Step {name.replace('-', '_')}" in shown for name in STEPS)
    for room in ("flows", "ingestion", "seismic_model", "validation"):
        for file in (ROOT / room).rglob("*.*"):
            if "__pycache__" not in file.parts:
                assert (code / file.relative_to(ROOT)).read_bytes() == file.read_bytes()


def test_the_code_package_holds_nothing_secret_or_large(made: Made) -> None:
    assert SENTINEL not in made.text
    assert "x-api-key" not in made.text
    assert len(made.package) < 5_000_000
    with tarfile.open(fileobj=io.BytesIO(made.package)) as packed:
        for member in packed.getmembers():
            assert member.isfile() or member.isdir()
            ours = member.name.startswith(".mf_code/") and not member.name.startswith(".mf_code/metaflow/")
            assert not ours or Path(member.name).suffix in (".py", ".yaml", ".html", ".j2"), member.name
            assert not ours or member.size < 100_000, member.name
            held = packed.extractfile(member)
            assert held is None or SENTINEL.encode() not in held.read(), member.name


@pytest.mark.usefixtures("s3")
def test_step_functions_still_refuses_the_flow(tmp_path: Path) -> None:
    """docs/adr says so: when this fails, Metaflow has learned it and the decision can be looked at again."""
    with NoStateMachines() as endpoint:
        done = subprocess.run(
            [sys.executable, str(ROOT / "flows" / "weekly_retrain.py"), "--no-pylint", "--datastore", "s3",
             "step-functions", "create", "--only-json"],
            env=os.environ
            | {
                "AWS_ENDPOINT_URL_SFN": endpoint,
                "METAFLOW_HOME": str(tmp_path),
                "METAFLOW_DATASTORE_SYSROOT_S3": "s3://lake/step-functions",
                "METAFLOW_S3_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"],
                "METAFLOW_SFN_IAM_ROLE": "arn:aws:iam::123456789012:role/x",
                "METAFLOW_ECS_S3_ACCESS_IAM_ROLE": "arn:aws:iam::123456789012:role/x",
                "METAFLOW_BATCH_JOB_QUEUE": "queue",
            },
            capture_output=True,
            text=True,
        )  # fmt: skip

    assert done.returncode != 0
    assert "switch statement" in done.stderr


class NoStateMachines:
    """Step Functions in an account that has none yet."""

    def __enter__(self) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"stateMachines": []}')

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
