"""What does a training step cost beside the usual ways of writing it, and how fast does it learn?

    python -m benchmarks.step [--json] [--seeds 0,1]

A step goes from voxels to updated weights: patches, masks, forward, backward, clipping, AdamW. Beside ours stand
``VideoMAEForPreTraining`` of Hugging Face and a plain transcription of the MAE recipe (``benchmarks.references``), with
the same width, depth, heads, decoder, tokens, keep ratio, batch, optimiser and float32. All run in one process with one
thread; times are CPU seconds of that thread, so that other work on the machine counts little, the contenders take
turns, and ratios are taken within a turn. Bytes are those of all tensors of a contender, weights, gradients and
moments included, at the worst moment of two steps.

Two sizes: ``wide`` is a small ViT at 1568 tokens of 16³ voxels, on noise; ``made`` is the demo's model on made surveys,
where each contender is also trained, two at a time, and scored on held-out surveys: mean squared error of hidden
patches, each normalised, all hidden ones, the same masks for all; 1 is what saying nothing gets. The time to an error
is the median step time × the steps until the mean held-out error of the seeds is as low; the error is that of the
reference that gets lowest, and that of our own model with equal work. Ours and the references have learning rates of
their own to choose the best of, and the references more steps, since they learn nothing in ours.
"""

from __future__ import annotations

import argparse
import functools
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor

from benchmarks.common import Goal, Measured, run, say, seeds_in
from benchmarks.memory import peak_memory
from benchmarks.references.contenders import Contender, Ours, PlainRecipe, VideoMae
from benchmarks.trials.surveys import MadeSurvey, made_survey
from benchmarks.trials.trial import HELD_OUT, TRAINED, trial_config
from seismic_model.config import MODEL_SIZES, ModelConfig, RunConfig, Triple
from seismic_model.data.store import FloatArray
from seismic_model.model.masking import Masking, Masks, Shard, TokenLayout
from seismic_model.parallel.strategies.base import adamw
from seismic_model.training.loop import learning_rate

EQUAL, DEFAULT = "ours, equal work", "ours, default decoder"
REFERENCES = (PlainRecipe.name, VideoMae.name)
EVERY = 25  # steps between scores
HELD_OUT_CROPS = 48
SCORING = 2**32  # seed of held-out crops and masks; no training has it

Row = dict[str, Any]


@dataclass(frozen=True)
class Schedule:
    """How long a contender is trained, and the learning rates that are tried."""

    steps: int
    rates: tuple[float, ...]


OURS, THEIRS = Schedule(300, (1e-3, 3e-3)), Schedule(1000, (3e-4, 1e-3))
SCHEDULES = {EQUAL: OURS, DEFAULT: OURS} | dict.fromkeys(REFERENCES, THEIRS)


@dataclass(frozen=True)
class Work:
    """What all contenders do alike."""

    name: str
    model: ModelConfig
    window: Triple
    batch: int
    rounds: int  # of timing
    learns: bool  # whether contenders are trained

    def config(self, steps: int = 1, rate: float = 1e-3, seed: int = 0) -> RunConfig:
        """As a run would be configured."""
        config = trial_config(self.window, steps, self.batch, seed, self.model)
        return config.model_copy(update={"learning_rate": rate, "final_learning_rate": rate / 100})


WIDE = Work(
    name="wide",
    model=ModelConfig(
        width=384, depth=12, heads=6, decoder_width=192, decoder_depth=4, decoder_heads=3, patch_normalisation=True
    ),
    window=(128, 224, 224),
    batch=4,
    rounds=5,
    learns=False,
)
MADE = Work(
    name="made",
    model=MODEL_SIZES["tiny"].model_copy(update={"patch_normalisation": True}),
    window=(16, 16, 32),
    batch=8,
    rounds=25,
    learns=True,
)


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument(
        "--seeds", type=seeds_in, default=[0, 1], metavar="0,1", help="a training of each contender for each"
    )
    options = parser.parse_args()
    return run("step", lambda: measure(options.seeds), tabulate, as_json=options.json)


def measure(seeds: Sequence[int], works: Sequence[Work] = (WIDE, MADE)) -> Measured:
    """Time and weigh every contender at each size, and train them where it says so."""
    torch.set_num_threads(1)
    rows = [row for work in works for row in measure_work(work, seeds)]
    return Measured(rows, goals(rows))


