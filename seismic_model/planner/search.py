"""Choose the layout: the fastest that fits, the largest window that fits, or what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import get_args

from seismic_model.config import Checkpointing, Triple
from seismic_model.planner.assumptions import Machine
from seismic_model.planner.forecast import Forecast, Task, forecast
from seismic_model.planner.layout import Choice, layouts

_GB = 1e9


class PlanError(Exception):
    """Nothing fits as asked; the message says how much is missing and what would fit."""


def best(task: Task, gpus: int, machine: Machine, choice: Choice) -> Forecast:
    """The fastest layout that fits; of those that wait for S3 alike that with the least work. Raises ``PlanError``."""
    found = _fastest(task, gpus, machine, choice)
    if found is None:
        raise PlanError(_refusal(task, gpus, machine, choice))
    return found


def largest(task: Task, gpus: int, machine: Machine, choice: Choice, shape: Triple) -> Forecast:
    """The largest window of ``shape`` × patch × n that fits, n whole. Raises ``PlanError`` when none does."""
    too_large = 1
    while _fastest(_sized(task, shape, too_large), gpus, machine, choice):
        too_large *= 2
    found = _last_that_fits(partial(_sized, task, shape), too_large, gpus, machine, choice)
    if found is None:
        raise PlanError(_refusal(_sized(task, shape, 1), gpus, machine, choice))
    return found


def _fastest(task: Task, gpus: int, machine: Machine, choice: Choice) -> Forecast | None:
    forecasts = (forecast(task, layout, machine) for layout in layouts(task.model, gpus, machine.node, choice))
    return min(
        (each for each in forecasts if each.fits),
        key=lambda each: (
            each.crop_seconds,
            get_args(Checkpointing).index(each.layout.checkpointing),
            each.busy_seconds / each.batch,
            each.memory_total,
        ),
        default=None,
    )


def _sized(task: Task, shape: Triple, size: int) -> Task:
    i, x, z = (size * edge * patch for edge, patch in zip(shape, task.model.patch, strict=True))
    return replace(task, window=(i, x, z))


def _refusal(task: Task, gpus: int, machine: Machine, choice: Choice) -> str:
    forecasts = [forecast(task, layout, machine) for layout in layouts(task.model, gpus, machine.node, choice)]
    if not forecasts:
        return (
            f"no layout of {gpus} GPUs keeps to what is fixed. cp has to divide the GPUs, and to divide or be a "
            f"multiple of a node's {min(machine.node, gpus)}; ulysses has to divide cp, the node, and the heads of "
            f"encoder ({task.model.heads}) and decoder ({task.model.decoder_heads}); dp has to divide the batch; "
            "hsdp needs several whole nodes"
        )
    nearest = min(forecasts, key=lambda each: each.memory_total)
    part, most = max(nearest.memory.items(), key=lambda item: item[1])
    window = "x".join(map(str, task.window))
    lines = [
        f"{window} does not fit on {gpus} {machine.name}: the leanest layout (cp {nearest.layout.cp}, "
        f"{nearest.layout.strategy}, checkpointing {nearest.layout.checkpointing}) needs "
        f"{nearest.memory_total / _GB:.1f} GB a GPU, {machine.memory / _GB:.1f} GB are usable; "
        f"most of it is {part} ({most / _GB:.1f} GB)"
    ]
    lines += [f"  would fit: {remedy}" for remedy in _remedies(task, gpus, machine, choice)]
    return "\n".join(lines)


def _remedies(task: Task, gpus: int, machine: Machine, choice: Choice) -> Iterator[str]:
    freed = {
        "checkpointing": replace(choice, checkpointing=None),
        "strategy": replace(choice, strategy=None),
        "cp": replace(choice, cp=None, ulysses=None),
    }
    for name, freer in freed.items():
        if freer != choice and (found := _fastest(task, gpus, machine, freer)):
            yield f"--{name} {getattr(found.layout, name)}"
    if (found := _fastest(task, gpus, machine, Choice(precision=choice.precision))) and choice != Choice():
        layout = found.layout
        yield f"--cp {layout.cp} --strategy {layout.strategy} --checkpointing {layout.checkpointing} together"
    for more in (gpus * 2**doubling for doubling in range(1, 8)):
        if _fastest(task, more, machine, choice):
            yield f"--gpus {more}"
            break
    if smaller := _smaller(task, gpus, machine, choice):
        yield "--window " + "x".join(map(str, smaller))


def _smaller(task: Task, gpus: int, machine: Machine, choice: Choice) -> Triple | None:
    """The largest window in about the same proportions."""
    grid = [w // p for w, p in zip(task.window, task.model.patch, strict=True)]

    def sized(size: int) -> Task:
        i, x, z = (max(1, n * size // max(grid)) * p for n, p in zip(grid, task.model.patch, strict=True))
        return replace(task, window=(i, x, z))

    found = _last_that_fits(sized, max(grid), gpus, machine, choice)
    return found.task.window if found else None


def _last_that_fits(
    sized: Callable[[int], Task], too_large: int, gpus: int, machine: Machine, choice: Choice
) -> Forecast | None:
    """The fastest forecast of ``sized(n)`` for the largest n below ``too_large`` that fits; larger ones need more."""
    found, fits = None, 0
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if (at_middle := _fastest(sized(middle), gpus, machine, choice)) is None:
            too_large = middle
        else:
            found, fits = at_middle, middle
    return found
