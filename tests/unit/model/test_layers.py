"""The parts of a block compute what their plain formulas say, have the right gradients, and keep little."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seismic_model.model.layers import EPSILON, Mlp, Projection
from seismic_model.model.rope import rotation
from seismic_model.model.vit import Block, Place, full_attention

WIDTH, HEADS = 24, 2

kinds = pytest.mark.parametrize(
    ("turned", "plain", "normed"), [(2, 1, True), (1, 0, True), (1, 1, False)], ids=["self", "query", "memory"]
)


def drawn(module: Any) -> Any:
    """With random weights in float64, gains and biases included."""
    torch.manual_seed(0)
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def tokens(batch: int = 2, count: int = 5, width: int = WIDTH, heads: int = HEADS) -> tuple[Tensor, Tensor]:
    """Tokens that want a gradient, and the rotation of their positions."""
    positions_BN3 = torch.randint(0, 9, (batch, count, 3))
    x_BNW = torch.randn(batch, count, width, dtype=torch.float64, requires_grad=True)
    return x_BNW, rotation(positions_BN3, width // heads, x_BNW.dtype)


def has_right_gradients(module: nn.Module, *inputs: Tensor) -> bool:
    names = [name for name, _ in module.named_parameters()]

    def call(x: Tensor, *parameters: Tensor) -> Any:
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x, *inputs[1:]))

    return torch.autograd.gradcheck(call, (inputs[0], *module.parameters()))


@kinds
def test_gradients_of_a_projection(turned: int, plain: int, normed: bool) -> None:
    module = drawn(Projection(WIDTH, HEADS, turned=turned, plain=plain, normed=normed))
    assert has_right_gradients(module, *tokens())


def test_gradients_of_the_mlp() -> None:
    assert has_right_gradients(drawn(Mlp(WIDTH)), tokens()[0])


@kinds
def test_a_projection_is_a_linear_layer_then_norm_and_turn(turned: int, plain: int, normed: bool) -> None:
    module = drawn(Projection(WIDTH, HEADS, turned=turned, plain=plain, normed=normed))
    x, by = tokens()
    h = F.layer_norm(x, (WIDTH,), module.norm_weight, module.norm_bias, EPSILON) if normed else x
    expected = list(F.linear(h, module.weight, module.bias).view(2, 5, turned + plain, HEADS, -1).unbind(2))
    for part, log_gain in enumerate(module.log_gain.view(turned, HEADS, 1)):
        unit = F.rms_norm(expected[part], (WIDTH // HEADS,), eps=EPSILON) * log_gain.exp()
        a, b = unit[..., ::2], unit[..., 1::2]
        cos, sin = by.real[:, :, None], by.imag[:, :, None]
        expected[part] = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(3)
    for found, wanted in zip(module(x, by), expected, strict=True):
        torch.testing.assert_close(found, wanted.transpose(1, 2))


def test_the_mlp_adds_its_input() -> None:
    module, (x, _) = drawn(Mlp(WIDTH)), tokens()
    h = F.layer_norm(x, (WIDTH,), module.norm_weight, module.norm_bias, EPSILON)
    h = F.linear(F.gelu(F.linear(h, module.up_weight, module.up_bias)), module.down_weight, module.down_bias)
    torch.testing.assert_close(module(x), x + h)


def test_bfloat16_is_near_float64() -> None:
    for module in (drawn(Projection(WIDTH, HEADS, turned=2, plain=1)), drawn(Mlp(WIDTH))):
        x, by = tokens()
        inputs = [x, by][: 1 + isinstance(module, Projection)]
        exact = gradients(module, *inputs)
        module.bfloat16()
        rough = gradients(
            module, *(each.to(torch.complex64 if each.is_complex() else torch.bfloat16) for each in inputs)
        )
        for found, expected in zip(rough, exact, strict=True):
            assert float((found - expected).norm() / expected.norm()) < 0.03


def gradients(module: nn.Module, x: Tensor, *rest: Tensor) -> list[Tensor]:
    out = module(x, *rest)
    total = sum(
        (each.double() * torch.linspace(-1, 1, each.numel()).view_as(each)).sum()
        for each in (out if isinstance(out, tuple) else (out,))
    )
    return list(torch.autograd.grad(total, [x, *module.parameters()]))


def test_a_block_keeps_ten_widths_a_token() -> None:
    width, count = 96, 512
    x, by = tokens(1, count, width, heads=4)
    block = Block(width, 4).double()
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        block(x, Place(by, (count,)), full_attention).sum()
    weights = sum(each.untyped_storage().nbytes() for each in block.parameters())
    rotations = by.untyped_storage().nbytes()
    widths = (sum(kept.values()) - weights - rotations) / (count * width * 8)
    assert widths == pytest.approx(10, abs=0.4)  # and some numbers a head and token
