"""What does attention spread over ranks cost in accuracy, memory and time, beside one process?

    python -m benchmarks.attention [--json] [--tokens N]

Real processes talk by gloo on two cores. Each rank holds an equal share of q, k, v and runs forward and backward.

- error: largest difference of output or gradients to one process in float64, over the largest value. The row of one
  process is the kernel's own error in float32.
- bytes: what a rank holds at its worst moment, its inputs included, as the CPU allocator counts it (``memory``).
- time: N single-threaded ranks on two cores against one process with two threads on the same two, so that both
  have the same cores for the same work; all ways in turn, round after round, each begun together and ended by its
  last rank. The ratio is the median over rounds. One process is timed twice a round: the ratio in its row is noise.

"all-gather" is what one would write first: every rank collects all keys and values and keeps them for backward.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor
from torch.distributed._functional_collectives import all_gather_single_autograd

from benchmarks.common import CannotMeasureError, Goal, Measured, run, say
from benchmarks.crew import Crew, CrewError
from benchmarks.memory import peak_memory, tensor_bytes
from seismic_model.parallel.attention import attention_over
from seismic_model.parallel.mesh import Mesh, arrange

CORES = 2
RANKS = 8  # of the crew; layouts of fewer leave the others idle
HEADS, WIDTH = 8, 32  # of a head
TOKENS, TIMED_TOKENS, ROUNDS = 32768, 8192, 5
ALL_GATHER = "all-gather"


@dataclass(frozen=True)
class Way:
    """One way to compute attention of ``tokens`` tokens with ``ranks`` processes."""

    name: str
    ranks: int
    ulysses: int = 1
    tokens: int = TOKENS
    dtype: torch.dtype = torch.float32


ONE_PROCESS = Way("one process", 1)
RING_OF_TWO, RING_OF_EIGHT = Way("ring", 2), Way("ring", 8)
WAYS = [
    ONE_PROCESS,
    RING_OF_TWO,
    Way("ring", 4),
    RING_OF_EIGHT,
    Way("heads", 2, ulysses=2),
    Way("heads", 8, ulysses=8),
    Way("ring 2 x heads 2", 4, ulysses=2),
    Way("ring 4 x heads 2", 8, ulysses=2),
    Way(ALL_GATHER, 2),
    Way(ALL_GATHER, 8),
]


class Examined(NamedTuple):
    """Of one rank."""

    peak_bytes: int
    results: list[NDArray[Any]]  # output, gradients of q, k, v


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument(
        "--tokens", type=_tokens, default=TOKENS, metavar="N", help="a try with other than 32768 tokens"
    )
    options = parser.parse_args()
    timed = min(TIMED_TOKENS, options.tokens)
    return run("attention", lambda: measure(options.tokens, timed), tabulate, as_json=options.json)


def measure(tokens: int = TOKENS, timed_tokens: int = TIMED_TOKENS, rounds: int = ROUNDS) -> Measured:
    """Errors and bytes at ``tokens``, times at ``timed_tokens``. Raises ``CannotMeasureError``."""
    try:
        with _on_cores(CORES), Crew(RANKS, timeout=600) as crew:
            for ranks, ulysses in {(way.ranks, way.ulysses) for way in WAYS}:
                crew.ask(_arrange, ranks, ulysses)
            say(f"one process in float64, {tokens} tokens")
            exact = _examine(crew, replace(ONE_PROCESS, tokens=tokens, dtype=torch.float64))[1]
            rows = [_row(crew, replace(way, tokens=tokens), exact) for way in WAYS]
            for row, seconds in zip(rows, _times(crew, timed_tokens, rounds), strict=True):
                row.update(timed_tokens=timed_tokens, **seconds)
    except CrewError as error:
        raise CannotMeasureError(str(error)) from error
    for row in rows:
        row["bytes_ratio"] = row["peak_bytes"] / rows[0]["peak_bytes"]
    return Measured(rows, goals(rows))


def _row(crew: Crew, way: Way, exact: list[NDArray[Any]]) -> dict[str, Any]:
    say(f"{way.name}, {way.ranks} ranks, {way.tokens} tokens")
    peak_bytes, results = _examine(crew, way)
    errors = [float(abs(f - e).max() / abs(e).max()) for f, e in zip(results, exact, strict=True)]
    return {
        "way": way.name,
        "ranks": way.ranks,
        "ulysses": way.ulysses,
        "tokens": way.tokens,
        "output_error": errors[0],
        "gradient_error": float(np.max(errors[1:])),  # NaN, if any is
        "peak_bytes": peak_bytes,
    }


def _examine(crew: Crew, way: Way) -> tuple[int, list[NDArray[Any]]]:
    """Bytes of the rank that holds most, and the results of all."""
    ranks: list[Examined] = crew.ask(_examine_rank, way, ranks=range(way.ranks))
    results = [np.concatenate(parts, axis=2) for parts in zip(*(rank.results for rank in ranks), strict=True)]
    return max(rank.peak_bytes for rank in ranks), results


def _times(crew: Crew, tokens: int, rounds: int) -> list[dict[str, float]]:
    """Median seconds and ratio to one process of each way."""
    ways = [replace(way, tokens=tokens) for way in (ONE_PROCESS, *WAYS)]
    seconds: list[list[float]] = []
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}" if number else "warm-up")
        seconds.append([max(crew.ask(_time_rank, way, ranks=range(way.ranks))) for way in ways])
    measured = seconds[1:]
    return [
        {
            "seconds": statistics.median(each[column] for each in measured),
            "time_ratio": statistics.median(each[column] / each[0] for each in measured),
        }
        for column in range(1, len(ways))
    ]


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """Accuracy of the worst layout, memory of the ring of eight, time of the ring of two."""
    by_way = {(row["way"], row["ranks"]): row for row in rows}
    eight, two = (by_way[way.name, way.ranks] for way in (RING_OF_EIGHT, RING_OF_TWO))
    ours = [row["gradient_error"] for row in rows if row["way"] != ALL_GATHER]
    return [
        Goal(
            "float32 gradient error, worst layout",
            1e6 * float(np.max(ours)),
            "millionths of the largest value",
            3,
            "lower",
        ),
        Goal(
            f"bytes a rank, ring of 8, {eight['tokens']} tokens", eight["bytes_ratio"], "of one process", 0.30, "lower"
        ),
        Goal("time of a ring of 2 on the same two cores", two["time_ratio"], "of full attention", 1.05, "lower"),
    ]


def tabulate(rows: list[dict[str, Any]]) -> Table:
    """Rows as people read them."""
    table = Table(
        "way", "ranks", "output error", "gradient error", "MiB a rank", "of one", "s", "of one", box=SIMPLE_HEAD
    )
    table.caption = f"bytes and errors at {rows[0]['tokens']} tokens, times at {rows[0]['timed_tokens']}"
    for row in rows:
        table.add_row(
            row["way"],
            str(row["ranks"]),
            f"{row['output_error']:.1e}",
            f"{row['gradient_error']:.1e}",
            f"{row['peak_bytes'] / 2**20:.1f}",
            f"{row['bytes_ratio']:.3f}",
            f"{row['seconds']:.2f}",
            f"{row['time_ratio']:.3f}",
        )
    return table


@cache
def _mesh(ranks: int, ulysses: int) -> Mesh:
    """Groups of ``ranks`` processes, all of the crew; what follows happens in the first group."""
    return arrange(ranks, ulysses, torch.device("cpu"))


def _arrange(ranks: int, ulysses: int) -> None:
    _mesh(ranks, ulysses)


def _examine_rank(way: Way) -> Examined:
    *inputs, grad = tensors = _own_tensors(way)
    attend = _prepare(way)
    with peak_memory() as memory:
        out = attend(*inputs)
        gradients = torch.autograd.grad(out, inputs, grad)
    return Examined(tensor_bytes(tensors) + memory.peak_bytes, [x.numpy() for x in (out.detach(), *gradients)])


def _time_rank(way: Way) -> float:
    *inputs, grad = _own_tensors(way)
    attend = _prepare(way)
    group = _mesh(way.ranks, way.ulysses).host_group
    dist.barrier(group)
    began = time.perf_counter()
    torch.autograd.grad(attend(*inputs), inputs, grad)
    dist.barrier(group)
    return time.perf_counter() - began


def _own_tensors(way: Way) -> list[Tensor]:
    """Own part of q, k, v and of the output's gradient, (1, H, N, D): the same values for any number of ranks.

    They lie in memory as the model leaves them: q and k head by head, v and the gradient token by token.
    """
    share = RANKS // way.ranks
    rank = _mesh(way.ranks, way.ulysses).cp_rank
    parts = [
        torch.randn(4, 1, way.tokens // RANKS, HEADS, WIDTH, generator=torch.Generator().manual_seed(part))
        for part in range(rank * share, (rank + 1) * share)
    ]
    q, k, v, grad = (x.to(way.dtype).transpose(1, 2) for x in torch.cat(parts, dim=2).unbind())
    return [*(x.requires_grad_() for x in (q.contiguous(), k.contiguous(), v.clone())), grad.clone()]


def _prepare(way: Way) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention of own queries, with as many threads as give all ranks the same cores."""
    torch.set_num_threads(CORES if way.ranks == 1 else 1)
    mesh = _mesh(way.ranks, way.ulysses)
    if way.name == ALL_GATHER:
        return lambda q, k, v: F.scaled_dot_product_attention(
            q, *(all_gather_single_autograd(x, 2, mesh.host_group) for x in (k, v))
        )
    lengths = (way.tokens // way.ranks,) * way.ranks
    return lambda q, k, v: attention_over(mesh)(q, k, v, lengths, lengths)


@contextmanager
def _on_cores(count: int) -> Iterator[None]:
    """Keep this process, and those that it starts, on ``count`` cores."""
    before = os.sched_getaffinity(0)
    if len(before) < count:
        raise CannotMeasureError(f"{len(before)} core to run on; expected {count}")
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _tokens(text: str) -> int:
    if not text.isdecimal() or int(text) == 0 or int(text) % RANKS:
        raise argparse.ArgumentTypeError(f"{text!r} tokens cannot be shared by {RANKS} ranks; expected e.g. 4096")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
