"""Rotary positions in three dimensions (Su et al. 2021, RoFormer, applied per axis).

The pairs of a head are split over inline, crossline and sample; attention then depends on differences of
coordinates only, so a model can be used on larger crops than it was trained on.
"""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 100.0  # wavelengths from 2π to almost 2π · BASE patches, for axes of tens of patches

Rotation = tuple[Tensor, Tensor]
"""Cosine and sine (B, 1, N, D / 2) of the angles of some tokens, for all heads."""


def rotation(positions_BN3: Tensor, head_width: int, dtype: torch.dtype) -> Rotation:
    """Of tokens at coordinates (B, N, 3), in patches; taken in float64, given in ``dtype`` or float32 if better."""
    angles_B1ND = rotary_angles(positions_BN3, head_width).unsqueeze(1)
    accurate = torch.promote_types(dtype, torch.float32)
    return angles_B1ND.cos().to(accurate), angles_B1ND.sin().to(accurate)


def rotary_angles(positions_BN3: Tensor, head_width: int) -> Tensor:
    """Angles in radians, float64 (B, N, head_width / 2), of coordinates (B, N, 3)."""
    per_axis = [
        positions_BN3[..., axis, None].double() * BASE ** (-torch.arange(n, device=positions_BN3.device).double() / n)
        for axis, n in enumerate(_pairs_per_axis(head_width))
    ]
    return torch.cat(per_axis, dim=-1)


def rotate(x_BHND: Tensor, by: Rotation) -> Tensor:
    """Turn the pairs (d, d + D/2) of each head, in the rotation's precision; the type of ``x`` stays."""
    cos, sin = by
    a, b = x_BHND.to(cos.dtype).chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x_BHND.dtype)


def _pairs_per_axis(head_width: int) -> list[int]:
    """Share head_width / 2 pairs over three axes; what is left over goes to the first ones."""
    if head_width % 2 or head_width < 6:
        raise ValueError(f"head width {head_width} holds no rotary pair for each of three axes; expected even, ≥ 6")
    return [(head_width // 2 + 2 - axis) // 3 for axis in range(3)]
