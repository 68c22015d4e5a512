"""Time one strategy; ``sfm strategies`` starts this with torchrun, once for each.

A process of its own for each, so that peaks are its own and what one engine leaves behind hinders no other.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import torch

from ingestion.lake import Lake
from seismic_model.comparison.table import Found, Parts, Row
from seismic_model.config import RunConfig
from seismic_model.data.dataset import load_dataset
from seismic_model.data.reader import CropReader, MicroBatch
from seismic_model.data.sampling import BatchPlan, CropSpec
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.model.masking import Masking, Shard, TokenLayout
from seismic_model.model.vit import compile_blocks
from seismic_model.parallel import strategies
from seismic_model.parallel.attention import attention_over
from seismic_model.parallel.handover import slab_group
from seismic_model.parallel.mesh import Mesh, open_mesh
from seismic_model.train import die_with_torchrun, read_config
from seismic_model.training.feed import Feed
from seismic_model.training.speed import take_peak_memory

_WARM_UP = 2  # steps: allocators and engines settle
PARTS = tuple(Parts.model_fields)


def main() -> None:
    """Measure as one of the processes that torchrun started; process 0 writes what was found."""
    parser = argparse.ArgumentParser(prog="python -m seismic_model.comparison.measure")
    parser.add_argument("--config", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    die_with_torchrun()
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    config = read_config(given.config)
    with open_mesh(config.cp, config.ulysses) as mesh:
        row = measure(config, mesh, given.steps, made=given.made)
        if mesh.rank == 0:
            name = torch.cuda.get_device_name(mesh.device) if mesh.device.type == "cuda" else "CPU"
            given.out.write_bytes(Found(device=name, row=row).to_bytes())


def measure(config: RunConfig, mesh: Mesh, steps: int, *, made: bool) -> Row:
    """Train for some steps as ``training.loop`` does, first untouched, then with a wait after each part. Collective.

    Args:
        config: of the run; its data set is read unless ``made``.
        mesh: of all processes.
        steps: to time, twice.
        made: take noise for crops.
    """
    layout = TokenLayout(config.window, config.model.patch)
    shard = Shard.of(layout, Masking(config.keep_ratio, config.seed, config.decode_share), mesh.cp_rank, mesh.cp)
    attention = attention_over(mesh)
    model = MaskedAutoencoder(config.model, config.seed, config.activation_checkpointing)
    if config.compile:
        compile_blocks(model)
    strategy = strategies.build(model, config, mesh)
    with ExitStack() as stack:
        crops = _made(config, mesh, layout, shard) if made else _read(config, mesh, layout, _WARM_UP + 2 * steps, stack)

        feed = Feed(crops, config, shard, mesh.device)

        def train(lap: Callable[[str], None]) -> None:
            batches = feed.take()
            count = mesh.total(torch.stack([batch.count() for batch in batches]).sum())
            for batch in (each.to(mesh.device) for each in batches):
                lap("data")
                result = strategy.model(
                    batch.patches_BLP, batch.live_BLP, batch.masks, shard, attention, batch.spacing_B3
                )
                lap("forward")
                strategy.backward(result.loss_sum, count)
                lap("backward")
            feed.prepare()
            lap("data")
            strategy.step(config.learning_rate)
            lap("step")

        for _ in range(_WARM_UP):
            train(lambda _part: None)
        take_peak_memory(mesh.device)
        began = _now(mesh)
        for _ in range(steps):
            train(lambda _part: None)
        seconds = (_now(mesh) - began) / steps
        peak = take_peak_memory(mesh.device)
        laps = _Laps(mesh)
        for _ in range(steps):
            train(laps)
    everywhere = torch.zeros(mesh.world, 2 + len(PARTS), dtype=torch.float64)
    everywhere[mesh.rank] = torch.tensor([seconds, peak, *(laps.seconds[part] / steps for part in PARTS)])
    everywhere = mesh.total(everywhere).cpu()
    slowest, peak = everywhere[:, :2].max(0).values.tolist()
    return Row(
        strategy=config.strategy,
        samples_per_second=config.batch / slowest,
        tokens_per_second=config.batch * layout.tokens / slowest,
        peak_memory=int(peak),
        seconds=Parts(**dict(zip(PARTS, everywhere[:, 2:].mean(0).tolist(), strict=True))),
    )


class _Laps:
    """Seconds by part of the step; each call ends a part, and waits until the device has done it."""

    def __init__(self, mesh: Mesh) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._mesh, self._last = mesh, _now(mesh)

    def __call__(self, part: str) -> None:
        now = _now(self._mesh)
        self.seconds[part] += now - self._last
        self._last = now


def _now(mesh: Mesh) -> float:
    if mesh.device.type == "cuda":
        torch.cuda.synchronize(mesh.device)
    return time.perf_counter()


def _read(config: RunConfig, mesh: Mesh, layout: TokenLayout, steps: int, stack: ExitStack) -> Iterator[MicroBatch]:
    lake = Lake(config.lake)
    dataset = load_dataset(lake, config.dataset, config.dataset_sha256)
    reader = CropReader(
        lake,
        dataset,
        config.seed,
        BatchPlan(config.batch, config.accumulation, mesh.dp, mesh.dp_rank),
        slab_group(layout, mesh),
        range(steps),
        config.model.reference_spacing,
    )
    return stack.enter_context(closing(reader.stream()))


def _made(config: RunConfig, mesh: Mesh, layout: TokenLayout, shard: Shard) -> Iterator[MicroBatch]:
    """The same noise for ever: making crops must not cost what reading them would."""
    slab = layout.inline_slab(shard.tokens)
    crops = [
        CropSpec(0, (0, 0, 0), index)
        for index in BatchPlan(config.batch, config.accumulation, mesh.dp, mesh.dp_rank).indices(0, 0)
    ]
    shape = (len(crops), slab.stop - slab.start, *config.window[1:])
    values_BIXZ = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    live_BIXZ = np.ones(shape, dtype=bool)
    while True:
        yield MicroBatch(0, values_BIXZ, live_BIXZ, crops, np.ones((len(crops), 3)))


if __name__ == "__main__":
    main()
