"""The tokens of the next step are cut when asked for, once, and in the order of the steps."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from seismic_model.config import ModelConfig, RunConfig
from seismic_model.data.reader import MicroBatch
from seismic_model.data.sampling import CropSpec
from seismic_model.model.masking import Masking, Shard, TokenLayout
from seismic_model.training.feed import Feed

WINDOW = (4, 4, 8)
MODEL = ModelConfig(patch=(4, 4, 4), width=24, depth=1, heads=2, decoder_width=24, decoder_depth=1, decoder_heads=2)
CONFIG = RunConfig(
    run="run",
    lake="file:///lake",
    dataset="datasets/1.json",
    dataset_sha256="0" * 64,
    window=WINDOW,
    batch=2,
    steps=3,
    warmup_steps=1,
    accumulation=2,
    precision="float32",
    model=MODEL,
)
SHARD = Shard.of(TokenLayout(WINDOW, MODEL.patch), Masking(CONFIG.keep_ratio, CONFIG.seed))


class Stream:
    """Micro-batches of one crop, whose voxels all hold its sample id; each takes a while."""

    SECONDS = 0.01

    def __init__(self) -> None:
        self.read: list[int] = []

    def __iter__(self) -> Iterator[MicroBatch]:
        for sample in range(CONFIG.steps * CONFIG.accumulation):
            self.read.append(sample)
            values, live = np.full((1, *WINDOW), sample, dtype=np.float32), np.ones((1, *WINDOW), dtype=bool)
            crops = [CropSpec(0, (0, 0, 0), sample)]
            time.sleep(self.SECONDS)
            yield MicroBatch(sample // CONFIG.accumulation, values, live, crops, np.ones((1, 3)))


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_each_step_has_its_own_micro_batches(stream: Stream) -> None:
    feed = Feed(iter(stream), CONFIG, SHARD, torch.device("cpu"))
    for step in range(CONFIG.steps):
        batches = feed.take()
        expected = [step * CONFIG.accumulation + micro for micro in range(CONFIG.accumulation)]
        assert [batch.sample_ids for batch in batches] == [[sample] for sample in expected]
        assert [float(batch.patches_BLP.unique()) for batch in batches] == expected
        feed.prepare()
    assert stream.read == list(range(CONFIG.steps * CONFIG.accumulation))


def test_the_next_step_is_read_when_it_is_prepared_and_not_again_when_it_is_taken(stream: Stream) -> None:
    feed = Feed(iter(stream), CONFIG, SHARD, torch.device("cpu"))
    feed.take()
    assert stream.read == [0, 1]
    feed.prepare()
    assert stream.read == [0, 1, 2, 3]
    feed.take()
    assert stream.read == [0, 1, 2, 3]


def test_the_time_without_data_is_told_once(stream: Stream) -> None:
    feed = Feed(iter(stream), CONFIG, SHARD, torch.device("cpu"))
    feed.take()
    feed.prepare()
    assert 4 * stream.SECONDS <= feed.waiting.take() < 60
    assert feed.waiting.take() == 0
