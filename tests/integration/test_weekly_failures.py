"""Weeks that cannot be, or that fail: people are told why, and nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from weeks import RUN, WEEK, Place, made_surveys

from ingestion.lake import Lake
from seismic_model.training.checkpoint import latest

pytestmark = pytest.mark.timeout(900)  # whole weeks, on a machine that may be busy


@pytest.fixture(scope="module")
def segy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return made_surveys(tmp_path_factory.mktemp("segy"))


@pytest.fixture
def place(lake: Lake, tmp_path: Path) -> Place:
    return Place(lake, tmp_path)


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
