"""The two halves of a transformer block around its attention, written to keep little for backward.

Normalised inputs and the output of GELU are made again in backward from what is kept anyway, and queries and keys are
normalised and turned where they lie. A block then keeps 10 widths a token: its input, queries, keys, values, what
attention mixed, the input of the MLP and four of its hidden layer. Left to autograd it would be 18.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seismic_model.model.rope import pairs

EPSILON = 1e-6

aten = torch.ops.aten


class Projection(nn.Module):
    """A linear layer into heads, and RMS norm and rotary turn of the first of its parts.

    The norm (Dehghani et al. 2023, for queries and keys) has one gain a head, learned as its logarithm. A gain for each
    number would say nothing more, since the linear layer can scale its rows; but it would not commute with the turn.

    Args:
        width: of the input, and of each part.
        heads: of each part.
        turned: parts that are normalised and turned, queries or keys.
        plain: parts that are not, values.
        normed: whether the input is taken through a LayerNorm.
    """

    def __init__(self, width: int, heads: int, *, turned: int, plain: int, normed: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.norm_weight = nn.Parameter(torch.ones(width)) if normed else None
        self.norm_bias = nn.Parameter(torch.zeros(width)) if normed else None
        self.weight = nn.Parameter(torch.empty((turned + plain) * width, width))
        self.bias = nn.Parameter(torch.zeros((turned + plain) * width))
        self.log_gain = nn.Parameter(torch.zeros(turned * heads))

    def forward(self, x_BNW: Tensor, rotation_BND: Tensor) -> tuple[Tensor, ...]:
        """The parts, each (B, H, N, D); ``rotation`` as ``rope.rotation`` gives it."""
        parameters = (self.norm_weight, self.norm_bias, self.weight, self.bias, self.log_gain)
        return _Project.apply(x_BNW, *parameters, rotation_BND, self.heads)  # type: ignore[no-any-return, no-untyped-call]


class Mlp(nn.Module):
    """LayerNorm, a linear layer to four widths, GELU, a linear layer back, and the input added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_weight = nn.Parameter(torch.ones(width))
        self.norm_bias = nn.Parameter(torch.zeros(width))
        self.up_weight = nn.Parameter(torch.empty(4 * width, width))
        self.up_bias = nn.Parameter(torch.zeros(4 * width))
        self.down_weight = nn.Parameter(torch.empty(width, 4 * width))
        self.down_bias = nn.Parameter(torch.zeros(width))

    def forward(self, x_BNW: Tensor) -> Tensor:
        """(B, N, W) → (B, N, W)."""
        return _Mlp.apply(  # type: ignore[no-any-return, no-untyped-call]
            x_BNW, self.norm_weight, self.norm_bias, self.up_weight, self.up_bias, self.down_weight, self.down_bias
        )


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        norm_weight: Tensor | None,
        norm_bias: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        log_gain: Tensor,
        rotation: Tensor,
        heads: int,
    ) -> tuple[Tensor, ...]:
        normed, mean, rstd = _normalise(x, norm_weight, norm_bias)
        width = x.shape[2]
        parts = F.linear(normed, weight, bias).view(*x.shape[:2], len(weight) // width, heads, width // heads)
        turned = parts[:, :, : len(log_gain) // heads]
        values = turned.to(rotation.real.dtype)  # where that is its own type: the same memory
        length = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        factor = length.square_().div_(values.shape[-1]).add_(EPSILON).rsqrt_()
        factor *= log_gain.to(factor.dtype).exp().view(-1, heads, 1)
        pairs(values.mul_(factor)).mul_(rotation[:, :, None, None])
        if values.dtype != turned.dtype:
            turned.copy_(values)
        outputs = tuple(part.transpose(1, 2) for part in parts.unbind(2))
        kept = outputs[: turned.shape[2]]
        ctx.save_for_backward(x, norm_weight, norm_bias, mean, rstd, weight, log_gain, rotation, factor, *kept)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, norm_weight, norm_bias, mean, rstd, weight, log_gain, rotation, factor, *turned = ctx.saved_tensors
        batch, heads, tokens, depth = gradients[0].shape
        grad_parts = x.new_empty(batch, tokens, len(gradients), heads, depth)
        grad_log_gain = torch.empty_like(log_gain).view(-1, heads)
        share = -torch.exp(-2 * log_gain.to(factor.dtype)).view(-1, heads) / depth
        for s, (part, gradient) in enumerate(zip(turned, gradients, strict=False)):
            part, gradient = (each.transpose(1, 2).to(factor.dtype) for each in (part, gradient))
            # along the part itself, which no turn changes
            along = ((gradient * part).flatten(0, 2) @ factor.new_ones(depth)).view(batch, tokens, heads)
            grad_log_gain[s] = along.sum((0, 1))
            grad = torch.addcmul(gradient, part, along.mul_(share[s])[..., None])
            pairs(grad).mul_(rotation.conj()[:, :, None])
            torch.mul(grad, factor[:, :, s], out=grad_parts[:, :, s])
        for s in range(len(turned), len(gradients)):
            grad_parts[:, :, s] = gradients[s].transpose(1, 2)
        grad = grad_parts.flatten(2)
        normed, _, _ = _normalise(x, norm_weight, norm_bias)
        grad_weight, grad_bias = grad.flatten(0, 1).T @ normed.flatten(0, 1), grad.sum((0, 1))
        del normed
        through_norm = _normalise_backward(grad @ weight, x, mean, rstd, norm_weight, norm_bias)
        return *through_norm, grad_weight, grad_bias, grad_log_gain.flatten(), None, None


class _Mlp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        up_weight: Tensor,
        up_bias: Tensor,
        down_weight: Tensor,
        down_bias: Tensor,
    ) -> Tensor:
        normed, mean, rstd = _normalise(x, norm_weight, norm_bias)
        hidden = F.linear(normed, up_weight, up_bias)
        ctx.save_for_backward(x, norm_weight, norm_bias, mean, rstd, up_weight, down_weight, hidden)
        return F.linear(F.gelu(hidden), down_weight, down_bias).add_(x)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        x, norm_weight, norm_bias, mean, rstd, up_weight, down_weight, hidden = ctx.saved_tensors
        grad = grad_out.flatten(0, 1)
        grad_down = grad.T @ F.gelu(hidden).flatten(0, 1)
        grad_hidden = grad_out @ down_weight
        aten.gelu_backward.grad_input(grad_hidden, hidden, grad_input=grad_hidden)
        normed, _, _ = _normalise(x, norm_weight, norm_bias)
        grad_up = grad_hidden.flatten(0, 1).T @ normed.flatten(0, 1)
        del normed
        through_norm = _normalise_backward(grad_hidden @ up_weight, x, mean, rstd, norm_weight, norm_bias)
        through_norm[0].add_(grad_out)
        return *through_norm, grad_up, grad_hidden.sum((0, 1)), grad_down, grad.sum(0)


Three = tuple[Tensor, Tensor | None, Tensor | None]


def _normalise(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Three:
    """LayerNorm with its mean and reciprocal deviation, or ``x`` itself without weight."""
    if weight is None:
        return x, None, None
    return aten.native_layer_norm(x, weight.shape, weight, bias, EPSILON)  # type: ignore[no-any-return]


def _normalise_backward(
    grad: Tensor, x: Tensor, mean: Tensor | None, rstd: Tensor | None, weight: Tensor | None, bias: Tensor | None
) -> Three:
    """Gradients of x, weight and bias."""
    if weight is None:
        return grad, None, None
    return aten.native_layer_norm_backward(  # type: ignore[no-any-return]
        grad, x, weight.shape, mean, rstd, weight, bias, [True, True, True]
    )
