"""The training loop: read a batch, add up gradients, step, measure, save."""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from threading import Event
from typing import Any, Literal

import torch
from torch import Tensor

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.data.dataset import Dataset
from seismic_model.data.reader import CropReader
from seismic_model.data.sampling import BatchPlan
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.model.masking import Masking, Shard, TokenLayout
from seismic_model.model.vit import compile_blocks
from seismic_model.parallel import strategies
from seismic_model.parallel.attention import attention_over
from seismic_model.parallel.handover import slab_group
from seismic_model.parallel.mesh import Mesh
from seismic_model.training import checkpoint
from seismic_model.training.feed import Feed
from seismic_model.training.heartbeat import Heartbeat
from seismic_model.training.reporting import Reporter
from seismic_model.training.resume import check_same_training, restore
from seismic_model.training.retention import forget
from seismic_model.training.saving import Saver
from seismic_model.training.speed import StepSize
from seismic_model.training.tally import StepTally
from seismic_model.training.tokens import TokenBatch

MAX_SKIPPED = 10  # batches without finite gradients before a run gives up
_NAMED = 8  # samples in a line of the log; metrics.jsonl has all

logger = logging.getLogger(__name__)


class TrainingError(Exception):
    """Training cannot go on; the message says why."""


def train(config: RunConfig, lake: Lake, dataset: Dataset, mesh: Mesh) -> Literal["finished", "stopped"]:
    """Train to ``config.steps``, going on from the newest checkpoint. Collective over all processes.

    Returns "stopped" when SIGTERM, SIGINT or SIGHUP reached any process first; all that was done is then saved.

    Raises ``TrainingError``, ``CheckpointError``, ``MetricsError``, ``DatasetError`` or ``VolumeError``.
    """
    layout = TokenLayout(config.window, config.model.patch)
    masking = Masking(config.keep_ratio, config.seed, config.decode_share)
    shard = Shard.of(layout, masking, mesh.cp_rank, mesh.cp)
    plan = BatchPlan(config.batch, config.accumulation, mesh.dp, mesh.dp_rank)
    newest = checkpoint.latest_for_all(lake, config.run, mesh)
    if newest and newest.step >= config.steps:
        check_same_training(newest.config, config)
        logger.info("the checkpoint of run %s at step %d is its last", config.run, newest.step)
        if mesh.rank == 0:
            forget(lake, newest)  # the process that committed it may have been killed in doing so
        return "finished"
    attention = attention_over(mesh)
    model = MaskedAutoencoder(config.model, config.seed, config.activation_checkpointing)
    if config.compile:
        compile_blocks(model)
    strategy = strategies.build(model, config, mesh)
    size = StepSize.of(config, mesh)
    with ExitStack() as stack:
        asked_to_stop = stack.enter_context(_stop_noted())
        heartbeat = stack.enter_context(Heartbeat(lake, config.run, mesh))
        done = saved = restore(lake, config, strategy)
        skipped = done - strategy.applied_steps
        reporter = stack.enter_context(Reporter(config, lake, done)) if mesh.rank == 0 else None
        reader = CropReader(
            lake,
            dataset,
            config.seed,
            plan,
            slab_group(layout, mesh),
            range(done, config.steps),
            config.model.reference_spacing,
        )
        feed = Feed(stack.enter_context(closing(reader.stream())), config, shard, mesh.device)
        saver = stack.enter_context(closing(Saver(lake, config, strategy)))
        while done < config.steps:
            heartbeat.enter("train", done)
            tally = StepTally(dataset, mesh, size, plan.samples(done))
            batches = feed.take()
            count, stop = _agree(batches, asked_to_stop, saver, mesh)
            if stop:
                break
            for batch in (each.to(mesh.device) for each in batches):
                result = strategy.model(
                    batch.patches_BLP, batch.live_BLP, batch.masks, shard, attention, batch.spacing_B3
                )
                strategy.backward(result.loss_sum, count)
                tally.add(batch, result)
            del batches, batch, result  # makes room for the next step's tokens
            feed.prepare()
            rate = learning_rate(config, done)
            norm = strategy.step(rate)  # applies nothing when the norm is not finite
            done += 1
            skipped += not math.isfinite(norm)
            entry = {"step": done, **tally.figures(norm, feed.waiting.take())}
            entry |= {"learning_rate": rate, "skipped": skipped}
            if reporter:
                reporter.step(entry)
            if not math.isfinite(norm):
                _note_skipped(config, entry, norm, reader)
            if done % config.checkpoint_every == 0 or done == config.steps:
                heartbeat.enter("save", done)
                _save(saver, done, reporter)
                saved = done
        heartbeat.enter("save", done)
        if saved < done:
            _save(saver, done, reporter)
        saver.finish()
    return "finished" if done == config.steps else "stopped"


def learning_rate(config: RunConfig, step: int) -> float:
    """Of the step after ``step`` done ones: linear warm-up, then half a cosine down to the final rate."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    share = (step - config.warmup_steps) / max(1, config.steps - 1 - config.warmup_steps)
    fall = config.learning_rate - config.final_learning_rate
    return config.final_learning_rate + fall * (1 + math.cos(math.pi * share)) / 2


def _agree(batches: list[TokenBatch], asked_to_stop: Event, saver: Saver, mesh: Mesh) -> tuple[Tensor, bool]:
    """Voxels that the step's loss is taken over in all processes, and whether any of them is to stop.

    What the processes learn of each other's uploads lets the saver go on.
    """
    counts = torch.stack([batch.count() for batch in batches])
    own = torch.cat([counts.sum()[None], torch.tensor([int(asked_to_stop.is_set())]), saver.progress()])
    count, stop, *progress = mesh.total(own)
    saver.proceed(torch.stack(progress))
    return count, bool(stop)


def _note_skipped(config: RunConfig, entry: dict[str, Any], norm: float, reader: CropReader) -> None:
    """Log a step that changed nothing. Raises ``TrainingError`` after too many."""
    samples = entry["skipped_samples"]
    named = ", ".join(f"{sample} ({reader.where(sample)})" for sample in samples[:_NAMED])
    named += f" and {len(samples) - _NAMED} more" if samples[_NAMED:] else ""
    what = f"step {entry['step']} had a gradient norm of {norm} and was skipped; look at samples {named}"
    logger.warning(what)
    if entry["skipped"] > MAX_SKIPPED:
        raise TrainingError(
            f"{what}. It is the {entry['skipped']}th of this run, at most {MAX_SKIPPED} are allowed: lower "
            f"learning_rate (now {config.learning_rate:g}), or look at the surveys at these places"
        )


def _save(saver: Saver, step: int, reporter: Reporter | None) -> None:
    if reporter:
        reporter.flush()  # first, so that a resumed run has the figures of every step before it
    saver.begin(step)


@contextmanager
def _stop_noted() -> Iterator[Event]:
    """An event that SIGTERM, Ctrl-C or the end of a terminal sets, instead of ending the process."""
    noted = Event()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, lambda _number, _frame: noted.set()) for number in numbers}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