def measure_work(work: Work, seeds: Sequence[int]) -> list[Row]:
    """One row a contender."""
    makers = makers_of(work)
    peaks = {name: peak_bytes(make, work) for name, make in makers.items()}
    seconds = take_turns(makers, work)
    rows: list[Row] = [
        {"work": work.name, "contender": name, "seconds": statistics.median(seconds[name]), "peak_bytes": peaks[name]}
        | {"ratios": {other: ratio(seconds[other], seconds[name]) for other in makers if other != name}}
        for name in makers
    ]
    if work.learns:
        jobs = [(name, rate, seed) for name in makers for rate in SCHEDULES[name].rates for seed in seeds]
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
            learned = dict(zip(jobs, pool.map(functools.partial(learn, work), *zip(*jobs, strict=True)), strict=True))
        for row in rows:
            name = str(row["contender"])
            row["curves"] = {str(r): [learned[name, r, seed] for seed in seeds] for r in SCHEDULES[name].rates}
    return rows


def makers_of(work: Work) -> dict[str, Callable[[int], Contender]]:
    """The contenders, by seed."""
    model, keep = work.model, work.config().keep_ratio
    usual = model.model_copy(update={"decoder": "self"})
    default = RunConfig.model_fields["decode_share"].default
    return {
        EQUAL: lambda seed: Ours(usual, work.window, keep, 1.0, seed),
        DEFAULT: lambda seed: Ours(model, work.window, keep, default, seed),
        PlainRecipe.name: lambda seed: PlainRecipe(usual, work.window, keep, seed),
        VideoMae.name: lambda seed: VideoMae(usual, work.window, keep, seed),
    }


class Training:
    """A contender and its optimiser."""

    def __init__(self, contender: Contender, config: RunConfig) -> None:
        self.contender, self.config, self.done = contender, config, 0
        self.optimiser = adamw(dict(contender.model.named_parameters()), config)

    def step(self, crops_BIXZ: Tensor) -> None:
        """From voxels to updated weights."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.config, self.done)
        self.optimiser.zero_grad()
        self.contender.loss(crops_BIXZ, self.done).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.contender.model.parameters(), self.config.gradient_clip)
        self.optimiser.step()
        self.done += 1


def peak_bytes(make: Callable[[int], Contender], work: Work) -> int:
    """Of all tensors of a contender in two steps, but for the crops."""
    crops_BIXZ = torch.randn(work.batch, *work.window)
    with peak_memory() as memory:
        training = Training(make(0), work.config())
        for _ in range(2):
            training.step(crops_BIXZ)
    return memory.peak_bytes


def take_turns(makers: Mapping[str, Callable[[int], Contender]], work: Work) -> dict[str, list[float]]:
    """CPU seconds of each contender's steps, the first left out."""
    trainings = {name: Training(make(0), work.config()) for name, make in makers.items()}
    crops_BIXZ = torch.randn(work.batch, *work.window)
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    for turn in range(work.rounds + 1):
        for name, training in trainings.items():
            began = time.thread_time()
            training.step(crops_BIXZ)
            seconds[name].append(time.thread_time() - began)
        say(f"{work.name}, turn {turn}: " + ", ".join(f"{name} {each[-1]:.3f} s" for name, each in seconds.items()))
    return {name: each[1:] for name, each in seconds.items()}


def ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """Median over turns of first / second."""
    return statistics.median(a / b for a, b in zip(first, second, strict=True))


def learn(work: Work, name: str, rate: float, seed: int) -> list[float]:
    """Held-out error after every ``EVERY`` steps."""
    steps = SCHEDULES[name].steps
    training = Training(makers_of(work)[name](seed), work.config(steps, rate, seed))
    surveys = [made_survey(*each) for each in TRAINED]
    held_out_BIXZ, masks = _held_out(work)
    drawn, errors = np.random.default_rng(seed), []
    for done in range(1, steps + 1):
        training.step(live_crops(drawn, surveys, work.window, work.batch))
        if done % EVERY == 0:
            with torch.inference_mode():
                errors.append(training.contender.error(held_out_BIXZ, masks))
    say(f"{work.name}, {name}, rate {rate:g}, seed {seed}: {errors[-1]:.4f}")
    return errors


