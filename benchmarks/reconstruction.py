"""Does the demo's model learn more than filling in between what it sees?

    python -m benchmarks.reconstruction [--json] [--seeds 0,1,2] [--steps N]

The surveys of the demo's first week go onto an embedded S3 and through ingestion, validation and freeze as the weekly
flow does it; then the recipe of ``flows/demo.yaml`` is trained once per seed by torchrun, and the best checkpoint
of each run is scored on the test half of the held-out regions. Errors are in amplitude space,
sqrt(Σ (predicted - true)² / Σ true²) over hidden live voxels, beside methods that learn nothing. A seed draws
weights, crops and masks of the training anew; surveys, held-out places and the masks of the scoring stay.
``--steps`` trains for another time than the recipe's: a try, not the demo.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.common import CannotMeasureError, Goal, Measured, positive, run, say, seeds_in
from flows import demo, steps, surveys
from flows.launchers.local import LocalLauncher
from flows.settings import SettingsError
from flows.training import TrainingFailedError, job_key, train
from flows.week import Request, run_name
from ingestion.embedded_s3 import BUCKET, serve
from ingestion.lake import Lake, LakeError
from seismic_model.data.dataset import load_dataset
from seismic_model.evaluation.gate import gate
from seismic_model.evaluation.scores import BASELINES, Evaluation, EvaluationError
from seismic_model.train import read_config
from seismic_model.training.metrics import read_metrics

if TYPE_CHECKING:
    from seismic_model.config import RunConfig

GOAL = 0.10  # share of the baseline's error
SIZE = "tiny"
WEEK = "2026-W01"  # a label
MEAN = "mean"  # of the surveys that are not held out, as the gate counts


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reconstruction", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--seeds", type=seeds_in, default=[0, 1, 2], metavar="0,1,2", help="one training run for each")
    parser.add_argument(
        "--steps", type=positive, metavar="N", help="a try with N steps, which is not the demo's recipe"
    )
    options = parser.parse_args()
    return run("reconstruction", lambda: measure(options.seeds, options.steps), tabulate, as_json=options.json)


def measure(seeds: Sequence[int], training_steps: int | None = None) -> Measured:
    """Train and score once per seed. Raises ``CannotMeasureError``."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # these runs are for figures, not for anyone's registry
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    try:
        with tempfile.TemporaryDirectory(prefix="reconstruction-") as scratch, serve(Path(scratch) / "s3"):
            lake = Lake(f"s3://{BUCKET}/reconstruction")
            asked = request_of(lake, training_steps)
            take_in_surveys(asked, Path(scratch))
            dataset = freeze_surveys(asked)
            launcher = LocalLauncher(Path(scratch) / "jobs")
            rows = [row for seed in seeds for row in _measure_seed(asked, seed, dataset, launcher)]
    except (LakeError, SettingsError, TrainingFailedError, EvaluationError) as error:
        raise CannotMeasureError(str(error)) from error
    return Measured(rows, goals(rows))


def request_of(lake: Lake, training_steps: int | None) -> Request:
    """The demo's first week, from new weights."""
    settings = yaml.safe_load((demo.FLOWS / "demo.yaml").read_text())
    settings["start_from"] = "scratch"
    if training_steps is not None:
        settings["recipes"][SIZE]["steps"] = training_steps
    asked = {"week": WEEK, "surveys": "", "size": SIZE, "launcher": "local", "seed": 0, "force": False}
    return steps.request({"lake": lake.uri, **asked}, settings)


def take_in_surveys(asked: Request, scratch: Path) -> None:
    """The surveys of the demo's first week, published and passed by validation. Raises ``CannotMeasureError``."""
    lake = Lake(asked.lake)
    for basin in demo.new_basins(1):
        file = demo.make_file(basin, 1, scratch)
        lake.write(f"incoming/{file.name}", file)
        file.unlink()
    for work in surveys.find_work(asked):
        outcome = surveys.judge(lake.uri, surveys.take_in(asked, work))
        say(f"{outcome.survey}: {outcome.status}")
        if outcome.status != "passed":
            reasons = "; ".join(f"{finding.code}: {finding.found}" for finding in outcome.findings)
            raise CannotMeasureError(f"made survey {outcome.survey} is {outcome.status}, expected passed: {reasons}")


def freeze_surveys(asked: Request) -> str:
    """Key of the week's frozen data set. Raises ``CannotMeasureError``."""
    dataset, why_not = steps.freeze_week(asked)
    if dataset is None:
        raise CannotMeasureError(f"{why_not}; the split of flows/demo.yaml has to leave places to train on")
    return dataset


