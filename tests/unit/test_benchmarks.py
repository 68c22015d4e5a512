"""Benchmarks say what was measured, miss or not, in a table and in one JSON object."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import yaml
from rich.table import Table

from benchmarks import decoder, launcher, reconstruction, scaling, step
from benchmarks.common import CannotMeasureError, Goal, Measured, run
from benchmarks.reconstruction import goals, rows_of, tabulate
from flows import demo
from flows.settings import read_settings
from ingestion.synthetic import BASINS
from seismic_model.config import MODEL_SIZES, RunConfig
from seismic_model.evaluation import bootstrap
from seismic_model.evaluation.scores import METHODS, Evaluation, RegionScore, SurveyScore


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def config(seed: int) -> RunConfig:
    return RunConfig(
        lake="s3://lake/of-this-test",
        run=f"run-{seed}",
        dataset="datasets/2026-W01.json",
        dataset_sha256="b" * 64,
        model=MODEL_SIZES["tiny"],
        window=(16, 16, 32),
        seed=seed,
        steps=200,
        batch=8,
    )


def survey(name: str, unseen: bool = False, **errors: float) -> SurveyScore:
    """A survey of three alike regions; methods that are not named have an error of 1."""
    regions = [
        RegionScore(
            origin=(32 * place, 0, 0),
            voxels=10,
            traces=4,
            energy=1.0,
            squared_error={method: errors.get(method, 1.0) ** 2 for method in METHODS},
            correlation=dict.fromkeys(METHODS, 0.5),
        )
        for place in range(3)
    ]
    return SurveyScore(
        survey=name,
        digest=hashlib.sha256(name.encode()).hexdigest(),
        unseen=unseen,
        scores={method: bootstrap.score(regions, method) for method in METHODS},
        regions=regions,
    )


def evaluation(*surveys: SurveyScore) -> Evaluation:
    return Evaluation(
        run="run",
        step=100,
        weights_sha256="a" * 64,
        dataset="datasets/2026-W01.json",
        dataset_sha256="b" * 64,
        evaluation_key="c" * 64,
        surveys=list(surveys),
        unscored=[],
    )


def one_seed(seed: int, model: float, held_out: float) -> list[dict[str, object]]:
    """Rows of a seed with these errors beside baselines of 1."""
    scored = evaluation(survey("north-1", model=model), survey("far-1", unseen=True, model=held_out))
    return rows_of(config(seed), scored, seconds=12.0)


def test_the_mean_is_compared_with_the_best_single_baseline_and_with_the_best_of_each_survey() -> None:
    scored = evaluation(
        survey("north-1", model=0.4, interpolation=0.4, neighbours=0.8),
        survey("south-1", model=0.5, interpolation=0.9, neighbours=0.6),
        survey("far-1", unseen=True, model=0.9, neighbours=0.1),  # counts in no mean
    )
    north, south, far, mean = rows_of(config(seed=0), scored, seconds=12.0)
    assert (north["best_baseline"], north["gain"]) == ("interpolation", pytest.approx(0.0))
    assert (south["best_baseline"], south["gain"]) == ("neighbours", pytest.approx(1 - 0.5 / 0.6))
    assert (far["held_out"], far["gain"]) == (True, pytest.approx(-8.0))
    assert mean["baselines"]["interpolation"] == pytest.approx(0.65)
    assert (mean["best_baseline"], mean["gain"]) == ("interpolation", pytest.approx(1 - 0.45 / 0.65))
    assert mean["gain_each"] == pytest.approx(1 - 0.45 / 0.5)


def test_the_worst_seed_decides_for_the_mean_and_for_the_held_out_basin() -> None:
    rows = one_seed(0, model=0.8, held_out=0.95) + one_seed(1, model=0.89, held_out=0.5)
    mean, held_out = goals(rows)
    assert (mean.value, mean.met) == (pytest.approx(0.11), True)
    assert (held_out.value, held_out.met) == (pytest.approx(0.05), False)


def test_without_a_held_out_basin_there_is_no_figure() -> None:
    rows = rows_of(config(seed=0), evaluation(survey("north-1", model=0.5)), seconds=12.0)
    with pytest.raises(CannotMeasureError, match="held_out_surveys"):
        goals(rows)


@pytest.mark.parametrize(("better", "met"), [("higher", [False, True, True]), ("lower", [True, True, False])])
def test_a_goal_is_met_on_its_better_side(better: str, met: list[bool]) -> None:
    assert [Goal("g", value, "s", 2.0, better).met for value in (1.0, 2.0, 3.0)] == met  # type: ignore[arg-type]


def test_json_is_one_object_and_nothing_else_whatever_is_printed_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> Measured:
        print("a library talks")
        rows = one_seed(0, model=0.95, held_out=0.5)
        return Measured(rows, goals(rows))

    assert run("reconstruction", measure, tabulate, as_json=True) == 0
    said = capsys.readouterr()
    printed = json.loads(said.out)
    assert list(printed) == ["benchmark", "machine", "versions", "rows", "goals"]
    assert [set(goal) for goal in printed["goals"]] == 2 * [{"name", "value", "unit", "goal", "better", "met"}]
    assert [goal["met"] for goal in printed["goals"]] == [False, True]
    assert [row["survey"] for row in printed["rows"]] == ["north-1", "far-1", "mean"]
    assert "a library talks" in said.err


def test_the_table_shows_every_seed_and_survey_and_the_misses(capsys: pytest.CaptureFixture[str]) -> None:
    rows = one_seed(0, model=0.95, held_out=0.5) + one_seed(7, model=0.95, held_out=0.5)
    assert run("reconstruction", lambda: Measured(rows, goals(rows)), tabulate, as_json=False) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert sum("far-1 (held out)" in line and "+50.0%" in line for line in lines) == 2
    assert sum("mean" in line and "100/200" in line for line in lines) == 2
    assert any(line.startswith("MISSED: mean gain") and "0.050" in line for line in lines)
    assert any(line.startswith("met: gain over the best baseline on a held-out basin") for line in lines)


def test_what_could_not_be_measured_ends_with_1_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> Measured:
        raise CannotMeasureError("no server")

    assert run("reconstruction", measure, lambda _rows: Table(), as_json=True) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "reconstruction could not be measured: no server" in said.err


@pytest.mark.parametrize(
    ("benchmark", "arguments"),
    [
        (reconstruction, ["--seeds", "0,x"]),
        (reconstruction, ["--steps", "0"]),
        (decoder, ["--seeds", "1,1"]),
        (decoder, ["--processes", "0"]),
        (step, ["--seeds", ""]),
        (scaling, ["--rounds", "-1"]),
        (launcher, ["--rounds", "0"]),
    ],
)
def test_unusable_arguments_are_refused(
    benchmark: ModuleType, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [benchmark.__name__, *arguments])
    with pytest.raises(SystemExit) as ended:
        benchmark.main()
    assert ended.value.code == 2
    assert f"{arguments[1]!r} is not a" in capsys.readouterr().err


def test_the_demo_holds_out_a_survey_that_its_first_week_makes() -> None:
    made = {f"{basin}-1" for basin in demo.new_basins(1)}
    held_out = read_settings(yaml.safe_load((demo.FLOWS / "demo.yaml").read_text())).split.held_out_surveys
    assert held_out
    assert set(held_out) < made


def test_each_later_week_brings_another_basin() -> None:
    weeks = [demo.new_basins(number) for number in range(2, 2 + len(BASINS))]
    assert sorted(basin for week in weeks for basin in week) == sorted(BASINS)


def test_a_launcher_is_compared_with_its_peer_turn_by_turn() -> None:
    def turn(peer: float, ours: float) -> dict[str, dict[str, float]]:
        return {
            way: {"first_seconds": seconds, "notice_seconds": 2 * seconds}
            for way, seconds in ((launcher.FLOOR, 0.1), (launcher.TORCHRUN, peer), (launcher.LOCAL, ours))
        }

    turns = [turn(2.0, 2.5), turn(9.0, 9.4), turn(2.0, 4.0)]  # the machine was slow once
    rows = launcher.rows_of([launcher.FLOOR, launcher.TORCHRUN, launcher.LOCAL], turns)
    assert [row["first_seconds"] for row in rows] == [0.1, 2.0, 4.0]
    assert [(goal.value, goal.met) for goal in launcher.goals(rows)] == [
        (pytest.approx(0.5), True),
        (pytest.approx(1.0), True),
    ]
    assert launcher.tabulate(rows).row_count == 3


def test_a_job_that_fails_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(launcher, "WORKER", "raise SystemExit(3)")
    with pytest.raises(CannotMeasureError, match=r"0 one plain process did not run: .* exit status 3"):
        launcher.measure(rounds=1)
    monkeypatch.setenv("SLURM_CONF", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CannotMeasureError, match="there is no sbatch"):
        launcher.measure(rounds=1)