def live_crops(drawn: np.random.Generator, surveys: Sequence[MadeSurvey], window: Triple, count: int) -> Tensor:
    """Crops (count, I, X, Z) without a dead trace, surveys and places equally likely."""
    crops: list[FloatArray] = []
    while len(crops) < count:
        survey = surveys[int(drawn.integers(len(surveys)))]
        i, x, z = (drawn.integers(n - w + 1) for n, w in zip(survey.values_IXZ.shape, window, strict=True))
        if survey.live_IX[i : i + window[0], x : x + window[1]].all():
            crops.append(survey.values_IXZ[i : i + window[0], x : x + window[1], z : z + window[2]])
    return torch.from_numpy(np.stack(crops))


@functools.cache
def _held_out(work: Work) -> tuple[Tensor, Masks]:
    surveys = [made_survey(*each) for each in HELD_OUT]
    crops_BIXZ = live_crops(np.random.default_rng(SCORING), surveys, work.window, HELD_OUT_CROPS)
    masking = Masking(work.config().keep_ratio, SCORING)
    return crops_BIXZ, Shard.of(TokenLayout(work.window, work.model.patch), masking).draw(0, range(HELD_OUT_CROPS))


def goals(rows: Sequence[Row]) -> list[Goal]:
    """Beside the faster reference at each size; time to its error where contenders were trained."""
    found = []
    for name in dict.fromkeys(row["work"] for row in rows):
        by = {row["contender"]: row for row in rows if row["work"] == name}
        rival = min((by[each] for each in REFERENCES), key=lambda row: row["seconds"])
        against, ours, lean = rival["contender"], by[EQUAL], by[DEFAULT]
        found += [
            Goal(f"{name}, equal work, speed beside {against}", ours["ratios"][against], "times", 1.05, "higher"),
            Goal(f"{name}, equal work, memory", ours["peak_bytes"] / rival["peak_bytes"], "of its peak", 0.9, "lower"),
            Goal(f"{name}, default, memory", lean["peak_bytes"] / rival["peak_bytes"], "of its peak", 0.7, "lower"),
        ]
        if "curves" in rival:
            taught = min((by[each] for each in REFERENCES), key=lambda row: mean_curve(row)[-1])
            for other in (taught, ours):
                faster = time_to_error(other, other) / time_to_error(lean, other)
                wanted = f"{name}, default, speed to the error of {other['contender']}"
                found.append(Goal(wanted, faster, "times", 1.5, "higher"))
    return found


def best_rate(row: Row) -> str:
    """The learning rate with the lowest mean error at the end."""
    curves: dict[str, list[list[float]]] = row["curves"]
    return min(curves, key=lambda rate: statistics.mean(curve[-1] for curve in curves[rate]))


def time_to_error(row: Row, rival: Row) -> float:
    """Seconds until the mean curve of ``row`` is as low as that of ``rival`` at its end; infinite when it never is."""
    wanted = mean_curve(rival)[-1]
    reached = [number for number, error in enumerate(mean_curve(row), start=1) if error <= wanted]
    return reached[0] * EVERY * row["seconds"] if reached else math.inf


def mean_curve(row: Row) -> list[float]:
    """Held-out error over seeds, with the best learning rate."""
    return [statistics.mean(errors) for errors in zip(*row["curves"][best_rate(row)], strict=True)]


def tabulate(rows: Sequence[Row]) -> Table:
    """Rows as people read them."""
    table = Table("work", "contender", "s a step", "speed", "peak MiB", "error", "steps", "rate", box=SIMPLE_HEAD)
    table.caption = f"speed: step time of {EQUAL} over that of the row; error: held out, after these steps, each seed"
    for row in rows:
        speed = row["ratios"].get(EQUAL)
        cells = [row["work"], row["contender"], f"{row['seconds']:.3f}", "" if speed is None else f"{speed:.2f}"]
        cells.append(f"{row['peak_bytes'] / 2**20:.0f}")
        if "curves" in row:
            best = row["curves"][rate := best_rate(row)]
            cells += [", ".join(f"{curve[-1]:.4f}" for curve in best), str(len(best[0]) * EVERY), rate]
        table.add_row(*cells)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
