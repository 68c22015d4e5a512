"""``sfm strategies``: train a few steps under each strategy, and say which is fastest here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import click
from obstore.exceptions import BaseError
from pydantic import ValidationError

from ingestion.lake import Lake, LakeError
from seismic_model.comparison.table import Comparison, Found, Row, read_comparison
from seismic_model.config import MODEL_SIZES, Checkpointing, RunConfig, StrategyName
from seismic_model.data.sampling import check_processes
from seismic_model.options import Between, Voxels
from seismic_model.train import ConfigError, read_config

_STRATEGIES = get_args(StrategyName)
_count = click.IntRange(min=1)
_checkpointing = click.Choice(get_args(Checkpointing))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", "uri", metavar="URI", help="A run's config.json: its model, batch and data set.")
@click.option(
    "--model", "size", type=click.Choice(list(MODEL_SIZES)), help="Without --config: a model, fed with noise."
)
@click.option("--window", type=Voxels(), help="With --model: voxels of a crop, e.g. 640x640x1024.")
@click.option("--batch", type=_count, help="With --model: crops in a step, over all processes and micro-batches.")
@click.option("--accumulation", type=_count, help="With --model: micro-batches in a step.")
@click.option("--cp", type=_count, help="With --model: processes that share a crop.")
@click.option("--ulysses", type=_count, help="With --model: of these, how many share heads.")
@click.option("--precision", type=click.Choice(["bfloat16", "float32"]), help="With --model.")
@click.option("--decode-share", type=Between(0, 1, min_open=True), help="With --model: of hidden tokens.")
@click.option("--checkpointing", "activation_checkpointing", type=_checkpointing, help="With --model.")
@click.option("--processes", required=True, type=_count, help="To start on this machine: its GPUs.")
@click.option("--strategy", "chosen", multiple=True, type=click.Choice(_STRATEGIES), help="Some only. Default: all.")
@click.option("--steps", type=_count, default=5, show_default=True, help="To time, twice each.")
@click.option("--lake", metavar="URI", help="Where the table is kept. Default: the lake of --config.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.argument("torchrun", nargs=-1, type=click.UNPROCESSED)
def strategies(
    uri: str | None,
    size: str | None,
    processes: int,
    chosen: tuple[StrategyName, ...],
    steps: int,
    lake: str | None,
    as_json: bool,
    torchrun: tuple[str, ...],
    **given: Any,
) -> None:
    """Train a few steps under each strategy on the machines at hand: samples/s, tokens/s, peak memory, parts of a step.

    \b
    sfm strategies --config s3://LAKE/runs/RUN/config.json --processes 8
    sfm strategies --model large --window 640x640x1024 --batch 16 --cp 8 --precision bfloat16 --processes 8

    Several machines: the same command on each, with what torchrun needs to find the others after `--`. Number the
    machines, since the one that has process 0 has the table, and it has to be the same one for every strategy:

    \b
    sfm strategies … --processes 8 -- --nnodes=16 --node-rank=NUMBER --master-addr=HEAD --master-port=29500

    The table is kept on the lake, where a recipe with `strategy: auto` finds the fastest. Measured with --strategy, it
    joins what was found there of the others on the same machines.

    Exit status: 0 when any strategy ran, 1 when none did, 2 for options that make no sense.
    """
    try:
        config = _config(uri, size, given)
        into = Lake(lake or config.lake) if lake or uri else None
        if into:
            into.check()
        if torchrun and not torchrun[0].startswith("-"):
            raise click.UsageError(f"{torchrun[0]!r} is no option of torchrun; expected e.g. -- --nnodes=16")
        if not torchrun:
            check_processes(config, processes)  # with torchrun's options it alone knows how many there will be
    except ValidationError as error:
        raise click.UsageError(_faults(error)) from error
    except (ConfigError, LakeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    except BaseError as error:
        raise click.ClickException(str(error).split("\n\nDebug source")[0]) from error
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen or _STRATEGIES:
            click.echo(f"{name} …", err=True)
            found.append(_measure(config, name, processes, steps, uri is None, torchrun, Path(folder)))
    here = [each for each in found if each is not None]
    if not here:
        click.echo("process 0 runs on another machine, which has the table")
        return
    comparison = Comparison(
        config=config,
        processes=max(each.processes for each in here),
        device=max(each.device for each in here),
        versions={name: version(name) for name in ("torch", "deepspeed")},
        data="data set" if uri else "made crops",
        steps=steps,
        rows=[each.row for each in here],
        created=datetime.now(UTC),
    )
    click.echo(comparison.to_bytes().decode() if as_json else _text(comparison))
    if comparison.winner is None:
        sys.exit(1)
    if into:
        earlier = read_comparison(into, comparison.key)
        into.write(comparison.key, (comparison.with_rows_of(earlier) if earlier else comparison).to_bytes())
        click.echo(f"kept as {into.uri_of(comparison.key)}", err=True)


def _config(uri: str | None, size: str | None, given: dict[str, Any]) -> RunConfig:
    """That of ``--config``, or one made of the other options. Raises ``ValueError`` for what makes no sense."""
    asked = {name: value for name, value in given.items() if value is not None}
    if uri is not None:
        if size or asked:
            raise ValueError("--config says all about the run; give it, or --model and what belongs to it")
        return read_config(uri)
    if size is None or not {"window", "batch"} <= asked.keys():
        raise ValueError("give --config, or --model, --window and --batch")
    unused = {"lake": "", "run": "strategies", "dataset": "", "dataset_sha256": "0" * 64, "steps": 1}
    return RunConfig.model_validate(unused | asked | {"model": MODEL_SIZES[size]})


def _measure(
    config: RunConfig,
    strategy: StrategyName,
    processes: int,
    steps: int,
    made: bool,
    torchrun: tuple[str, ...],
    folder: Path,
) -> Found | None:
    """What one strategy came to; None where process 0 runs on another machine."""
    told, out = folder / f"{strategy}.json", folder / f"{strategy}.found"
    try:
        told.write_bytes(RunConfig.model_validate(config.model_dump() | {"strategy": strategy}).to_bytes())
    except ValidationError as error:
        return _failed(strategy, _faults(error))
    meeting = (*torchrun, f"--rdzv-id=strategies-{strategy}") if torchrun else ("--standalone",)
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", *meeting]
    command += ["-m", "seismic_model.comparison.measure", f"--config={told}", f"--steps={steps}", f"--out={out}"]
    done = subprocess.run(
        command + ["--made"] * made,
        env={"OMP_NUM_THREADS": "1", **os.environ},  # what torchrun would choose, and say so each time
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if out.exists():
        return Found.model_validate_json(out.read_bytes())
    if done.returncode == 0:
        return None
    return _failed(strategy, _fault(done.stderr))


def _failed(strategy: StrategyName, fault: str) -> Found:
    return Found(processes=0, device="", row=Row(strategy=strategy, fault=fault))


def _faults(error: ValidationError) -> str:
    return "; ".join(fault["msg"] for fault in error.errors())


def _fault(log: str) -> str:
    """The first error of a log, else its end."""
    errors = [line for line in log.splitlines() if re.search(r"^(\[rank\d+\]: *)?[\w.]*(Error|Exception)\b", line)]
    return (errors or log.strip().splitlines() or ["no log"])[0 if errors else -1][:300]


def _text(comparison: Comparison) -> str:
    titles = ("strategy", "samples/s", "tokens/s", "peak GiB", "data", "forward", "backward", "reduce+step")
    lines = [f"{titles[0]:10}" + "".join(f"{title:>13}" for title in titles[1:])]
    for row in sorted(comparison.rows, key=lambda row: -row.samples_per_second):
        if row.fault or row.seconds is None:
            lines.append(f"{row.strategy:10} failed: {row.fault}")
            continue
        speed = f"{row.samples_per_second:13.3f}{row.tokens_per_second:13,.0f}{row.peak_memory / 2**30:13.2f}"
        parts = "".join(f"{seconds:11.4f} s" for seconds in row.seconds.model_dump().values())
        lines.append(f"{row.strategy:10}{speed}{parts}")
    if comparison.winner:
        how = f"{comparison.data}, {comparison.steps} steps"
        lines.append(f"{comparison.processes} processes on {comparison.device}, {how}; fastest: {comparison.winner}")
    return "\n".join(lines)
