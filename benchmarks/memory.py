"""How many bytes of tensors a block of code holds at its worst moment, as the CPU allocator counts them.

    with peak_memory() as memory:
        loss = model(x).sum()
        loss.backward()
    memory.peak_bytes

Every allocation of this thread counts: activations kept for backward, gradients, what backward makes, and the scratch
space of single operators. What is alive at entry does not count (parameters and inputs: ``tensor_bytes`` sums those).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler tells when it starts and stops

from torch import Tensor
from torch.autograd.profiler import profile  # torch.profiler's would import the compiler, which takes seconds


@dataclass
class Memory:
    """What a block of code held beyond the tensors that it found; 0 until the block has ended."""

    peak_bytes: int = 0
    left_bytes: int = 0  # still held when it ended


@contextmanager
def peak_memory() -> Iterator[Memory]:
    """Count what the block allocates on the CPU. It runs more slowly meanwhile, so do not time it.

    Memory that was taken before the block and is given back in it is not subtracted.
    """
    memory = Memory()
    with profile(profile_memory=True) as profiler:
        yield memory
    assert profiler.kineto_results is not None
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        memory.left_bytes += event.nbytes()
        memory.peak_bytes = max(memory.peak_bytes, memory.left_bytes)


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages under ``tensors``, each storage once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
