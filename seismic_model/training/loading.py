"""Give a checkpoint to all processes: the world reads it once, whatever number of processes wrote it.

The parts are dealt out. In each round a process reads and verifies one of its own, while the one before goes to
those that need it (``Strategy.scatter``), so no process holds more than two parts beside its share of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from obstore.exceptions import BaseError
from torch import Size, Tensor

from ingestion.lake import Lake
from ingestion.names import store_words
from seismic_model.parallel.strategies import MOMENTS, ParameterState, Strategy
from seismic_model.training.checkpoint import CheckpointError, CheckpointManifest, read_file
from seismic_model.training.saving import reasons_of_all

States = dict[str, ParameterState]


def load(lake: Lake, manifest: CheckpointManifest, strategy: Strategy, *, as_start: bool = False) -> None:
    """Set the state of ``strategy`` to what ``manifest`` names. Collective over all processes.

    Args:
        lake: where it lies.
        manifest: the same in all processes.
        strategy: of the same model.
        as_start: take the product only, for a run that begins with it: no moments, no steps.

    Raises ``CheckpointError``, in all processes, when a file is damaged or belongs to another model.
    """
    mesh, names = strategy.mesh, list(strategy.shapes)
    mine = manifest.parts[mesh.rank :: mesh.world]
    rounds = -(-len(manifest.parts) // mesh.world)
    missing = dict.fromkeys(names)
    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint") as thread:

        def ahead(turn: int) -> Future[States] | None:
            return thread.submit(_read, lake, manifest, mine[turn], strategy, as_start) if turn < len(mine) else None

        reading = ahead(0)
        for turn in range(rounds):
            states, fault = _outcome(reading)
            reading = ahead(turn + 1)
            own = [(mesh.rank + 1) * (name in states) for name in names]
            *readers, faults = mesh.total(torch.tensor([*own, int(fault is not None)])).tolist()
            if faults:
                raise CheckpointError(reasons_of_all(fault, mesh.world))
            for name, reader in zip(names, readers, strict=True):
                if reader:
                    strategy.scatter(name, reader - 1, states.pop(name, None))
                    del missing[name]
    if missing:
        raise CheckpointError(
            f"{lake.uri_of(manifest.folder)} has no parameter {next(iter(missing))!r}; "
            "was it written by another version of the model?"
        )
    strategy.finish_load(0 if as_start else manifest.applied_steps)


def _outcome(reading: Future[States] | None) -> tuple[States, str | None]:
    """What was read, or why it was not."""
    try:
        return reading.result() if reading else {}, None
    except (CheckpointError, BaseError) as error:
        return {}, store_words(error)


def _read(
    lake: Lake, manifest: CheckpointManifest, part: Mapping[str, str], strategy: Strategy, as_start: bool
) -> States:
    weights = read_file(lake, manifest, part[manifest.product if as_start else "model"])
    for name, weight in weights.items():
        _check(lake, part, name, weight, strategy.shapes.get(name))
    if as_start:
        return {name: ParameterState(w, torch.zeros_like(w), torch.zeros_like(w)) for name, w in weights.items()}
    moments = read_file(lake, manifest, part["optimizer"])
    averages = read_file(lake, manifest, part["ema"]) if "ema" in part else {}
    return {
        name: ParameterState(
            weight, ema=averages.get(name), **{moment: moments[f"{name}.{moment}"] for moment in MOMENTS}
        )
        for name, weight in weights.items()
    }


def _check(lake: Lake, part: Mapping[str, str], name: str, weight: Tensor, expected: Size | None) -> None:
    if weight.shape != expected:
        raise CheckpointError(
            f"{part['model']} on {lake.uri} holds {name!r} with shape {tuple(weight.shape)}; the model expects "
            f"{tuple(expected) if expected else 'no such parameter'}; was it written by another version of the model?"
        )
