"""Rotary positions in three dimensions (Su et al. 2021, RoFormer, applied per axis).

The pairs of a head are split over inline, crossline and sample; attention then depends on differences of
coordinates only, so a model can be used on larger crops than it was trained on.
"""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 100.0  # wavelengths from 2π to almost 2π · BASE patches, for axes of tens of patches


def rotation(positions_BN3: Tensor, head_width: int, dtype: torch.dtype) -> Tensor:
    """What turns the pairs of tokens at coordinates (B, N, 3), in patches: complex (B, N, D / 2) of length 1.

    Angles are taken in float64; the numbers have the precision of ``dtype``, or of float32 if that is better.
    """
    angles_BND = rotary_angles(positions_BN3, head_width)
    accurate = torch.promote_types(dtype, torch.float32)
    return torch.complex(angles_BND.cos().to(accurate), angles_BND.sin().to(accurate))


def rotary_angles(positions_BN3: Tensor, head_width: int) -> Tensor:
    """Angles in radians, float64 (B, N, head_width / 2), of coordinates (B, N, 3)."""
    per_axis = [
        positions_BN3[..., axis, None].double() * BASE ** (-torch.arange(n, device=positions_BN3.device).double() / n)
        for axis, n in enumerate(_pairs_per_axis(head_width))
    ]
    return torch.cat(per_axis, dim=-1)


def pairs(x: Tensor) -> Tensor:
    """The pairs (2d, 2d + 1) of (..., D) as complex numbers (..., D / 2), in the same memory."""
    return torch.view_as_complex(x.view(*x.shape[:-1], x.shape[-1] // 2, 2))


def _pairs_per_axis(head_width: int) -> list[int]:
    """Share head_width / 2 pairs over three axes; what is left over goes to the first ones."""
    if head_width % 2 or head_width < 6:
        raise ValueError(f"head width {head_width} holds no rotary pair for each of three axes; expected even, ≥ 6")
    return [(head_width // 2 + 2 - axis) // 3 for axis in range(3)]
