"""The loss: squared errors of decoded patches, summed over live voxels in float32 or better.

Patches are most of a step's numbers outside the blocks, so they are passed over few times, and only the error is kept
for backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

VARIANCE_FLOOR = 1e-6  # of a patch, in normalised amplitude squared


def amplitude_loss(output_BMP: Tensor, target_BMP: Tensor, dead_BMP: Tensor) -> Tensor:
    """Squared error of amplitudes of voxels that are not dead. ``target`` is 0 where they are, and is overwritten."""
    accurate = torch.promote_types(output_BMP.dtype, torch.float32)
    return _SquaredError.apply(output_BMP, target_BMP.to(accurate), dead_BMP, None, None)  # type: ignore[no-any-return, no-untyped-call]


def normalised_loss(output_BMO: Tensor, target_BMP: Tensor, dead_BMP: Tensor) -> Tensor:
    """Squared error of each patch less its mean, in its own deviations; of its mean; and of its log deviation.

    The latter two count for each live voxel. ``output`` holds the shape of a patch and these two (O = P + 2);
    ``target`` is 0 where it is dead, and is overwritten. A patch without a live voxel has a mean of 0 and the
    floor's deviation.
    """
    accurate = torch.promote_types(output_BMO.dtype, torch.float32)
    live_BM1 = dead_BMP.shape[2] - dead_BMP.sum(2, keepdim=True, dtype=torch.int32)
    count_BM1 = live_BM1.clamp(min=1)
    mean_BM1 = target_BMP.sum(2, keepdim=True, dtype=accurate) / count_BM1
    shape_BMP = target_BMP.to(accurate).sub_(mean_BM1).masked_fill_(dead_BMP, 0)
    square_BM1 = torch.linalg.vector_norm(shape_BMP, dim=2, keepdim=True).square()
    deviation_BM1 = (square_BM1 / count_BM1 + VARIANCE_FLOOR).sqrt()
    statistics_BM2 = torch.cat((mean_BM1, deviation_BM1.log()), dim=2)
    return _SquaredError.apply(output_BMO, shape_BMP.div_(deviation_BM1), dead_BMP, statistics_BM2, live_BM1)  # type: ignore[no-any-return, no-untyped-call]


class _SquaredError(torch.autograd.Function):
    """Columns of ``output`` beyond the target's are scored against ``beyond``, as often as ``weight`` (B, M, 1) says.

    The error takes the memory of ``target``.
    """

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, target: Tensor, dead: Tensor, beyond: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        voxels = target.shape[2]
        error = torch.sub(output[..., :voxels], target, out=target).masked_fill_(dead, 0)
        total: Tensor = torch.linalg.vector_norm(error, dim=2).square().sum()
        error_beyond = None
        if beyond is not None and weight is not None:
            error_beyond = output[..., voxels:] - beyond
            total += (error_beyond.square() * weight).sum()
            error_beyond *= weight
        ctx.save_for_backward(error, error_beyond)
        ctx.like = (output.shape, output.dtype)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        error, error_beyond = ctx.saved_tensors
        shape, dtype = ctx.like
        gradient = torch.empty(shape, dtype=dtype, device=error.device)
        torch.mul(error, 2 * grad, out=gradient[..., : error.shape[2]])
        if error_beyond is not None:
            torch.mul(error_beyond, 2 * grad, out=gradient[..., error.shape[2] :])
        return gradient, None, None, None, None
