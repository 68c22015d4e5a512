"""Three masked autoencoders behind one interface: crops of voxels in, loss out.

All learn patches normalised by their own mean and deviation, since VideoMAE can do nothing else with one channel. Ours
then learns mean and deviation too, which no error here counts.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from benchmarks.common import CannotMeasureError
from benchmarks.references.recipe import Recipe
from seismic_model.config import ModelConfig, Triple
from seismic_model.model.loss import VARIANCE_FLOOR
from seismic_model.model.mae import MaskedAutoencoder, decoded
from seismic_model.model.masking import Masking, Masks, Shard, TokenLayout, patchify
from seismic_model.model.vit import full_attention


class Contender(Protocol):
    """A model, and how it takes a batch of crops (B, I, X, Z) of live voxels."""

    @property
    def name(self) -> str:
        """As tables show it."""

    @property
    def model(self) -> nn.Module:
        """What is trained."""

    def loss(self, crops_BIXZ: Tensor, step: int) -> Tensor:
        """Of one training step, with masks drawn anew."""

    def error(self, crops_BIXZ: Tensor, masks: Masks) -> float:
        """Mean squared error of the hidden patches, each normalised."""


class Ours:
    """The model as the training loop calls it."""

    def __init__(self, config: ModelConfig, window: Triple, keep_ratio: float, decode_share: float, seed: int) -> None:
        self.name = f"ours, {config.decoder} decoder, {decode_share:.0%} decoded"
        self.model = MaskedAutoencoder(config, seed)
        self.layout = TokenLayout(window, config.patch)
        self.training = Shard.of(self.layout, Masking(keep_ratio, seed, decode_share))
        self.scoring = Shard.of(self.layout, Masking(keep_ratio, seed))

    def loss(self, crops_BIXZ: Tensor, step: int) -> Tensor:
        """Of one training step, with masks drawn anew."""
        masks = self.training.draw(0, range(step * len(crops_BIXZ), (step + 1) * len(crops_BIXZ)))
        live_BIXZ = torch.ones((), dtype=torch.bool).expand(crops_BIXZ.shape)  # takes no memory, as crops count none
        patches_BLP, live_BLP = (patchify(each, self.layout, self.training.tokens) for each in (crops_BIXZ, live_BIXZ))
        made = self.model(patches_BLP, live_BLP, masks, self.training)
        return made.loss_sum / made.count  # type: ignore[no-any-return]

    def error(self, crops_BIXZ: Tensor, masks: Masks) -> float:
        """Mean squared error of the hidden patches, each normalised."""
        patches_BLP = patchify(crops_BIXZ, self.layout, self.scoring.tokens)
        live_BLP = torch.ones_like(patches_BLP, dtype=torch.bool)
        latent_BKD = self.model.forward_encoder(patches_BLP, live_BLP, masks, self.scoring, full_attention, None)
        output_BMO = self.model.decoder(latent_BKD, masks, self.scoring, full_attention, None)
        target_BMP = normalised(decoded(patches_BLP, masks))
        return float((output_BMO[:, :, : target_BMP.shape[2]] - target_BMP).square().mean())


class PlainRecipe:
    """``Recipe``."""

    name = "MAE recipe, plain PyTorch"

    def __init__(self, config: ModelConfig, window: Triple, keep_ratio: float, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = Recipe(config, window, keep_ratio)

    def loss(self, crops_BIXZ: Tensor, step: int) -> Tensor:
        """Of one training step, with masks drawn anew."""
        return self.model(crops_BIXZ)  # type: ignore[no-any-return]

    def error(self, crops_BIXZ: Tensor, masks: Masks) -> float:
        """Mean squared error of the hidden patches, each normalised."""
        return float(self.model(crops_BIXZ, _hidden(masks)))


class VideoMae:
    """``VideoMAEForPreTraining`` of Hugging Face transformers; samples are its frames, lines its rows and columns."""

    name = "VideoMAEForPreTraining"

    def __init__(self, config: ModelConfig, window: Triple, keep_ratio: float, seed: int) -> None:
        try:
            from transformers import VideoMAEConfig, VideoMAEForPreTraining
        except ImportError as error:
            raise CannotMeasureError(
                "transformers is not installed; pip install -c constraints.txt -e '.[bench]'"
            ) from error
        if config.patch[0] != config.patch[1]:
            raise CannotMeasureError(f"patch {config.patch} is not square in lines; VideoMAE has no other")
        torch.manual_seed(seed)
        self.model = VideoMAEForPreTraining(
            VideoMAEConfig(
                image_size=list(window[:2]),
                num_frames=window[2],
                patch_size=config.patch[0],
                tubelet_size=config.patch[2],
                num_channels=1,
                hidden_size=config.width,
                num_hidden_layers=config.depth,
                num_attention_heads=config.heads,
                intermediate_size=4 * config.width,
                decoder_hidden_size=config.decoder_width,
                decoder_num_hidden_layers=config.decoder_depth,
                decoder_num_attention_heads=config.decoder_heads,
                decoder_intermediate_size=4 * config.decoder_width,
            )
        )
        self.grid = TokenLayout(window, config.patch).grid
        self.voxels = config.patch_voxels
        self.kept = round(keep_ratio * TokenLayout(window, config.patch).tokens)

    def loss(self, crops_BIXZ: Tensor, step: int) -> Tensor:
        """Of one training step, with masks drawn anew."""
        tokens = self.grid[0] * self.grid[1] * self.grid[2]
        order_BL = torch.rand(len(crops_BIXZ), tokens).argsort(dim=1)
        return self._loss(crops_BIXZ, order_BL >= self.kept)

    def error(self, crops_BIXZ: Tensor, masks: Masks) -> float:
        """Mean squared error of the hidden patches, each normalised."""
        hidden_BIXZ = _hidden(masks).view(-1, *self.grid)
        unbiased = float(self._loss(crops_BIXZ, hidden_BIXZ.permute(0, 3, 1, 2).flatten(1)))
        return unbiased * self.voxels / (self.voxels - 1)  # it divides by the unbiased deviation

    def _loss(self, crops_BIXZ: Tensor, hidden_BL: Tensor) -> Tensor:
        frames = crops_BIXZ.permute(0, 3, 1, 2)[:, :, None]
        return self.model(frames, bool_masked_pos=hidden_BL).loss  # type: ignore[no-any-return]


def normalised(patches_BMP: Tensor) -> Tensor:
    """Patches less their mean, over their deviation."""
    variance_BM1, mean_BM1 = torch.var_mean(patches_BMP, dim=2, correction=0, keepdim=True)
    return (patches_BMP - mean_BM1) / (variance_BM1 + VARIANCE_FLOOR).sqrt()


def _hidden(masks: Masks) -> Tensor:
    tokens = masks.visible_BK.shape[1] + masks.decoded_BM.shape[1]
    hidden_BL = torch.zeros(len(masks.decoded_BM), tokens, dtype=torch.bool)
    return hidden_BL.scatter(1, masks.decoded_BM, True)
