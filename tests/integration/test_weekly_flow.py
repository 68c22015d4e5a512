"""The whole week as people start it: the flow in a process of its own, on a real S3, with real torchrun jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT

import psutil
import pytest
import yaml

from ingestion.catalog import surveys
from ingestion.lake import Lake
from ingestion.quarantine import reports
from ingestion.synthetic import BASINS, make_survey, write_segy
from seismic_model.registry.versions import aliases, connect, versions
from seismic_model.training.checkpoint import committed, latest

FLOWS = Path(__file__).parents[2] / "flows"
WEEK = "2026-W49"
RUN = "2026-w49-tiny-s0"
SETTINGS = {
    "split": {"cell_size": 700, "held_out_share": 0.2, "salt": "tests", "held_out_surveys": ["deltaic"]},
    "gate": {"margin": -10, "survey_tolerance": 10},  # every candidate wins: this is about the week, not the model
    "recipes": {
        "tiny": {
            "window": [16, 16, 16],
            "keep_ratio": 0.25,
            "steps": 12,
            "batch": 4,
            "learning_rate": 0.001,
            "warmup_steps": 2,
            "cp": 2,
            "processes": 2,
            "checkpoint_every": 3,
        }
    },
}


@dataclass(frozen=True)
class Place:
    """One lake with its own registry, jobs and Metaflow store."""

    lake: Lake
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(self.folder),
            "MLFLOW_TRACKING_URI": f"sqlite:///{self.folder / 'mlflow.db'}",
            "SFM_JOBS": str(self.folder / "jobs"),
        }

    def command(self, *arguments: str) -> list[str]:
        settings = self.folder / "settings.yaml"
        settings.write_text(yaml.safe_dump(SETTINGS))
        flow = [sys.executable, str(FLOWS / "weekly_retrain.py"), "--no-pylint", "--config", "settings", str(settings)]
        return [*flow, "run", "--max-workers=2", "--lake", self.lake.uri, "--week", WEEK, *arguments]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment | environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def drop(self, name: str, segy: bytes) -> None:
        self.lake.write(f"incoming/{name}", segy)


@pytest.fixture(scope="module")
def segy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("segy")
    made = {}
    for basin in ("deltaic", "deep_water"):
        write_segy(make_survey(BASINS[basin], seed=1, shape=(56, 56, 48)), folder / basin)
        made[f"{basin}.sgy"] = (folder / basin).read_bytes()
    return made | {"cut $(touch x)'; ../short.sgy".replace("/", "_"): made["deltaic.sgy"][:-777]}


@pytest.fixture
def place(lake: Lake, tmp_path: Path) -> Place:
    return Place(lake, tmp_path)


@pytest.fixture(scope="module")
def calm(s3: str, tmp_path_factory: pytest.TempPathFactory, segy: dict[str, bytes]) -> Place:
    """A week that nobody disturbed."""
    place = Place(Lake(f"{s3}/calm-week"), tmp_path_factory.mktemp("calm"))
    for name, content in segy.items():
        place.drop(name, content)
    result = place.run()
    assert result.returncode == 0, result.stdout
    return place


def test_a_week_ends_with_a_challenger_and_is_done_once(calm: Place) -> None:
    assert {manifest.survey for manifest in surveys(calm.lake)} == {"deltaic", "deep_water"}
    [report] = reports(calm.lake)
    assert [finding.code for finding in report.findings if finding.severity == "hold"] == ["truncated"]
    finished = latest(calm.lake, RUN)
    assert finished is not None
    assert finished.step == 12
    client = connect(calm.environment["MLFLOW_TRACKING_URI"])
    assert aliases(client) == {"challenger": "1"}
    summary = {line["name"]: line["value"] for line in calm.lake.read_json(f"weeks/{WEEK}/summary.json")["lines"]}
    assert summary["surveys in"] == "2"
    assert summary["held back"].startswith("1: ")
    assert "deltaic" in calm.lake.read("datadocs/index.html").decode()
    page = calm.lake.read(f"weeks/{WEEK}/report.html").decode()
    assert "data:image/png;base64," in page
    assert "<script" not in page

    again = calm.run()
    assert again.returncode == 0, again.stdout
    assert f"run {RUN} is done" in again.stdout
    assert calm.lake.read(f"weeks/{WEEK}/report.html").decode() == page
    assert aliases(client) == {"challenger": "1"}


def test_a_week_killed_while_training_ends_with_the_same_weights(
    calm: Place, place: Place, segy: dict[str, bytes]
) -> None:
    for name in ("deltaic.sgy", "deep_water.sgy"):
        place.drop(name, segy[name])
    _kill_everything(place)
    result = place.run()
    assert result.returncode == 0, result.stdout
    assert _weights(place) == _weights(calm)


def test_of_two_weeks_started_in_the_same_second_one_trains(calm: Place, place: Place, segy: dict[str, bytes]) -> None:
    for name in ("deltaic.sgy", "deep_water.sgy"):
        place.drop(name, segy[name])
    command, logs = place.command(), [place.folder / f"flow-{number}.log" for number in range(2)]
    flows = [
        subprocess.Popen(command, env=place.environment, cwd=place.folder, stdout=log.open("wb"), stderr=STDOUT)
        for log in logs
    ]
    assert [flow.wait() for flow in flows] == [0, 0], "\n".join(log.read_text() for log in logs)
    assert _weights(place) == _weights(calm)
    client = connect(place.environment["MLFLOW_TRACKING_URI"])
    assert [str(each.version) for each in versions(client)] == ["1"]
    assert aliases(client) == {"challenger": "1"}


def _weights(place: Place) -> dict[int, str]:
    return {each.step: each.weights_sha256 for each in committed(place.lake, RUN)}


def _kill_everything(place: Place) -> None:
    """Start a week and kill -9 flow, supervisor, torchrun and ranks once the first checkpoint is committed."""
    flow = subprocess.Popen(
        place.command(),
        env=place.environment,
        cwd=place.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _wait(lambda: bool(committed(place.lake, RUN)), flow)
    os.killpg(flow.pid, signal.SIGKILL)
    for process in psutil.process_iter(["cmdline"]):
        if any(place.lake.uri in argument for argument in process.info["cmdline"] or []):
            process.kill()
    flow.wait()


def _wait(condition: Callable[[], bool], flow: subprocess.Popen[bytes]) -> None:
    for _ in range(6000):
        if condition():
            return
        assert flow.poll() is None, "the flow ended before it was killed"
        time.sleep(0.1)
    raise AssertionError("no checkpoint was committed")


def test_a_week_whose_training_fails_says_why_and_goes_on_when_that_is_mended(
    place: Place, segy: dict[str, bytes]
) -> None:
    place.drop("deltaic.sgy", segy["deltaic.sgy"])
    place.drop("deep_water.sgy", segy["deep_water.sgy"])
    broken = place.folder / "broken" / "deepspeed"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('<broken> on purpose')")
    result = place.run(PYTHONPATH=f"{broken.parent}:{os.environ.get('PYTHONPATH', '')}")
    assert result.returncode != 0
    assert "an error of its own 3 times without a new checkpoint" in result.stdout
    page = place.lake.read(f"weeks/{WEEK}/report.html").decode()
    assert "&lt;broken&gt; on purpose" in page
    summary = {line["name"]: line["value"] for line in place.lake.read_json(f"weeks/{WEEK}/summary.json")["lines"]}
    assert summary["trained"].startswith(f"failed: training {RUN}")

    mended = place.run()
    assert mended.returncode == 0, mended.stdout
    assert latest(place.lake, RUN).step == 12


def test_a_week_without_surveys_ends_with_nothing_trainable(place: Place) -> None:
    result = place.run()
    assert result.returncode == 0, result.stdout
    assert "nothing trainable" in result.stdout
    assert not list(place.lake.objects("runs"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--week", "2026-W60"), "not a week of the ISO calendar"),
        (("--size", "enormous"), "model size 'enormous' has no recipe"),
        (("--launcher", "moon"), "launcher 'moon' is not known"),
        (("--surveys", "../x"), "--surveys"),
    ],
)
def test_a_request_that_cannot_be_is_refused_before_anything_happens(
    place: Place, arguments: tuple[str, ...], message: str
) -> None:
    result = place.run(*arguments)
    assert result.returncode != 0
    assert message in result.stdout
    assert not list(place.lake.objects())
