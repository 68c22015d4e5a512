"""From a micro-batch of voxels to the tokens and masks that the model takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seismic_model.config import RunConfig
from seismic_model.data.reader import MicroBatch
from seismic_model.model.mae import count_scored, scored
from seismic_model.model.masking import Shard, patchify, visible_ids
from seismic_model.parallel.strategies import DTYPES

_EPOCH = 0  # crops are drawn anew for ever, so the sample id alone names a mask


@dataclass(frozen=True)
class TokenBatch:
    """One rank's tokens of a micro-batch of crops."""

    patches_BLP: Tensor  # normalised amplitudes, in the run's precision
    live_BLP: Tensor  # bool
    visible_BK: Tensor  # int64 indices into L
    survey_B: Tensor  # int64 positions in the data set
    sample_ids: list[int]

    def count(self) -> Tensor:
        """Int64 scalar: voxels that the loss is taken over."""
        return count_scored(self.live_BLP, self.visible_BK)

    def to(self, device: torch.device) -> TokenBatch:
        """The same on ``device``."""
        moved = {name: getattr(self, name).to(device) for name in ("patches_BLP", "live_BLP", "visible_BK", "survey_B")}
        return replace(self, **moved)

    def survey_errors(self, prediction_BLP: Tensor, surveys: int) -> Tensor:
        """Squared error of normalised amplitudes summed over scored voxels, and their count: float64 (2, surveys)."""
        scored_BLP = scored(self.live_BLP, self.visible_BK)
        error_BLP = (prediction_BLP.detach() - self.patches_BLP).square()
        sums_2B = torch.stack(
            [
                torch.where(scored_BLP, error_BLP, 0).sum((1, 2), dtype=torch.float64),
                scored_BLP.sum((1, 2), dtype=torch.float64),
            ]
        )
        return sums_2B.new_zeros(2, surveys).index_add(1, self.survey_B, sums_2B)


def tokens_of(batch: MicroBatch, config: RunConfig, shard: Shard) -> TokenBatch:
    """Cut a micro-batch into the rank's tokens and draw their masks."""
    values_BIXZ = torch.from_numpy(batch.values_BIXZ).to(DTYPES[config.precision])
    visible = [
        visible_ids(shard.layout, config.keep_ratio, config.seed, _EPOCH, crop.sample_id, shard.tokens)
        for crop in batch.crops
    ]
    return TokenBatch(
        patches_BLP=patchify(values_BIXZ, shard.layout, shard.tokens),
        live_BLP=patchify(torch.from_numpy(batch.live_BIXZ), shard.layout, shard.tokens),
        visible_BK=torch.from_numpy(np.stack(visible) - shard.tokens.start),
        survey_B=torch.tensor([crop.survey for crop in batch.crops]),
        sample_ids=[crop.sample_id for crop in batch.crops],
    )
