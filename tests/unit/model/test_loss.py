"""The losses are their plain formulas, and have the right gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seismic_model.model.loss import VARIANCE_FLOOR, amplitude_loss, normalised_loss

LIVE = torch.rand(2, 5, 8, generator=torch.Generator().manual_seed(1)) < 0.7
LIVE[0, 0] = False  # a patch without a live voxel
LIVE[0, 1] = True


def drawn(dtype: torch.dtype, beyond: int) -> tuple[Tensor, Tensor]:
    """Output and target; the target has an offset, and is 0 where it is not live."""
    generator = torch.Generator().manual_seed(0)
    output = torch.randn(2, 5, 8 + beyond, dtype=torch.float64, generator=generator)
    target = torch.where(LIVE, 3 + 2 * torch.randn(2, 5, 8, dtype=torch.float64, generator=generator), 0)
    return output.to(dtype).requires_grad_(), target.to(dtype)


def plain_amplitude(output: Tensor, target: Tensor) -> Tensor:
    return (output.double() - target.double())[LIVE].square().sum()


def plain_normalised(output: Tensor, target: Tensor) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for predicted, wanted, live in zip(output.flatten(0, 1), target.flatten(0, 1), LIVE.flatten(0, 1), strict=True):
        if live.any():
            voxels, (mean, log_deviation) = wanted[live].double(), predicted.double()[-2:]
            deviation = (voxels.var(correction=0) + VARIANCE_FLOOR).sqrt()
            shape = (voxels - voxels.mean()) / deviation
            error = (predicted[:-2][live].double() - shape).square()
            total = total + error.sum() + live.sum() * (mean - voxels.mean()).square()
            total = total + live.sum() * (log_deviation - deviation.log()).square()
    return total


both = pytest.mark.parametrize(
    ("loss", "plain", "beyond"),
    [(amplitude_loss, plain_amplitude, 0), (normalised_loss, plain_normalised, 2)],
    ids=["amplitude", "normalised"],
)


@both
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.02)]
)
def test_losses_and_gradients_are_those_of_the_plain_formula(
    loss: Callable[..., Tensor],
    plain: Callable[..., Tensor],
    beyond: int,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    output, target = drawn(dtype, beyond)
    found, expected = loss(output, target.clone(), ~LIVE), plain(output, target)
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=tolerance)
    (gradient,) = torch.autograd.grad(found * 0.5, output)
    (wanted,) = torch.autograd.grad(expected * 0.5, output)
    assert gradient.dtype == dtype
    assert float((gradient - wanted).norm() / wanted.norm()) < tolerance


@both
def test_no_tokens_have_no_loss(loss: Callable[..., Tensor], plain: Callable[..., Tensor], beyond: int) -> None:
    output = torch.zeros(2, 0, 8 + beyond, requires_grad=True)
    found = loss(output, torch.zeros(2, 0, 8), torch.zeros(2, 0, 8, dtype=torch.bool))
    found.backward()  # type: ignore[no-untyped-call]
    assert float(found.detach()) == 0