def _measure_seed(asked: Request, seed: int, dataset: str, launcher: LocalLauncher) -> list[dict[str, Any]]:
    asked = asked.model_copy(update={"seed": seed})
    lake = Lake(asked.lake)
    config = read_config(steps.plan(asked, dataset, run_name(asked, lake)))
    with _ended(launcher, lake, config):
        train(config, asked.settings.recipe(SIZE).processes, launcher, _Progress(seed))
    seconds = sum(entry["seconds"] for entry in read_metrics(lake, config.run))
    return rows_of(config, _score(lake, config), seconds)


@contextmanager
def _ended(launcher: LocalLauncher, lake: Lake, config: RunConfig) -> Iterator[None]:
    """Leave no training behind when the block is interrupted."""
    try:
        yield
    finally:
        launcher.cancel(job_key(lake, config.run))


@dataclass(frozen=True)
class _Progress:
    """Training on the terminal."""

    seed: int

    def update(self, metrics: list[dict[str, Any]]) -> None:
        entry = metrics[-1]
        self.say(f"step {entry['step']}: loss {entry['loss']:.4f}, {entry['seconds']:.3f} s a step")

    def say(self, words: str) -> None:
        say(f"seed {self.seed}, {words}")


def _score(lake: Lake, config: RunConfig) -> Evaluation:
    from seismic_model.evaluation.reconstruction import best_checkpoint, evaluate  # torch

    frozen = load_dataset(lake, config.dataset, config.dataset_sha256)
    return evaluate(lake, config, frozen, best_checkpoint(lake, config, frozen))


def rows_of(config: RunConfig, scored: Evaluation, seconds: float) -> list[dict[str, Any]]:
    """One row per survey and one for the mean over those that are not held out; ``step`` is the best checkpoint's.

    ``gain`` is 1 - error / error of the best baseline of that row (in the mean row the single baseline with the
    lowest mean), its interval 95 % bootstrap over places; ``gain_each`` of the mean row is against the mean of each
    survey's own best baseline.
    """
    decision = gate(scored, None, margin=0, survey_tolerance=0)
    common = {"seed": config.seed, "steps": config.steps, "step": scored.step, "train_seconds": seconds}
    rows: list[dict[str, Any]] = []
    for survey, compared in zip(scored.surveys, decision.surveys, strict=True):
        score = survey.scores["model"]
        rows.append(
            common
            | {"survey": survey.survey, "held_out": survey.unseen, "regions": len(survey.regions)}
            | {"error": score.error, "interval": [score.error_interval.low, score.error_interval.high]}
            | {"baselines": {name: survey.scores[name].error for name in BASELINES}}
            | {"best_baseline": survey.best_baseline, "gain": compared.gain}
            | {"gain_interval": [compared.gain_interval.low, compared.gain_interval.high]}
        )
    means = {name: scored.mean_error(name) for name in BASELINES}
    best = min(BASELINES, key=lambda name: means[name])
    rows.append(
        common
        | {"survey": MEAN, "held_out": False, "regions": sum(len(survey.regions) for survey in scored.judged)}
        | {"error": scored.mean_error(), "baselines": means, "best_baseline": best}
        | {"gain": 1 - scored.mean_error() / means[best], "gain_each": decision.gain}
        | {"gain_each_interval": [decision.gain_interval.low, decision.gain_interval.high]}
    )
    return rows


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """The gains of the worst seed. Raises ``CannotMeasureError`` when no held-out basin was scored."""
    held_out = [row["gain"] for row in rows if row["held_out"]]
    if not held_out:
        raise CannotMeasureError("no held-out basin was scored; name one in split.held_out_surveys of flows/demo.yaml")
    means = [row["gain"] for row in rows if row["survey"] == MEAN]
    unit = "of the baseline's error"
    return [
        Goal("mean gain over the best single baseline, worst seed", min(means), unit, GOAL, "higher"),
        Goal("gain over the best baseline on a held-out basin, worst seed", min(held_out), unit, GOAL, "higher"),
    ]


def tabulate(rows: list[dict[str, Any]]) -> Table:
    """Rows as people read them: errors, and gains in per cent."""
    table = Table("seed", "survey", "regions", "step", "error", "95 %", *BASELINES, "gain", "95 %", box=SIMPLE_HEAD)
    table.caption = (
        "gain: 1 - error / error of the row's best baseline. mean: of surveys that are not held out; its gain is over "
        "the single baseline with the lowest mean, then over each survey's own best"
    )
    for row in rows:
        mean = row["survey"] == MEAN
        table.add_row(
            str(row["seed"]),
            row["survey"] + (" (held out)" if row["held_out"] else ""),
            str(row["regions"]),
            f"{row['step']}/{row['steps']}",
            f"{row['error']:.3f}",
            "" if mean else "{:.3f} to {:.3f}".format(*row["interval"]),
            *(f"{row['baselines'][name]:.3f}" for name in BASELINES),
            f"{row['gain']:+.1%}",
            f"each: {row['gain_each']:+.1%}" if mean else "{:+.1%} to {:+.1%}".format(*row["gain_interval"]),
            end_section=mean,
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
