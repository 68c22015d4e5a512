"""From a micro-batch of voxels to the tokens and masks that the model takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seismic_model.config import RunConfig
from seismic_model.data.reader import MicroBatch
from seismic_model.model.mae import count_scored, decoded
from seismic_model.model.masking import Masks, Shard, patchify
from seismic_model.parallel.strategies import DTYPES

_EPOCH = 0  # crops are drawn anew for ever, so the sample id alone names a mask


@dataclass(frozen=True)
class TokenBatch:
    """One rank's tokens of a micro-batch of crops."""

    patches_BLP: Tensor  # normalised amplitudes, in the run's precision
    live_BLP: Tensor  # bool
    masks: Masks
    spacing_B3: Tensor  # float64, size of the voxels over the model's reference
    survey_B: Tensor  # int64 positions in the data set
    sample_ids: list[int]

    def count(self) -> Tensor:
        """Int64 scalar: voxels that the loss is taken over."""
        return count_scored(self.live_BLP, self.masks)

    def ready_for(self, device: torch.device) -> TokenBatch:
        """The same on the host, where ``device`` can fetch it while it computes (CUDA: not run yet)."""
        if device.type != "cuda":
            return self
        return self._each(lambda part: part.pin_memory())

    def to(self, device: torch.device) -> TokenBatch:
        """The same on ``device``."""
        return self._each(lambda part: part.to(device, non_blocking=True))

    def _each(self, changed: Callable[[Tensor], Tensor]) -> TokenBatch:
        return replace(
            self,
            patches_BLP=changed(self.patches_BLP),
            live_BLP=changed(self.live_BLP),
            masks=Masks(changed(self.masks.visible_BK), changed(self.masks.decoded_BM)),
            spacing_B3=changed(self.spacing_B3),
            survey_B=changed(self.survey_B),
        )

    def survey_errors(self, prediction_BMP: Tensor, surveys: int) -> Tensor:
        """Squared error of normalised amplitudes summed over scored voxels, and their count: float64 (2, surveys)."""
        target_BMP, live_BMP = (decoded(each, self.masks) for each in (self.patches_BLP, self.live_BLP))
        error_BMP = (prediction_BMP.detach() - target_BMP).square()
        sums_2B = torch.stack(
            [
                torch.where(live_BMP, error_BMP, 0).sum((1, 2), dtype=torch.float64),
                live_BMP.sum((1, 2), dtype=torch.float64),
            ]
        )
        return sums_2B.new_zeros(2, surveys).index_add(1, self.survey_B, sums_2B)


def tokens_of(batch: MicroBatch, config: RunConfig, shard: Shard) -> TokenBatch:
    """Cut a micro-batch into the rank's tokens and draw their masks."""
    values_BIXZ = torch.from_numpy(batch.values_BIXZ).to(DTYPES[config.precision])
    sample_ids = [crop.sample_id for crop in batch.crops]
    return TokenBatch(
        patches_BLP=patchify(values_BIXZ, shard.layout, shard.tokens),
        live_BLP=patchify(torch.from_numpy(batch.live_BIXZ), shard.layout, shard.tokens),
        masks=shard.draw(_EPOCH, sample_ids),
        spacing_B3=torch.from_numpy(batch.spacing_B3),
        survey_B=torch.tensor([crop.survey for crop in batch.crops]),
        sample_ids=sample_ids,
    )
