"""Which kernel is taken, that it is exact, and that what CUDA kernels are called with fits their signatures."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from seismic_model.parallel import kernels
from seismic_model.parallel.kernels import CPU_FLASH, CUDA_FLASH, CUDNN, EFFICIENT, Kernel, kernel_for


def tensors(queries: int, keys: int, **options: object) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradient of the output, q, k, v."""
    return tuple(torch.randn(2, 3, n, 16, **options) for n in (queries, queries, keys, keys))  # type: ignore[call-overload,return-value]


def test_parts_of_the_keys_give_the_gradients_of_all() -> None:
    torch.manual_seed(0)
    grad, q, k, v = tensors(9, 13, dtype=torch.float64)
    kernel = kernel_for(q)
    out, lse, state = kernel.forward(q, k, v)
    whole = kernel.backward(grad, q, k, v, out, lse, state)
    parts = [kernel.backward(grad, q, k[:, :, s], v[:, :, s], out, lse, state) for s in (slice(0, 4), slice(4, 13))]
    joined = [
        parts[0][0] + parts[1][0],
        *(torch.cat([a, b], dim=2) for a, b in zip(*(p[1:] for p in parts), strict=True)),
    ]
    for expected, found in zip(whole, joined, strict=True):
        torch.testing.assert_close(found, expected)
    scores = q @ k.transpose(2, 3) / 16**0.5
    torch.testing.assert_close(lse, scores.logsumexp(3))
    torch.testing.assert_close(out, scores.softmax(3) @ v)


@pytest.mark.parametrize(
    ("dtype", "kernel"),
    [(torch.bfloat16, CUDA_FLASH), (torch.bfloat16, CUDNN), (torch.float32, EFFICIENT), (torch.bfloat16, EFFICIENT)],
)
def test_cuda_kernels_accept_what_they_are_called_with(dtype: torch.dtype, kernel: Kernel) -> None:
    """On tensors without memory: names, order and shapes are checked, values are not."""
    with FakeTensorMode():
        grad, q, k, v = tensors(37, 50, dtype=dtype, device="cuda")
        out, lse, state = kernel.forward(q, k, v)
        assert (out.shape, out.dtype, lse.shape, lse.dtype) == (q.shape, dtype, q.shape[:3], torch.float32)
        merged = torch.logaddexp(lse, lse)
        gradients = kernel.backward(grad, q, k, v, out, merged, state)
        assert [g.shape for g in gradients] == [q.shape, k.shape, v.shape]


@pytest.mark.parametrize(
    ("capability", "dtype", "width", "kernel"),
    [
        ((9, 0), torch.bfloat16, 64, CUDNN),
        ((9, 0), torch.bfloat16, 256, CUDA_FLASH),
        ((8, 0), torch.float16, 64, CUDA_FLASH),
        ((9, 0), torch.bfloat16, 12, EFFICIENT),
        ((9, 0), torch.float32, 64, EFFICIENT),
    ],
)
def test_the_kernel_follows_card_precision_and_width(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: torch.dtype, width: int, kernel: Kernel
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(kernels.torch.backends.cudnn, "is_available", lambda: True)
    with FakeTensorMode():
        assert kernel_for(torch.empty(1, 1, 1, width, dtype=dtype, device="cuda")) is kernel


def test_float64_has_no_kernel_on_cuda() -> None:
    assert kernel_for(torch.empty(1, 1, 1, 8, dtype=torch.float64)) is CPU_FLASH
    with (
        FakeTensorMode(),
        pytest.raises(TypeError, match=r"takes torch.float64; expected bfloat16, float16 or float32"),
    ):
        kernel_for(torch.empty(1, 1, 1, 8, dtype=torch.float64, device="cuda"))
