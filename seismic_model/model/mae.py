"""Masked autoencoder over 3D seismic patches (He et al. 2022, Masked Autoencoders Are Scalable Vision Learners).

The encoder sees visible tokens only; the decoder predicts hidden ones. Amplitudes come in normalised per survey.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seismic_model.config import Checkpointing, ModelConfig
from seismic_model.model.decoder import Decoder
from seismic_model.model.encoder import Encoder, check_spacing, positions_of
from seismic_model.model.loss import amplitude_loss, normalised_loss
from seismic_model.model.masking import Masks, Shard
from seismic_model.model.vit import Attention, Block, full_attention


@dataclass(frozen=True)
class Reconstruction:
    """What the model makes of a rank's decoded tokens."""

    output_BMO: Tensor  # of the head, without a gradient
    voxels: int  # P, in a patch
    loss_sum: Tensor  # scalar, float32 or better: squared error summed over decoded live voxels
    count: Tensor  # int64 scalar: how many voxels that are

    @property
    def prediction_BMP(self) -> Tensor:
        """Normalised amplitudes, from predicted statistics only where the model has them; made when asked for."""
        return amplitudes(self.output_BMO, self.voxels)


class MaskedAutoencoder(nn.Module):
    """ViT-MAE; the same seed gives the same weights in every process.

    Args:
        config: its shape.
        seed: of the weights.
        checkpointing: what backward computes again instead of keeping it.
    """

    def __init__(self, config: ModelConfig, seed: int = 0, checkpointing: Checkpointing = "none") -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        statistics = 2 if config.patch_normalisation else 0  # mean and log deviation of the patch
        self.decoder = Decoder(config, config.patch_voxels + statistics)
        for module in self.modules():
            if isinstance(module, Block):
                module.checkpointing = checkpointing
        self._initialise(seed)

    def forward(
        self,
        patches_BLP: Tensor,
        live_BLP: Tensor,
        masks: Masks,
        shard: Shard,
        attention: Attention = full_attention,
        spacing_B3: Tensor | None = None,
    ) -> Reconstruction:
        """Hide, encode, decode and score one rank's share of a batch of crops.

        Args:
            patches_BLP: normalised amplitudes of own tokens; values of dead voxels are ignored, NaN included.
            live_BLP: bool, whether a voxel belongs to a live trace.
            masks: which tokens are visible, and which are decoded.
            shard: which tokens these are; L and K may be 0 here as long as some rank has tokens.
            attention: over the ranks that share the crop.
            spacing_B3: size of the crops' voxels over the reference; None where the model has no reference.

        Raises ``ValueError`` when the model has a reference spacing and is given none.
        """
        check_spacing(self.config, spacing_B3)
        latent_BKD = self.forward_encoder(patches_BLP, live_BLP, masks, shard, attention, spacing_B3)
        output_BMO = self.decoder(latent_BKD, masks, shard, attention, spacing_B3)
        target_BMP, dead_BMP = _live_part(patches_BLP, live_BLP, masks.decoded_BM)
        loss = normalised_loss if self.config.patch_normalisation else amplitude_loss
        loss_sum = loss(output_BMO, target_BMP, dead_BMP)
        count = dead_BMP.numel() - torch.count_nonzero(dead_BMP)
        return Reconstruction(output_BMO.detach(), dead_BMP.shape[2], loss_sum, count)

    def forward_encoder(
        self,
        patches_BLP: Tensor,
        live_BLP: Tensor,
        masks: Masks,
        shard: Shard,
        attention: Attention,
        spacing_B3: Tensor | None,
    ) -> Tensor:
        """Latent (B, K, D) of the visible tokens."""
        patches_BKP, _ = _live_part(patches_BLP, live_BLP, masks.visible_BK)
        positions_BK3 = positions_of(masks.visible_BK, shard, spacing_B3)
        return self.encoder(patches_BKP, positions_BK3, shard.visible_lengths, shard.rank, attention)  # type: ignore[no-any-return]

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter, generator=generator)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.normal_(self.decoder.mask_token, std=0.02, generator=generator)
        if self.encoder.registers is not None:
            nn.init.normal_(self.encoder.registers, std=0.02, generator=generator)
        # a token of dead voxels is this bias alone: near 0 its norms would multiply gradients by a thousand each
        nn.init.normal_(self.encoder.patch_embed.bias, std=0.02, generator=generator)


def count_scored(live_BLP: Tensor, masks: Masks) -> Tensor:
    """Int64 scalar: voxels that are decoded and live. Needs no forward pass, so a step's count is known before it."""
    return torch.count_nonzero(decoded(live_BLP, masks))


def decoded(values_BLP: Tensor, masks: Masks) -> Tensor:
    """The values (B, M, P) of decoded tokens."""
    return _taken(values_BLP, masks.decoded_BM)


def amplitudes(output_BMO: Tensor, voxels: int) -> Tensor:
    """Normalised amplitudes (B, M, P) of the head's output: P = ``voxels``, and mean and log deviation beyond them."""
    if output_BMO.shape[2] == voxels:
        return output_BMO
    shape_BMP, mean_BM1, log_deviation_BM1 = torch.split(output_BMO, [voxels, 1, 1], dim=2)
    return torch.addcmul(mean_BM1, log_deviation_BM1.exp(), shape_BMP)


def filled_in(patches_BLP: Tensor, masks: Masks, prediction_BMP: Tensor) -> Tensor:
    """``patches`` (B, L, P) with the decoded tokens replaced by their prediction."""
    index_BMP = masks.decoded_BM[:, :, None].expand(-1, -1, patches_BLP.shape[2])
    return patches_BLP.scatter(1, index_BMP, prediction_BMP.to(patches_BLP.dtype))


def _live_part(patches_BLP: Tensor, live_BLP: Tensor, index_BN: Tensor) -> tuple[Tensor, Tensor]:
    """Chosen patches (B, N, P), 0 where they are dead, and where they are."""
    dead_BNP = _taken(live_BLP, index_BN).logical_not_()
    return _taken(patches_BLP, index_BN).masked_fill_(dead_BNP, 0), dead_BNP


def _taken(values_BLP: Tensor, index_BN: Tensor) -> Tensor:
    return values_BLP[torch.arange(len(index_BN), device=index_BN.device)[:, None], index_BN]
