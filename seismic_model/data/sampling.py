"""Which crop comes when: a pure function of the seed and the global sample index.

Neither the number of processes nor a restart changes the sequence; only who reads which crop depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seismic_model.config import RunConfig, Triple
from seismic_model.data.splits import BoolArray

_STREAM = 2**64 - 1  # second word of the Philox key, where masks have their epoch


@dataclass(frozen=True)
class CropSpec:
    """One crop of the training sequence."""

    survey: int  # position in ``Dataset.surveys``
    origin: Triple  # first voxel (inline, crossline, sample)
    sample_id: int  # global sample index, which also seeds the mask


class CropSampler:
    """Draws a survey by weight, then one of its training origins, all equally likely.

    Args:
        seed: of the run.
        weights: share of the crops for each survey.
        origins: where windows of each survey may start (``splits.train_origins``).
        depths: for each survey, how many samples a window may start at.
    """

    def __init__(
        self, seed: int, weights: Sequence[float], origins: Sequence[BoolArray], depths: Sequence[int]
    ) -> None:
        self._key = np.array([seed, _STREAM], dtype=np.uint64)
        self._edges = np.cumsum(weights) / np.cumsum(weights)[-1]
        self._origins = list(origins)
        self._depths = list(depths)
        self._until_row = [allowed.sum(axis=1).cumsum() for allowed in origins]
        for survey, weight in enumerate(weights):
            if weight and not (self._origins[survey].any() and self._depths[survey] > 0):
                raise ValueError(
                    f"survey {survey} has weight {weight} and no training window; freeze the data set again"
                )

    def crop(self, index: int) -> CropSpec:
        """The crop with global sample index ``index``."""
        # raw words, since NumPy may change how its distributions use them from version to version
        words = np.random.Philox(key=self._key, counter=[0, 0, 0, index]).random_raw(3).tolist()
        survey = int(np.searchsorted(self._edges, (words[0] >> 11) / 2**53, side="right"))
        until_row = self._until_row[survey]
        place = _below(int(until_row[-1]), words[1])
        inline = int(np.searchsorted(until_row, place, side="right"))
        place_in_row = place - (int(until_row[inline - 1]) if inline else 0)
        crossline = int(np.flatnonzero(self._origins[survey][inline])[place_in_row])
        return CropSpec(survey, (inline, crossline, _below(self._depths[survey], words[2])), index)


class BatchError(ValueError):
    """A batch cannot be dealt out evenly."""


@dataclass(frozen=True)
class BatchPlan:
    """How the crops of a step are dealt out to data-parallel ranks and micro-batches.

    Raises ``BatchError``.
    """

    batch: int  # crops in a step
    accumulation: int  # micro-batches in a step
    dp: int
    dp_rank: int

    def __post_init__(self) -> None:
        if self.batch % (self.accumulation * self.dp):
            raise BatchError(
                f"batch {self.batch} cannot be dealt out to {self.accumulation} micro-batches of {self.dp} "
                f"data-parallel ranks; expected a multiple of {self.accumulation * self.dp}"
            )

    def samples(self, step: int) -> range:
        """Global sample indices of all ranks in a step; ``step`` counts from 0."""
        return range(step * self.batch, (step + 1) * self.batch)

    def indices(self, step: int, micro_batch: int) -> range:
        """Global sample indices of one micro-batch of this rank; ``step`` counts from 0."""
        size = self.batch // (self.accumulation * self.dp)
        first = step * self.batch + (micro_batch * self.dp + self.dp_rank) * size
        return range(first, first + size)


def check_processes(config: RunConfig, processes: int) -> None:
    """Raises ``ValueError`` where ``processes`` cannot share the crops of ``config``."""
    if processes % config.cp:
        raise ValueError(f"{processes} processes cannot form groups of cp={config.cp}; expected a multiple of cp")
    BatchPlan(config.batch, config.accumulation, processes // config.cp, 0)


def _below(limit: int, word: int) -> int:
    """A number in [0, limit) from 64 random bits (Lemire 2019, without the rejection: bias below limit / 2**64)."""
    return word * limit >> 64
