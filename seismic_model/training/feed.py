"""The token batches of one step after another, the next one's cut while the device still computes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch

from seismic_model.config import RunConfig
from seismic_model.data.reader import MicroBatch
from seismic_model.model.masking import Shard
from seismic_model.parallel.waiting import Waiting
from seismic_model.training.tokens import TokenBatch, tokens_of


class Feed:
    """Cuts what a reader streams into the rank's tokens, ``config.accumulation`` micro-batches for each step.

    ``prepare``, and ``take`` where nothing was prepared, are collective over the ranks that share crops, and raise
    what the reader raises.

    Attributes:
        waiting: the time in which nothing was computed for want of data.
    """

    def __init__(
        self, micro_batches: Iterator[MicroBatch], config: RunConfig, shard: Shard, device: torch.device
    ) -> None:
        self.waiting = Waiting(device)
        self._micro_batches, self._config, self._shard, self._device = micro_batches, config, shard, device
        self._ready: list[TokenBatch] = []

    def take(self) -> list[TokenBatch]:
        """The next step's, on the host."""
        if not self._ready:
            self.prepare()
        ready, self._ready = self._ready, []
        return ready

    def prepare(self) -> None:
        """Have the next step's ready, if there is one: for the time between giving work to a GPU and waiting for it."""
        with self.waiting:
            voxels = islice(self._micro_batches, self._config.accumulation)
            self._ready = [tokens_of(each, self._config, self._shard).ready_for(self._device) for each in voxels]
