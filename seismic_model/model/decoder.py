"""The decoder: from the features of what is visible to what is hidden.

At large windows a decoder over all tokens costs more than the encoder. Two things make it cheap: only a share of
the hidden tokens is decoded (Wang et al. 2023, VideoMAE V2), and a cross decoder lets each of them attend to
visible tokens only (Fu et al. 2024, CrossMAE).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seismic_model.config import ModelConfig
from seismic_model.model.encoder import positions_of
from seismic_model.model.masking import Masks, Shard
from seismic_model.model.rope import rotation
from seismic_model.model.vit import Attention, Block, Place


class Decoder(nn.Module):
    """Every decoded token starts as the same mask token; rotary positions in each block tell them apart."""

    def __init__(self, config: ModelConfig, outputs: int) -> None:
        super().__init__()
        width, self.cross = config.decoder_width, config.decoder == "cross"
        self.head_width = width // config.decoder_heads
        self.embed = nn.Linear(config.width, width)
        self.mask_token = nn.Parameter(torch.zeros(width))
        self.blocks = nn.ModuleList(
            Block(width, config.decoder_heads, cross=self.cross) for _ in range(config.decoder_depth)
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, outputs)

    def forward(
        self, latent_BKD: Tensor, masks: Masks, shard: Shard, attention: Attention, spacing_B3: Tensor | None
    ) -> Tensor:
        """Raw output (B, M, outputs) for the decoded tokens, from the features of the visible ones."""
        seen_BKW = self.embed(latent_BKD)
        asked_BMW = self.mask_token.expand(*masks.decoded_BM.shape, -1)
        seen_at, asked_at = (positions_of(ids, shard, spacing_B3) for ids in (masks.visible_BK, masks.decoded_BM))
        if self.cross:
            x_BMW = self._attend_to_visible(asked_BMW, asked_at, seen_BKW, seen_at, shard, attention)
        else:
            x_BMW = self._attend_to_all(asked_BMW, asked_at, seen_BKW, seen_at, shard, attention)
        return self.head(self.norm(x_BMW))  # type: ignore[no-any-return]

    def _attend_to_visible(
        self, x_BMW: Tensor, asked_at: Tensor, seen_BKW: Tensor, seen_at: Tensor, shard: Shard, attention: Attention
    ) -> Tensor:
        at = Place(rotation(asked_at, self.head_width, x_BMW.dtype), shard.decoded_lengths)
        memory_at = Place(rotation(seen_at, self.head_width, x_BMW.dtype), shard.visible_lengths)
        for block in self.blocks:
            x_BMW = block(x_BMW, at, attention, seen_BKW, memory_at)
        return x_BMW

    def _attend_to_all(
        self, asked_BMW: Tensor, asked_at: Tensor, seen_BKW: Tensor, seen_at: Tensor, shard: Shard, attention: Attention
    ) -> Tensor:
        x_BNW = torch.cat((seen_BKW, asked_BMW), dim=1)
        lengths = tuple(map(sum, zip(shard.visible_lengths, shard.decoded_lengths, strict=True)))
        at = Place(rotation(torch.cat((seen_at, asked_at), dim=1), self.head_width, x_BNW.dtype), lengths)
        for block in self.blocks:
            x_BNW = block(x_BNW, at, attention)
        return x_BNW[:, seen_BKW.shape[1] :]
