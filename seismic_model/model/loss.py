"""The loss: squared errors of decoded patches, summed over live voxels in float32 or better.

Patches are most of a step's numbers outside the blocks, so they are passed over few times, and only the error is kept
for backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

VARIANCE_FLOOR = 1e-6  # of a patch, in normalised amplitude squared


def amplitude_loss(output_BMP: Tensor, target_BMP: Tensor, live_BMP: Tensor) -> Tensor:
    """Squared error of amplitudes; ``target`` is 0 where it is not live."""
    return _SquaredError.apply(output_BMP, target_BMP, live_BMP, None)  # type: ignore[no-any-return, no-untyped-call]


def normalised_loss(output_BMO: Tensor, target_BMP: Tensor, live_BMP: Tensor) -> Tensor:
    """Squared error of each patch less its mean, in its own deviations; of its mean; and of its log deviation.

    The latter two count for each live voxel. ``output`` holds the shape of a patch and these two (O = P + 2);
    ``target`` is 0 where it is not live. A patch without a live voxel has a mean of 0 and the floor's deviation.
    """
    voxels = target_BMP.shape[2]
    accurate = torch.promote_types(output_BMO.dtype, torch.float32)
    expected_BMO = torch.empty(output_BMO.shape, dtype=accurate, device=output_BMO.device)
    shape_BMP, mean_BM1, log_deviation_BM1 = torch.split(expected_BMO, [voxels, 1, 1], dim=2)
    live_BM1 = live_BMP.sum(2, keepdim=True, dtype=torch.int32)
    count_BM1 = live_BM1.clamp(min=1)
    torch.div(target_BMP.sum(2, keepdim=True, dtype=accurate), count_BM1, out=mean_BM1)
    torch.sub(target_BMP, mean_BM1, out=shape_BMP).masked_fill_(~live_BMP, 0)
    square_BM1 = torch.linalg.vector_norm(shape_BMP, dim=2, keepdim=True).square_()
    deviation_BM1 = square_BM1.div_(count_BM1).add_(VARIANCE_FLOOR).sqrt_()
    shape_BMP /= deviation_BM1
    torch.log(deviation_BM1, out=log_deviation_BM1)
    return _SquaredError.apply(output_BMO, expected_BMO, live_BMP, live_BM1)  # type: ignore[no-any-return, no-untyped-call]


class _SquaredError(torch.autograd.Function):
    """Columns of ``output`` beyond the live mask's count for each live voxel of their row."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, expected: Tensor, live: Tensor, live_count: Tensor | None) -> Tensor:
        voxels = live.shape[2]
        error = output.to(torch.promote_types(output.dtype, torch.float32)) - expected
        ctx.dtype = output.dtype
        error[..., :voxels].masked_fill_(~live, 0)
        total: Tensor = torch.linalg.vector_norm(error[..., :voxels], dim=2).square().sum()
        if live_count is not None:
            total += (error[..., voxels:].square() * live_count).sum()
            error[..., voxels:] *= live_count
        ctx.save_for_backward(error)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (error,) = ctx.saved_tensors
        return (error * (2 * grad)).to(ctx.dtype), None, None, None
