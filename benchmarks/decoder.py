"""What may a decoder leave out before the model learns less?

    python -m benchmarks.decoder [--json] [--seeds 0,1,2] [--processes 2]

The tiny model is trained for the same number of steps with each decoder, on made surveys of five basins, and scored on
other surveys of these and of a basin it never saw: error of hidden live voxels, sqrt(Σ (predicted - true)² / Σ true²)
in normalised amplitudes with all hidden tokens decoded, and a linear probe of the frozen encoder for patches that
hold a fault, fitted on the training surveys. Beside the probe stand the same probe of raw voxels and of untrained
encoders. Every decoder of a seed starts from the same encoder and sees the same crops and visible tokens, so that
differences are paired; intervals are 95 % bootstrap over seeds and over the places of each survey. Two windows show how
the cost grows with tokens. Times are CPU seconds of one thread, the decoders in turn.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.common import Goal, Measured, positive, run, say, seeds_in
from benchmarks.memory import peak_memory
from benchmarks.trials.intervals import Draws, Logits, interval
from benchmarks.trials.surveys import TrainingCrops, made_survey
from benchmarks.trials.trial import (
    HELD_OUT,
    TRAINED,
    UNSEEN,
    Survey,
    SurveyTrial,
    fault_labels,
    probe,
    score,
    shard_of,
    train,
    train_step,
    trial_config,
)
from seismic_model.config import MODEL_SIZES, RunConfig, Triple
from seismic_model.evaluation.probes import average_precision, roc_auc
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.model.masking import TokenLayout
from seismic_model.parallel.strategies.base import adamw
from seismic_model.planner import flops_per_sample
from seismic_model.training.tokens import tokens_of

Float64Array = npt.NDArray[np.float64]
Trials = Mapping["Variant", Sequence[Mapping[Survey, SurveyTrial]]]


@dataclass(frozen=True)
class Variant:
    """A decoder, and the share of hidden tokens that it is asked for in training."""

    decoder: Literal["self", "cross"]
    decode_share: float

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.decoder}, {self.decode_share:.0%}"


@dataclass(frozen=True)
class Scale:
    """A window, and how much it is trained."""

    window: Triple
    steps: int
    batch: int

    @property
    def layout(self) -> TokenLayout:
        """Of its tokens."""
        return TokenLayout(self.window, MODEL_SIZES["tiny"].patch)


USUAL = Variant("self", 1.0)  # the decoder of He et al. 2022
CHOSEN = Variant("cross", 0.5)
VARIANTS = (USUAL, Variant("self", 0.5), Variant("cross", 1.0), CHOSEN)
SCALES = (Scale((16, 16, 32), steps=400, batch=8), Scale((24, 24, 64), steps=200, batch=2))

_ROUNDS = 9  # of timing


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoder", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--seeds", type=seeds_in, default=[0, 1, 2], metavar="0,1,2", help="one training for each")
    parser.add_argument("--processes", type=positive, default=2, metavar="N", help="trainings at a time, a thread each")
    options = parser.parse_args()
    return run("decoder", lambda: measure(options.seeds, options.processes), tabulate, as_json=options.json)


def measure(seeds: Sequence[int], processes: int = 2, scales: Sequence[Scale] = SCALES) -> Measured:
    """Train, score and time every decoder."""
    torch.set_num_threads(1)
    jobs = list(itertools.product(scales, VARIANTS, seeds))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        futures = {job: pool.submit(try_out, *job) for job in jobs}
        for number, done in enumerate(as_completed(futures.values()), start=1):
            done.result()
            say(f"{number} of {len(jobs)} trainings done")
    rows = []
    for scale in scales:
        trials = {variant: [futures[scale, variant, seed].result() for seed in seeds] for variant in VARIANTS}
        untrained = [probe(MaskedAutoencoder(MODEL_SIZES["tiny"], seed).encoder, scale.layout) for seed in seeds]
        rows += rows_of(scale, trials, untrained, costs(scale))
    return Measured(rows, goals(rows))


def try_out(scale: Scale, variant: Variant, seed: int) -> dict[Survey, SurveyTrial]:
    """Train with a decoder and score."""
    config = config_of(scale, variant, seed)
    return score(train(config), config)


def config_of(scale: Scale, variant: Variant, seed: int) -> RunConfig:
    """What a variant is trained with; all else is alike."""
    model = MODEL_SIZES["tiny"].model_copy(update={"decoder": variant.decoder})
    return trial_config(scale.window, scale.steps, scale.batch, seed, model, variant.decode_share)


def costs(scale: Scale) -> dict[Variant, dict[str, float]]:
    """FLOPs and CPU seconds of a training step of each decoder, and the bytes it holds beside weights and moments."""
    steps = {}
    for variant in VARIANTS:
        config = config_of(scale, variant, seed=0)
        model, shard = MaskedAutoencoder(config.model), shard_of(config)
        crops = TrainingCrops([made_survey(*each) for each in TRAINED[:5]], scale.window, seed=0)
        batch = tokens_of(crops.batch(0, scale.batch), config, shard)
        optimiser = adamw(dict(model.named_parameters()), config)
        steps[variant] = functools.partial(train_step, model, optimiser, batch, shard, config.gradient_clip)
        steps[variant]()  # makes gradients and moments
    seconds: dict[Variant, list[float]] = {variant: [] for variant in VARIANTS}
    for variant in itertools.chain.from_iterable(itertools.repeat(VARIANTS, _ROUNDS)):
        started = time.thread_time()
        steps[variant]()
        seconds[variant].append(time.thread_time() - started)
    found = {}
    for variant in VARIANTS:
        with peak_memory() as memory:
            steps[variant]()
        config = config_of(scale, variant, seed=0)
        flops = scale.batch * flops_per_sample(config.model, scale.window, config.keep_ratio, variant.decode_share)
        found[variant] = {
            "step_flops": float(flops),
            "step_seconds": statistics.median(seconds[variant]),
            "step_bytes": float(memory.peak_bytes),
        }
    return found


def rows_of(
    scale: Scale, trials: Trials, untrained: Sequence[Logits], paid: Mapping[Variant, dict[str, float]]
) -> list[dict[str, Any]]:
    """One row for each decoder, then the probe of what has learned nothing.

    ``error_ratio`` and ``probe_ap_gain`` are beside the usual decoder, of the same draws.
    """
    labels = {survey: fault_labels(survey, scale.layout) for survey in HELD_OUT}
    draws = Draws({survey: len(live) for survey, (_, live) in labels.items()}, seeds=len(untrained))
    unseen = [survey for survey in HELD_OUT if survey[0] == UNSEEN]
    common = {"window": scale.window, "tokens": scale.layout.tokens, "steps": scale.steps, "batch": scale.batch}
    logits = {each: [{s: t.logits_RL for s, t in trial.items()} for trial in trials[each]] for each in trials}
    usual_error = draws.error(trials[USUAL], HELD_OUT)
    usual_ap = draws.probe(logits[USUAL], labels, average_precision)
    rows = []
    for variant in trials:
        error, ap = draws.error(trials[variant], HELD_OUT), draws.probe(logits[variant], labels, average_precision)
        rows.append(
            common
            | {"decoder": variant.decoder, "decode_share": variant.decode_share}
            | {"error": error[0], "error_interval": interval(error)}
            | {"unseen_error": draws.error(trials[variant], unseen)[0]}
            | {"seed_errors": [draws.error([trial] * len(untrained), HELD_OUT)[0] for trial in trials[variant]]}
            | {"error_ratio": error[0] / usual_error[0], "error_ratio_interval": interval(error / usual_error)}
            | {"probe_auc": draws.probe(logits[variant], labels, roc_auc)[0]}
            | {"probe_ap": ap[0], "probe_ap_interval": interval(ap)}
            | {"probe_ap_gain": ap[0] - usual_ap[0], "probe_ap_gain_interval": interval(ap - usual_ap)}
            | paid[variant]
        )
    voxels = [probe(None, scale.layout)] * len(untrained)
    for name, learned_nothing in (("untrained encoder", untrained), ("raw voxels", voxels)):
        ap = draws.probe(learned_nothing, labels, average_precision)
        rows.append(
            common
            | {"decoder": name, "probe_auc": draws.probe(learned_nothing, labels, roc_auc)[0]}
            | {"probe_ap": ap[0], "probe_ap_interval": interval(ap)}
            | {"probe_ap_gain": ap[0] - usual_ap[0], "probe_ap_gain_interval": interval(ap - usual_ap)}
        )
    return rows


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """The chosen decoder beside the usual one: no worse than the margins on any window, and cheaper on the largest."""
    usual, chosen = (
        [row for row in rows if (row["decoder"], row.get("decode_share")) == (each.decoder, each.decode_share)]
        for each in (USUAL, CHOSEN)
    )
    ratio = max(row["error_ratio_interval"][1] for row in chosen)
    gain = min(row["probe_ap_gain_interval"][0] for row in chosen)
    faster = usual[-1]["step_seconds"] / chosen[-1]["step_seconds"]
    smaller = chosen[-1]["step_bytes"] / usual[-1]["step_bytes"]
    name, unit = f"decoder {CHOSEN.name}", "of the usual decoder's"
    return [
        Goal(f"{name}: held-out error, upper end of 95 %, worst window", ratio, unit, 1.02, "lower"),
        Goal(f"{name}: gain of the probe's average precision, lower end, worst window", gain, "", -0.02, "higher"),
        Goal(f"{name}: steps a second, largest window", faster, unit, 1.5, "higher"),
        Goal(f"{name}: bytes of a step, largest window", smaller, unit, 0.7, "lower"),
    ]


def tabulate(rows: list[dict[str, Any]]) -> Table:
    """Rows as people read them."""
    columns = ("tokens", "decoder", "error", "of the usual", "95 %", "unseen basin", "probe AP", "gain", "95 %", "AUC")
    table = Table(*columns, "GFLOP", "s", "MiB", box=SIMPLE_HEAD)
    table.caption = "GFLOP, CPU seconds and MiB: of one training step. AP: average precision of the probe for faults"
    for row in rows:
        trained = "error" in row
        table.add_row(
            str(row["tokens"]),
            f"{row['decoder']}, {row['decode_share']:.0%}" if trained else row["decoder"],
            f"{row['error']:.4f}" if trained else "",
            f"{row['error_ratio']:.4f}" if trained else "",
            "{:.3f} to {:.3f}".format(*row["error_ratio_interval"]) if trained else "",
            f"{row['unseen_error']:.4f}" if trained else "",
            f"{row['probe_ap']:.4f}",
            f"{row['probe_ap_gain']:+.4f}",
            "{:+.3f} to {:+.3f}".format(*row["probe_ap_gain_interval"]),
            f"{row['probe_auc']:.4f}",
            f"{row['step_flops'] / 1e9:.2f}" if trained else "",
            f"{row['step_seconds']:.3f}" if trained else "",
            f"{row['step_bytes'] / 2**20:.1f}" if trained else "",
            end_section=row["decoder"] == "raw voxels",
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
