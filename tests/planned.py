"""A tiny training run for tests: surveys published, week frozen, config on the lake."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from published import noise, publish

from ingestion.lake import Lake
from seismic_model.config import ModelConfig, RunConfig
from seismic_model.data.dataset import SplitPolicy, dataset_key
from seismic_model.data.freeze import freeze
from seismic_model.parallel.mesh import Mesh, open_mesh

WEEK = "2026-W48"
WINDOW = (8, 8, 16)
MODEL = ModelConfig(patch=(4, 4, 4), width=24, depth=2, heads=2, decoder_width=12, decoder_depth=1, decoder_heads=2)
SPLIT = SplitPolicy(cell_size=400, held_out_share=0.2, salt="1")


def plan(lake: Lake, run: str = "first", **changes: object) -> RunConfig:
    """Publish two surveys (once), freeze them (once) and write ``config.json``; ``changes`` go into the config."""
    key = dataset_key(WEEK)
    if not lake.exists(key):
        publish(lake, "north", noise((40, 40, 24)))
        publish(lake, "south", noise((32, 32, 24), seed=1), origin=(50_000.0, 0.0))
        freeze(lake, WEEK, WINDOW, SPLIT)
    settings = {
        "lake": lake.uri,
        "run": run,
        "dataset": key,
        "dataset_sha256": hashlib.sha256(lake.read(key)).hexdigest(),
        "model": MODEL,
        "window": WINDOW,
        "steps": 12,
        "batch": 4,
        "learning_rate": 3e-3,
        "warmup_steps": 2,
        "strategy": "ddp",
        "checkpoint_every": 3,
    }
    config = RunConfig.model_validate(settings | changes)
    lake.write(config.key, config.to_bytes())
    return config


@contextmanager
def one_process() -> Iterator[Mesh]:
    """The mesh of a world of one, in this process."""
    with mock.patch.dict(os.environ, world_of_one()), open_mesh(cp=1) as mesh:
        yield mesh


def world_of_one() -> dict[str, str]:
    """What torchrun tells a process that is alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
