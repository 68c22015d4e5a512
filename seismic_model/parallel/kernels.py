"""Attention kernels that give the log-sum-exp of each query, and whose backward accepts that of a wider attention.

With output and log-sum-exp of attention to all keys, backward over a part of the keys gives that part's exact
gradients. Every kernel wants a last axis of stride 1 and at least one query and one key (an empty key block ends
the process on the CPU). The CUDA kernels have not been run yet; only their signatures are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten

State = tuple[Any, ...]  # what a kernel's backward wants back from any of its forward calls
Three = tuple[Tensor, Tensor, Tensor]


class Kernel(NamedTuple):
    """One implementation of softmax(q kᵀ / √D) v over (B, H, N, D) and its gradients."""

    forward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, State]]  # q, k, v → out, lse (B, H, N), state
    backward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, State], Three]  # grad_out, q, k, v, out, lse


def kernel_for(q_BHND: Tensor) -> Kernel:
    """The fastest exact kernel for tensors like ``q``. Raises ``TypeError`` where there is none."""
    device, dtype, width = q_BHND.device, q_BHND.dtype, q_BHND.shape[3]
    if device.type == "cpu":
        return CPU_FLASH
    if dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and width <= 256:
        hopper = torch.cuda.get_device_capability(device) >= (9, 0)
        return CUDNN if hopper and width <= 128 and torch.backends.cudnn.is_available() else CUDA_FLASH  # type: ignore[no-untyped-call]
    if dtype in (torch.bfloat16, torch.float16, torch.float32):
        return EFFICIENT
    raise TypeError(f"no attention kernel on {device} takes {dtype}; expected bfloat16, float16 or float32")


def _cpu_flash(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, State]:
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    return out, lse, ()


def _cpu_flash_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, _state: State
) -> Three:
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(grad_out, q, k, v, out, lse, 0.0, False)  # type: ignore[no-any-return]


def _cuda_flash(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, State]:
    out, lse, starts_q, starts_k, _, _, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v)
    return out, lse, (starts_q, starts_k, seed, offset)


def _cuda_flash_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, state: State
) -> Three:
    starts_q, starts_k, seed, offset = state
    return aten._scaled_dot_product_flash_attention_backward(  # type: ignore[no-any-return]
        grad_out, q, k, v, out, lse, starts_q, starts_k, q.shape[2], k.shape[2], 0.0, False, seed, offset
    )


def _cudnn(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, State]:
    out, lse, starts_q, starts_k, _, _, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True)
    return out, lse.squeeze(3), (starts_q, starts_k, seed, offset)  # cuDNN gives (B, H, N, 1)


def _cudnn_backward(grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, state: State) -> Three:
    starts_q, starts_k, seed, offset = state
    return aten._scaled_dot_product_cudnn_attention_backward(  # type: ignore[no-any-return]
        *(grad_out, q, k, v, out, lse.unsqueeze(3), seed, offset, None),
        *(starts_q, starts_k, q.shape[2], k.shape[2], 0.0, False),
    )


def _efficient(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, State]:
    out, lse, seed, offset = aten._scaled_dot_product_efficient_attention(q, k, v, None, True)
    return out, lse.narrow(2, 0, q.shape[2]), (seed, offset)  # its rows are padded to a multiple of 32


def _efficient_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, state: State
) -> Three:
    padded = F.pad(lse, (0, -q.shape[2] % 32), value=torch.inf)
    gradients = aten._scaled_dot_product_efficient_attention_backward(
        grad_out, q, k, v, None, out, padded, *state, 0.0, [True, True, True, False]
    )
    return gradients[0], gradients[1], gradients[2]


CPU_FLASH = Kernel(_cpu_flash, _cpu_flash_backward)
CUDA_FLASH = Kernel(_cuda_flash, _cuda_flash_backward)
CUDNN = Kernel(_cudnn, _cudnn_backward)
EFFICIENT = Kernel(_efficient, _efficient_backward)
