"""The recipe of He et al. 2022 (Masked Autoencoders Are Scalable Vision Learners) in plain PyTorch, for volumes.

Every patch is embedded and given a fixed sine-cosine position; a shuffle per crop keeps a share of them; the decoder
runs over all tokens and its head predicts all of them; the loss is taken over hidden ones, of patches
normalised by their own mean and deviation. Attention is PyTorch's own, queries, keys and values are one matrix.
There is no class token, as in VideoMAE. It is a thing to compare with: no missing traces, one process.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seismic_model.config import ModelConfig, Triple


class Recipe(nn.Module):
    """Takes crops, gives the loss; shapes are those of ``config``, of which patch normalisation is meant."""

    place_LD: Tensor
    decoder_place_LD: Tensor

    def __init__(self, config: ModelConfig, window: Triple, keep_ratio: float) -> None:
        super().__init__()
        self.patch = config.patch
        self.grid = (window[0] // config.patch[0], window[1] // config.patch[1], window[2] // config.patch[2])
        self.kept = round(keep_ratio * self.grid[0] * self.grid[1] * self.grid[2])
        self.patch_embed = nn.Linear(config.patch_voxels, config.width)
        self.encoder = nn.Sequential(*(_Block(config.width, config.heads) for _ in range(config.depth)))
        self.encoder_norm = nn.LayerNorm(config.width)
        self.decoder_embed = nn.Linear(config.width, config.decoder_width)
        self.mask_token = nn.Parameter(torch.zeros(config.decoder_width))
        self.decoder = nn.Sequential(
            *(_Block(config.decoder_width, config.decoder_heads) for _ in range(config.decoder_depth))
        )
        self.decoder_norm = nn.LayerNorm(config.decoder_width)
        self.head = nn.Linear(config.decoder_width, config.patch_voxels)
        self.register_buffer("place_LD", sine_cosine(self.grid, config.width))
        self.register_buffer("decoder_place_LD", sine_cosine(self.grid, config.decoder_width))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(self, crops_BIXZ: Tensor, hidden_BL: Tensor | None = None) -> Tensor:
        """Mean squared error over hidden patches, which are drawn anew unless they are given (equally many a crop)."""
        patches_BLP = self.patchify(crops_BIXZ)
        noise_BL = torch.rand(patches_BLP.shape[:2]) if hidden_BL is None else hidden_BL.float()
        order_BL = noise_BL.argsort(dim=1, stable=True)
        x_BLD = self.patch_embed(patches_BLP) + self.place_LD
        latent_BKD = self.encoder_norm(self.encoder(x_BLD.gather(1, _wide(order_BL[:, : self.kept], x_BLD))))
        seen_BKD = self.decoder_embed(latent_BKD)
        hidden = self.mask_token.expand(len(seen_BKD), order_BL.shape[1] - self.kept, -1)
        shuffled_BLD = torch.cat((seen_BKD, hidden), dim=1)
        x_BLD = shuffled_BLD.gather(1, _wide(order_BL.argsort(dim=1), shuffled_BLD)) + self.decoder_place_LD
        prediction_BLP = self.head(self.decoder_norm(self.decoder(x_BLD)))
        mean_BL1, variance_BL1 = patches_BLP.mean(2, keepdim=True), patches_BLP.var(2, correction=0, keepdim=True)
        target_BLP = (patches_BLP - mean_BL1) / (variance_BL1 + 1e-6).sqrt()
        error_BL = (prediction_BLP - target_BLP).square().mean(2)
        hidden_BL = torch.ones_like(error_BL).scatter(1, order_BL[:, : self.kept], 0)
        return torch.sum(error_BL * hidden_BL) / hidden_BL.sum()

    def patchify(self, crops_BIXZ: Tensor) -> Tensor:
        """(B, L, P), tokens in C order of the patch grid."""
        (gi, gx, gz), (pi, px, pz) = self.grid, self.patch
        split = crops_BIXZ.reshape(-1, gi, pi, gx, px, gz, pz)
        return split.permute(0, 1, 3, 5, 2, 4, 6).reshape(len(crops_BIXZ), gi * gx * gz, pi * px * pz)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x_BNW: Tensor) -> Tensor:
        batch, tokens, width = x_BNW.shape
        qkv = self.qkv(self.attention_norm(x_BNW)).reshape(batch, tokens, 3, self.heads, width // self.heads)
        mixed_BHND = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        x_BNW = x_BNW + self.out(mixed_BHND.transpose(1, 2).reshape(batch, tokens, width))
        return x_BNW + self.mlp(self.mlp_norm(x_BNW))  # type: ignore[no-any-return]


def sine_cosine(grid: Triple, width: int) -> Tensor:
    """Fixed positions (L, width): a third of the width for each axis, half of it sines; the rest is 0."""
    third = width // 6 * 2
    frequencies = 10_000.0 ** (-torch.arange(third // 2) / (third // 2))
    axes = torch.meshgrid(*(torch.arange(n) for n in grid), indexing="ij")
    angles = torch.stack(axes, dim=-1).reshape(-1, 3, 1) * frequencies
    return F.pad(torch.cat((angles.sin(), angles.cos()), dim=2).flatten(1), (0, width - 3 * third))


def _wide(index_BK: Tensor, like_BLD: Tensor) -> Tensor:
    return index_BK[:, :, None].expand(-1, -1, like_BLD.shape[2])
