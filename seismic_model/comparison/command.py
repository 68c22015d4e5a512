"""``sfm strategies``: train a few steps under each strategy, and say which is fastest here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from obstore.exceptions import BaseError
from pydantic import ValidationError

from ingestion.lake import Lake, LakeError
from ingestion.names import store_message
from seismic_model.comparison.table import Comparison, Found, Row, read_comparison
from seismic_model.config import MODEL_SIZES, Checkpointing, RunConfig, StrategyName
from seismic_model.data.sampling import check_processes
from seismic_model.options import Between, Voxels
from seismic_model.train import ConfigError, die_with_parent, read_config

if TYPE_CHECKING:
    from seismic_model.comparison.machines import Machines

_STRATEGIES = get_args(StrategyName)
_LOOK = 0.2  # seconds between looks at what runs
_LIMIT = 1800  # seconds for one strategy, which may hang
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
@click.option("--machines", type=_count, default=1, show_default=True, help="That each are given this command.")
@click.option("--machine", "number", type=click.IntRange(min=0), default=0, help="Number of this one, from 0.")
@click.option("--head", metavar="HOST", help="Name of machine 0, where it keeps the table.")
@click.option(
    "--port",
    type=click.IntRange(1024, 65000),
    default=29500,
    show_default=True,
    help="Free on HOST, as are the next ones.",
)
def strategies(
    uri: str | None,
    size: str | None,
    processes: int,
    chosen: tuple[StrategyName, ...],
    steps: int,
    lake: str | None,
    as_json: bool,
    machines: int,
    number: int,
    head: str | None,
    port: int,
    **given: Any,
) -> None:
    """Train a few steps under each strategy on the machines at hand: samples/s, tokens/s, peak memory, parts of a step.

    \b
    sfm strategies --config s3://LAKE/runs/RUN/config.json --processes 8
    sfm strategies --model large --window 640x640x1024 --batch 16 --cp 8 --precision bfloat16 --processes 8

    Several machines: the same command on each, numbered. Machine 0 prints and keeps the table.

    \b
    sfm strategies … --processes 8 --machines 16 --machine NUMBER --head HOST

    The table is kept on the lake, where a recipe with `strategy: auto` finds the fastest. Measured with --strategy, it
    joins what was found there of the others on the same machines.

    Exit status: 0 when any strategy ran, 1 when none did, 2 for options that make no sense.
    """
    try:
        config = _config(uri, size, given)
        into = Lake(lake or config.lake) if lake or uri else None
        if into:
            into.check()
        if number >= machines or (machines > 1 and head is None):
            raise ValueError(f"{machines} machines are numbered 0 to {machines - 1}, and all told the --head")
        check_processes(config, machines * processes)
    except ValidationError as error:
        raise click.UsageError(_faults(error)) from error
    except (ConfigError, LakeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    except BaseError as error:
        raise click.ClickException(store_message(error)) from error
    from seismic_model.comparison.machines import meet  # torch, which wrong options need not wait for

    before = signal.signal(signal.SIGTERM, _exit)
    try:
        with meet(number, machines, head or "", port) as met, tempfile.TemporaryDirectory() as folder:
            rows = []
            for turn, name in enumerate(dict.fromkeys(chosen or _STRATEGIES)):
                click.echo(f"{name} …", err=True)
                rows.append(_measure(config, name, processes, steps, uri is None, met, turn, Path(folder)))
    except ConnectionError as error:
        raise click.ClickException(str(error)) from error
    finally:
        signal.signal(signal.SIGTERM, before)
    if number > 0:
        click.echo("machine 0 has the table")
        return
    comparison = Comparison(
        config=config,
        processes=machines * processes,
        device=max(each.device for each in rows),
        versions={name: version(name) for name in ("torch", "deepspeed")},
        data="data set" if uri else "made crops",
        steps=steps,
        rows=[each.row for each in rows],
        created=datetime.now(UTC),
    )
    click.echo(comparison.to_bytes().decode() if as_json else _text(comparison))
    if comparison.winner is None:
        sys.exit(1)
    if into:
        try:
            earlier = read_comparison(into, comparison.key)
            into.write(comparison.key, (comparison.with_rows_of(earlier) if earlier else comparison).to_bytes())
        except BaseError as error:
            raise click.ClickException(f"the table was not kept: {str(error).splitlines()[0]}") from error
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
    met: Machines,
    turn: int,
    folder: Path,
) -> Found:
    """What one strategy came to; without figures on other machines than machine 0."""
    told, out = folder / f"{strategy}.json", folder / f"{strategy}.found"
    try:
        told.write_bytes(RunConfig.model_validate(config.model_dump() | {"strategy": strategy}).to_bytes())
    except ValidationError as error:  # on all machines alike
        return _failed(strategy, _faults(error))
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", *met.torchrun(turn)]
    command += ["-m", "seismic_model.comparison.measure", f"--config={told}", f"--steps={steps}", f"--out={out}"]
    met.tell(turn, _launch(command + ["--made"] * made, lambda: bool(met.faults(turn))))
    while not met.all_told(turn):
        time.sleep(_LOOK)
    if faults := met.faults(turn):
        return _failed(strategy, faults[0])
    return Found.model_validate_json(out.read_bytes()) if out.exists() else _failed(strategy, "measured on machine 0")


def _launch(command: list[str], others_failed: Callable[[], bool]) -> str:
    """Run it to its end, or until others failed; why it failed, or ""."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}  # what torchrun would choose, and say so each time
    with tempfile.TemporaryFile("w+") as log:
        job = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=log, preexec_fn=die_with_parent
        )
        deadline = time.monotonic() + _LIMIT
        try:
            while job.poll() is None:
                if others_failed():
                    return ""  # they have told why
                if time.monotonic() > deadline:
                    return f"took longer than {_LIMIT // 60} minutes"
                time.sleep(_LOOK)
        finally:
            _end(job)
        log.seek(0)
        return _fault(log.read()) if job.returncode else ""


def _end(job: subprocess.Popen[bytes]) -> None:
    """See it gone, and with it the processes it started."""
    job.terminate()
    try:
        job.wait(60)
    except subprocess.TimeoutExpired:
        job.kill()
        job.wait()


def _exit(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _failed(strategy: StrategyName, fault: str) -> Found:
    return Found(device="", row=Row(strategy=strategy, fault=fault))


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
