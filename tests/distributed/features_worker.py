"""What the processes of ``test_features`` do: features of one window that they share, and gradients through them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seismic_model.config import ModelConfig
from seismic_model.model.encoder import Encoder
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.model.masking import Masking, Shard, TokenLayout
from seismic_model.model.vit import Attention
from seismic_model.parallel.attention import attention_over
from seismic_model.parallel.mesh import arrange

LAYOUT = TokenLayout((10, 6, 16), (2, 2, 4))  # 60 tokens


def encoder() -> Encoder:
    config = ModelConfig(
        patch=LAYOUT.patch,
        width=24,
        depth=3,
        heads=2,
        decoder_width=12,
        decoder_depth=1,
        decoder_heads=2,
        registers=2,
    )
    return MaskedAutoencoder(config, seed=1).double().encoder


def window() -> tuple[Tensor, Tensor]:
    """Two windows and their live masks; some traces are dead."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, *LAYOUT.window, dtype=torch.float64, generator=generator)
    live = torch.rand(2, *LAYOUT.window[:2], 1, generator=generator) > 0.2
    return values, live.expand_as(values)


def features(net: Encoder, rank: int, cp: int, attention: Attention) -> dict[str, Tensor]:
    """Features of own tokens, and the gradient of their squares with respect to the embedding's weights."""
    shard = Shard.of(LAYOUT, Masking(1.0, 0), rank, cp)
    slab = LAYOUT.inline_slab(shard.tokens)
    values, live = (each[:, slab] for each in window())
    spacing = torch.tensor([[1.0, 2.0, 0.5]], dtype=torch.float64).expand(2, 3)
    found = net.features(values, live, shard, attention, spacing)
    found.square().sum().backward()
    return {"features": found.detach(), "gradient": net.patch_embed.weight.grad}


def share(processes: int) -> dict[str, NDArray[np.float64]]:
    """What this process finds of a window that all share."""
    mesh = arrange(processes, 1, torch.device("cpu"))
    found = features(encoder(), mesh.cp_rank, mesh.cp, attention_over(mesh))
    return {name: each.numpy() for name, each in found.items()}
