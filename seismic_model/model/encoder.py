"""The encoder: from the patches a rank sees to their features. What fine-tuning takes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seismic_model.config import ModelConfig
from seismic_model.model.masking import Shard, patchify
from seismic_model.model.rope import rotation
from seismic_model.model.vit import Attention, Block, Place, full_attention


class Encoder(nn.Module):
    """Vision transformer over visible patches; register tokens (Darcet et al. 2024) lie on the group's first rank."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = nn.Linear(config.patch_voxels, config.width)
        self.registers = nn.Parameter(torch.zeros(config.registers, config.width)) if config.registers else None
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=1e-6)

    def forward(
        self, patches_BKP: Tensor, positions_BK3: Tensor, lengths: tuple[int, ...], rank: int, attention: Attention
    ) -> Tensor:
        """Features (B, K, D) of own tokens.

        Args:
            patches_BKP: normalised amplitudes, 0 where not live.
            positions_BK3: in patches (see ``positions_of``).
            lengths: tokens of every rank that shares the crop, K for this one.
            rank: of this process among them.
            attention: over them.
        """
        x_BKD = self.patch_embed(patches_BKP)
        own = 0
        if self.registers is not None:
            own = len(self.registers) if rank == 0 else 0
            lengths = (lengths[0] + len(self.registers), *lengths[1:])
            registers_BRD = self.registers[:own].expand(len(x_BKD), -1, -1)  # none elsewhere, with a gradient of 0
            x_BKD = torch.cat((registers_BRD, x_BKD), dim=1)
            positions_BK3 = nn.functional.pad(positions_BK3, (0, 0, own, 0))  # registers are not turned
        at = Place(rotation(positions_BK3, self.config.width // self.config.heads, x_BKD.dtype), lengths)
        for block in self.blocks:
            x_BKD = block(x_BKD, at, attention)
        return self.norm(x_BKD[:, own:])  # type: ignore[no-any-return]

    def features(
        self,
        slab_BIXZ: Tensor,
        live_BIXZ: Tensor,
        shard: Shard,
        attention: Attention = full_attention,
        spacing_B3: Tensor | None = None,
    ) -> Tensor:
        """Features (B, L, D) of all own tokens, none hidden, for fine-tuning and probes; differentiable.

        A window that is too large for one process is spread over several: each gives the slab
        ``shard.layout.inline_slab(shard.tokens)`` and gets the features of ``shard.tokens``, whose grid coordinates
        ``shard.layout.positions`` tells. The result does not depend on how many share the window.

        Args:
            slab_BIXZ: normalised amplitudes; values of dead voxels are ignored.
            live_BIXZ: bool, whether a voxel was recorded.
            shard: of a layout with ``Masking(keep_ratio=1, seed=0)``.
            attention: over the ranks that share the window.
            spacing_B3: see ``positions_of``.

        Raises ``ValueError`` when the model has a reference spacing and is given none.
        """
        check_spacing(self.config, spacing_B3)
        patches_BLP = patchify(torch.where(live_BIXZ, slab_BIXZ, 0), shard.layout, shard.tokens)
        ids_BL = torch.arange(len(shard.tokens), device=patches_BLP.device).expand(len(patches_BLP), -1)
        positions_BL3 = positions_of(ids_BL, shard, spacing_B3)
        return self(patches_BLP, positions_BL3, shard.lengths, shard.rank, attention)  # type: ignore[no-any-return]


def positions_of(ids_BN: Tensor, shard: Shard, spacing_B3: Tensor | None) -> Tensor:
    """Coordinates (B, N, 3) in patches of own tokens ``ids`` (indices into L), for rotary positions.

    ``spacing_B3`` is the size of each crop's voxels over the reference (``ModelConfig.reference_spacing``), so that
    coordinates count patches of the reference; None counts the crop's own.
    """
    positions_BN3 = shard.layout.positions(ids_BN + shard.tokens.start)
    return positions_BN3 if spacing_B3 is None else positions_BN3 * spacing_B3[:, None]


def check_spacing(config: ModelConfig, spacing_B3: Tensor | None) -> None:
    """Raises ``ValueError`` for a model whose positions have a reference and that is not told the size of voxels."""
    if config.reference_spacing is not None and spacing_B3 is None:
        raise ValueError(
            f"spacing_B3 is None, but positions count voxels of {config.reference_spacing}; "
            "give the size of each crop's voxels over it"
        )
