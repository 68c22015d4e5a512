"""``sfm plan``: what a training run would take, and whether it fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from seismic_model.config import DECODE_SHARE, MODEL_SIZES, Checkpointing, StrategyName, Triple, check_window
from seismic_model.options import Between, Voxels
from seismic_model.planner.assumptions import DEFAULT, AssumptionsError, read_machine
from seismic_model.planner.layout import Choice, Precision
from seismic_model.planner.report import facts, text
from seismic_model.planner.search import PlanError, best, largest

if TYPE_CHECKING:
    from seismic_model.config import ModelConfig


_share = Between(min=0, max=1, min_open=True)
_count = click.IntRange(min=1, max=10**6)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", "size", required=True, type=click.Choice(list(MODEL_SIZES), case_sensitive=False))
@click.option("--window", type=Voxels(), help="Voxels of one crop, e.g. 1536x1536x2048.")
@click.option("--largest", "want_largest", is_flag=True, help="Find the largest window instead.")
@click.option("--shape", type=Voxels(), default="3x3x4", show_default=True, help="With --largest: its proportions.")
@click.option("--gpus", required=True, type=_count, help="How many there are.")
@click.option("--gpu", default="h200", show_default=True, help="Their kind, one of the file of assumptions.")
@click.option("--decoder", type=click.Choice(["self", "cross"]), help="Default: the model size's own.")
@click.option("--keep", type=Between(0, 1, min_open=True, max_open=True), default=0.25, show_default=True)
@click.option("--decode-share", type=_share, default=DECODE_SHARE, show_default=True, help="Of hidden tokens.")
@click.option("--strategy", type=click.Choice(get_args(StrategyName)), help="Default: the fastest that fits.")
@click.option("--checkpointing", type=click.Choice(get_args(Checkpointing)), help="Default: the fastest that fits.")
@click.option("--cp", type=_count, help="GPUs that share a crop. Default: the fastest that fits.")
@click.option("--ulysses", type=_count, help="Of these, how many share heads; the rest are a ring.")
@click.option("--batch", type=_count, help="Crops a step. Default: one for each group that shares a crop.")
@click.option("--accumulation", type=_count, help="Micro-batches a step. Default: the fastest that fits.")
@click.option("--precision", type=click.Choice(get_args(Precision)), default="bfloat16", show_default=True)
@click.option("--ema", is_flag=True, help="Keep averaged weights too.")
@click.option("--samples", type=click.IntRange(1, 10**15), help="Crops to train on: gives days and price.")
@click.option("--price-per-gpu-hour", type=Between(0, 10**6, min_open=True), metavar="USD")
@click.option(
    "--assumptions", type=click.Path(path_type=Path), default=DEFAULT, help="Your own numbers; see docs/planner.md."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def plan(  # one argument an option
    size: str,
    window: Triple | None,
    want_largest: bool,
    shape: Triple,
    gpus: int,
    gpu: str,
    decoder: str | None,
    keep: float,
    decode_share: float,
    samples: int | None,
    price_per_gpu_hour: float | None,
    assumptions: Path,
    as_json: bool,
    ema: bool,
    **fixed: Any,
) -> None:
    """Say what a training run takes before anything is launched: memory, FLOPs, communication, time and price.

    \b
    sfm plan --model 1.8b --window 1536x1536x2048 --gpus 128 --samples 100000
    sfm plan --model huge --gpus 8 --largest

    What is not fixed is chosen: the fastest layout that fits. It is arithmetic with assumptions, which are printed.

    Exit status: 0 when it fits, 1 when it does not, with what would; 2 for options that make no sense.
    """
    from seismic_model.planner.forecast import Task

    if (window is None) != want_largest:
        raise click.UsageError("give either --window or --largest")
    model: ModelConfig = MODEL_SIZES[size]
    if decoder is not None:
        model = model.model_copy(update={"decoder": decoder})
    try:
        if window is not None:
            check_window(model, window, keep)
        machine = read_machine(gpu, assumptions, price_per_gpu_hour)
        task = Task(model, window or model.patch, keep, decode_share, ema)
        choice = Choice(**fixed)
        found = largest(task, gpus, machine, choice, shape) if window is None else best(task, gpus, machine, choice)
    except PlanError as error:
        raise click.ClickException(str(error)) from error
    except (AssumptionsError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    said = facts(found, samples)
    click.echo(json.dumps(said, indent=2) if as_json else text(said))
