"""The whole week as people start it: the flow in a process of its own, on a real S3, with real torchrun jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import STDOUT

import psutil
import pytest
from weeks import RUN, WEEK, Place, made_surveys

from ingestion.catalog import surveys
from ingestion.lake import Lake
from ingestion.quarantine import reports
from seismic_model.registry.versions import aliases, connect, versions
from seismic_model.training.checkpoint import committed, latest

pytestmark = pytest.mark.timeout(900)  # whole weeks, on a machine that may be busy


@pytest.fixture(scope="module")
def calm(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A week that nobody disturbed."""
    place = Place(Lake(f"{s3}/calm-week"), tmp_path_factory.mktemp("calm"))
    for name, content in made_surveys(place.folder).items():
        place.drop(name, content)
    result = place.run()
    assert result.returncode == 0, result.stdout
    return place


@pytest.fixture
def place(calm: Place, lake: Lake, tmp_path: Path) -> Place:
    """One whose surveys are taken in, and that has not trained."""
    place = Place(lake, tmp_path)
    place.take_over_surveys(calm)
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


def test_a_week_that_fails_and_then_is_killed_ends_with_the_same_weights(calm: Place, place: Place) -> None:
    broken = place.folder / "broken"
    broken.mkdir()
    words = (
        "import os, sys; 'LOCAL_RANK' in os.environ and (print('<broken> on purpose', file=sys.stderr), os._exit(1))"
    )
    (broken / "sitecustomize.py").write_text(words)
    result = place.run(PYTHONPATH=f"{broken}:{os.environ.get('PYTHONPATH', '')}")
    assert result.returncode != 0
    assert "an error of its own 3 times without a new checkpoint" in result.stdout
    assert "&lt;broken&gt; on purpose" in place.lake.read(f"weeks/{WEEK}/report.html").decode()
    summary = {line["name"]: line["value"] for line in place.lake.read_json(f"weeks/{WEEK}/summary.json")["lines"]}
    assert summary["trained"].startswith(f"failed: training {RUN}")

    _kill_everything(place)
    result = place.run()
    assert result.returncode == 0, result.stdout
    assert _weights(place) == _weights(calm)


def test_of_two_weeks_started_in_the_same_second_one_trains(calm: Place, place: Place) -> None:
    """They share no folder of jobs, so that neither finds the other's: the lease decides."""
    command, logs = place.command(), [place.folder / f"flow-{number}.log" for number in range(2)]
    flows = [
        subprocess.Popen(
            command,
            env=place.environment | {"SFM_JOBS": str(log.with_suffix(""))},
            cwd=place.folder,
            stdout=log.open("wb"),
            stderr=STDOUT,
        )
        for log in logs
    ]
    assert [flow.wait() for flow in flows] == [0, 0], "\n".join(log.read_text() for log in logs)
    assert _weights(place) == _weights(calm)
    client = connect(place.environment["MLFLOW_TRACKING_URI"])
    assert [str(each.version) for each in versions(client)] == ["1"]
    assert aliases(client) == {"challenger": "1"}


def test_a_week_without_surveys_ends_with_nothing_trainable(lake: Lake, tmp_path: Path) -> None:
    place = Place(lake, tmp_path)
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
    lake: Lake, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    place = Place(lake, tmp_path)
    result = place.run(*arguments)
    assert result.returncode != 0
    assert message in result.stdout
    assert not list(place.lake.objects())


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
