"""Rotary positions in three dimensions (Su et al. 2021, RoFormer, applied per axis).

The pairs of a head are split over inline, crossline and sample; attention then depends on differences of
patch coordinates only, so a model can be used on larger crops than it was trained on.
"""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 100.0  # wavelengths from 2π to almost 2π · BASE patches, for axes of tens of patches


def rotary_angles(positions_BL3: Tensor, head_width: int) -> Tensor:
    """Angles in radians, float64 (B, L, head_width / 2), of integer patch coordinates (B, L, 3)."""
    per_axis = [
        positions_BL3[..., axis, None].double() * BASE ** (-torch.arange(n, device=positions_BL3.device).double() / n)
        for axis, n in enumerate(_pairs_per_axis(head_width))
    ]
    return torch.cat(per_axis, dim=-1)


def rotate(x_BHND: Tensor, angles_BND: Tensor) -> Tensor:
    """Turn the pairs (d, d + D/2) of each head by their angles, in float32 or better; the type of ``x`` stays."""
    accurate = torch.promote_types(x_BHND.dtype, torch.float32)
    cos, sin = (f(angles_BND).to(accurate).unsqueeze(1) for f in (torch.cos, torch.sin))
    a, b = x_BHND.to(accurate).chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x_BHND.dtype)


def _pairs_per_axis(head_width: int) -> list[int]:
    """Share head_width / 2 pairs over three axes; what is left over goes to the first ones."""
    if head_width % 2 or head_width < 6:
        raise ValueError(f"head width {head_width} holds no rotary pair for each of three axes; expected even, ≥ 6")
    return [(head_width // 2 + 2 - axis) // 3 for axis in range(3)]
