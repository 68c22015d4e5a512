"""Masked autoencoder over 3D seismic patches (He et al. 2022, Masked Autoencoders Are Scalable Vision Learners).

The encoder sees visible tokens only; the decoder sees all tokens, hidden ones as one learned mask token, and
tells them apart by rotary positions in each of its blocks. Amplitudes come in normalised per survey.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seismic_model.config import ModelConfig
from seismic_model.model.masking import Shard
from seismic_model.model.rope import rotary_angles
from seismic_model.model.vit import Attention, Block, full_attention

VARIANCE_FLOOR = 1e-6  # of a patch, in normalised amplitude squared


@dataclass(frozen=True)
class Reconstruction:
    """What the model makes of a rank's own tokens."""

    prediction_BLP: Tensor  # normalised amplitudes of all tokens, visible ones included
    loss_sum: Tensor  # scalar, float32 or better: squared error summed over hidden and live voxels
    count: Tensor  # int64 scalar: how many voxels that are


class MaskedAutoencoder(nn.Module):
    """ViT-MAE; the same seed gives the same weights in every process."""

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = nn.Linear(config.patch_voxels, config.width)
        self.encoder = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.depth))
        self.encoder_norm = nn.LayerNorm(config.width, eps=1e-6)
        self.decoder_embed = nn.Linear(config.width, config.decoder_width)
        self.mask_token = nn.Parameter(torch.zeros(config.decoder_width))
        self.decoder = nn.ModuleList(
            Block(config.decoder_width, config.decoder_heads) for _ in range(config.decoder_depth)
        )
        self.decoder_norm = nn.LayerNorm(config.decoder_width, eps=1e-6)
        statistics = 2 if config.patch_normalisation else 0  # mean and log deviation of the patch
        self.head = nn.Linear(config.decoder_width, config.patch_voxels + statistics)
        self._initialise(seed)

    def forward(
        self,
        patches_BLP: Tensor,
        live_BLP: Tensor,
        visible_BK: Tensor,
        shard: Shard,
        attention: Attention = full_attention,
    ) -> Reconstruction:
        """Hide, encode, decode and score one rank's share of a batch of crops.

        Args:
            patches_BLP: normalised amplitudes of own tokens; values of dead voxels are ignored, NaN included.
            live_BLP: bool, whether a voxel belongs to a live trace.
            visible_BK: int64 indices into L (so global id minus ``shard.tokens.start``) of visible tokens.
            shard: which tokens these are; L and K may be 0 here as long as some rank has tokens.
            attention: over the ranks that share the crop.
        """
        patches_BLP = torch.where(live_BLP, patches_BLP, 0)
        latent_BKD = self.forward_encoder(patches_BLP, visible_BK, shard, attention)
        output_BLO = self.forward_decoder(latent_BKD, visible_BK, shard, attention)
        loss_sum = self.forward_loss(patches_BLP, live_BLP, visible_BK, output_BLO)
        return Reconstruction(self.amplitudes(output_BLO), loss_sum, count_scored(live_BLP, visible_BK))

    def forward_encoder(self, patches_BLP: Tensor, visible_BK: Tensor, shard: Shard, attention: Attention) -> Tensor:
        """Latent (B, K, D) of the visible tokens."""
        x_BKD = self.patch_embed(patches_BLP.gather(1, _along(visible_BK, patches_BLP.shape[2])))
        positions_BK3 = shard.layout.positions(visible_BK + shard.tokens.start)
        angles = rotary_angles(positions_BK3, self.config.width // self.config.heads)
        for block in self.encoder:
            x_BKD = block(x_BKD, angles, attention, shard.visible_lengths)
        return self.encoder_norm(x_BKD)  # type: ignore[no-any-return]

    def forward_decoder(self, latent_BKD: Tensor, visible_BK: Tensor, shard: Shard, attention: Attention) -> Tensor:
        """Raw output of the head (B, L, P), or (B, L, P + 2) with patch normalisation, for all tokens."""
        seen_BKD = self.decoder_embed(latent_BKD)
        batch, tokens = len(seen_BKD), len(shard.tokens)
        x_BLD = self.mask_token.expand(batch, tokens, -1).scatter(1, _along(visible_BK, seen_BKD.shape[2]), seen_BKD)
        ids_1L = torch.arange(shard.tokens.start, shard.tokens.stop, device=x_BLD.device)[None]
        angles = rotary_angles(shard.layout.positions(ids_1L), self.config.decoder_width // self.config.decoder_heads)
        for block in self.decoder:
            x_BLD = block(x_BLD, angles, attention, shard.lengths)
        return self.head(self.decoder_norm(x_BLD))  # type: ignore[no-any-return]

    def forward_loss(self, patches_BLP: Tensor, live_BLP: Tensor, visible_BK: Tensor, output_BLO: Tensor) -> Tensor:
        """Squared error summed over hidden and live voxels, in float32 or better.

        With patch normalisation the shape of the patch is scored in its own deviations, and the errors of its
        mean and log deviation are added to each of its live voxels.
        """
        accurate = torch.promote_types(output_BLO.dtype, torch.float32)
        target_BLP, output_BLO = patches_BLP.to(accurate), output_BLO.to(accurate)
        if self.config.patch_normalisation:
            mean_BL1, deviation_BL1 = _live_statistics(target_BLP, live_BLP)
            shape_BLP, mean, log_deviation = torch.split(output_BLO, [target_BLP.shape[2], 1, 1], dim=2)
            error_BLP = (shape_BLP - (target_BLP - mean_BL1) / deviation_BL1).square()
            error_BLP = error_BLP + (mean - mean_BL1).square() + (log_deviation - deviation_BL1.log()).square()
        else:
            error_BLP = (output_BLO - target_BLP).square()
        return torch.where(scored(live_BLP, visible_BK), error_BLP, 0).sum()

    def amplitudes(self, output_BLO: Tensor) -> Tensor:
        """Normalised amplitudes (B, L, P) of the head's output, from predicted statistics only."""
        if not self.config.patch_normalisation:
            return output_BLO
        shape_BLP, mean_BL1, log_deviation_BL1 = torch.split(output_BLO, [self.config.patch_voxels, 1, 1], dim=2)
        return torch.addcmul(mean_BL1, log_deviation_BL1.exp(), shape_BLP)

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.mask_token, std=0.02, generator=generator)


def scored(live_BLP: Tensor, visible_BK: Tensor) -> Tensor:
    """Bool (B, L, P): voxels that are hidden and live, the ones that count in loss and evaluation."""
    hidden_BL = torch.ones(live_BLP.shape[:2], dtype=torch.bool, device=live_BLP.device).scatter(1, visible_BK, False)
    return live_BLP & hidden_BL[:, :, None]


def count_scored(live_BLP: Tensor, visible_BK: Tensor) -> Tensor:
    """Int64 scalar: voxels that are hidden and live. Needs no forward pass, so a step's count is known before it."""
    return scored(live_BLP, visible_BK).sum()


def _live_statistics(target_BLP: Tensor, live_BLP: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation (B, L, 1) over the live voxels of each patch; 0 and the floor's root where none is live."""
    count_BL1 = live_BLP.sum(2, keepdim=True).clamp(min=1)
    mean_BL1 = torch.where(live_BLP, target_BLP, 0).sum(2, keepdim=True) / count_BL1
    variance_BL1 = torch.where(live_BLP, target_BLP - mean_BL1, 0).square().sum(2, keepdim=True) / count_BL1
    return mean_BL1, (variance_BL1 + VARIANCE_FLOOR).sqrt()


def _along(index_BK: Tensor, width: int) -> Tensor:
    return index_BK[:, :, None].expand(-1, -1, width)
