"""Save a run's state while training goes on.

1. All processes copy what they own to host memory (``Strategy.gather``), which is all that training waits for.
2. A thread of each process digests its files and writes them straight to the lake.
3. The loop's agreement of each step carries ``Saver.progress``. When all files are up the processes tell each other
   sizes and digests, and a thread of process 0 commits the manifest and deletes what is superfluous.

No thread takes part in a collective. One save is under way at a time, so host memory holds one copy of the state,
each process its share; files are written from that copy without another. Killed at any moment, the run has its
newest manifest, and what was written without one is deleted after the next commit.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from ingestion.lake import Lake
from ingestion.manifest import StoredKey
from ingestion.names import store_words
from seismic_model.config import RunConfig
from seismic_model.parallel.strategies import MOMENTS, ParameterState, Strategy
from seismic_model.training.checkpoint import (
    CheckpointError,
    CheckpointManifest,
    checkpoint_folder,
    combined_digest,
    tensor_bytes,
    tensor_digest,
)
from seismic_model.training.lease import FencedError
from seismic_model.training.retention import forget

_PART_VALUES = 2**24  # 64 MiB of float32 weights, 128 MiB of their moments
_DTYPES = {torch.float32: "F32", torch.float64: "F64"}  # safetensors' names

logger = logging.getLogger(__name__)


@dataclass
class Part:
    """Neighbouring parameters that one process writes, to one file of each kind."""

    owner: int
    names: list[str] = field(default_factory=list)


@dataclass
class _Written:
    """What one process has put on the lake."""

    files: dict[str, StoredKey] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)  # ``tensor_digest`` of the product


class Saver:
    """Saves the state of ``strategy``; every process calls the same methods in the same order.

    All methods but ``progress`` and ``close`` are collective and raise ``CheckpointError``, in all processes, when
    one of them could not write, or when someone else committed the same step or removed its files; ``FencedError`` in
    those that found that another start took over.
    """

    def __init__(self, lake: Lake, config: RunConfig, strategy: Strategy) -> None:
        self._lake, self._config, self._strategy, self._mesh = lake, config, strategy, strategy.mesh
        self._parts = parts_of({name: shape.numel() for name, shape in strategy.shapes.items()}, self._mesh.world)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._closed = Event()
        self._stage: Literal["idle", "upload", "commit"] = "idle"
        self._task: Future[Any] | None = None  # of this process in this stage
        self._step = self._applied_steps = 0  # of the save under way

    def begin(self, step: int) -> None:
        """Copy the state after ``step`` steps and start to write it; waits for the save before it."""
        began = time.monotonic()
        self.finish()
        if (waited := time.monotonic() - began) > 1 and self._mesh.rank == 0:
            logger.warning(
                "training waited %.1f s at step %d for the checkpoint before: raise checkpoint_every", waited, step
            )
        self._step, self._applied_steps = step, self._strategy.applied_steps
        snapshot: dict[int, dict[str, ParameterState]] = {}
        for number, part in enumerate(self._parts):
            for name in part.names:
                state = self._strategy.gather(name, part.owner)
                if state:
                    snapshot.setdefault(number, {})[name] = state
        self._stage, self._task = "upload", self._thread.submit(self._upload, snapshot)

    def progress(self) -> Tensor:
        """(2,) integers for ``proceed``: whether this process still writes, whether it failed."""
        done = self._task is None or self._task.done()
        failed = self._task is not None and done and self._task.exception() is not None
        return torch.tensor([not done, failed], dtype=torch.int64)

    def proceed(self, everywhere: Tensor) -> None:
        """Go on with the save under way as far as all processes are, by the sum of their ``progress``."""
        writing, failed = everywhere.tolist()
        if failed:
            self._raise()
        if writing:
            return
        if self._stage == "upload":
            assert self._task is not None
            written = self._from_all(self._task.result())
            self._stage, self._task = "commit", None
            if self._mesh.rank == 0:
                self._task = self._thread.submit(self._commit, written)
        else:
            self._stage, self._task = "idle", None

    def finish(self) -> None:
        """Wait until the save under way, if any, is committed."""
        while self._stage != "idle":
            if self._task is not None:
                wait([self._task])
            self.proceed(self._mesh.total(self.progress()))

    def close(self) -> None:
        """Drop a save that was not finished."""
        self._closed.set()
        self._thread.shutdown()

    def _upload(self, snapshot: dict[int, dict[str, ParameterState]]) -> _Written:
        written = _Written()
        while snapshot:  # emptied, to give the memory back
            number, states = snapshot.popitem()
            kinds = _by_kind(states)
            for kind, tensors in kinds.items():
                if self._closed.is_set():
                    return written
                buffers = _safetensors(tensors)
                digest = hashlib.sha256()
                for buffer in buffers:
                    digest.update(buffer)
                sha256 = digest.hexdigest()
                name = f"{kind}-{number + 1:05d}-of-{len(self._parts):05d}-{sha256[:16]}.safetensors"
                self._lake.write(f"{checkpoint_folder(self._config.run, self._step)}/{name}", buffers)
                written.files[name] = StoredKey(size=sum(map(len, buffers)), sha256=sha256)
            product = kinds.get("ema", kinds["model"])
            written.digests |= {name: tensor_digest(tensor) for name, tensor in product.items()}
        return written

    def _commit(self, written: _Written) -> None:
        manifest = CheckpointManifest(
            run=self._config.run,
            step=self._step,
            samples=self._step * self._config.batch,
            applied_steps=self._applied_steps,
            weights_sha256=combined_digest(written.digests),
            config=self._config,
            files=dict(sorted(written.files.items())),
            processes=self._mesh.world,
            created=datetime.now(UTC),
        )
        key, twice = f"{manifest.folder}/manifest.json", "two trainings share one run name; stop one of them"
        there = {entry.key for entry in self._lake.objects(manifest.folder)}
        if lost := sorted(name for name in manifest.files if f"{manifest.folder}/{name}" not in there):
            uri = self._lake.uri_of(manifest.folder)
            raise CheckpointError(f"{uri} lost {lost[0]} before it was committed: {twice}")
        if not self._lake.create(key, manifest.to_bytes()) and self._lake.read(key) != manifest.to_bytes():
            raise CheckpointError(f"{self._lake.uri_of(key)} was committed by another process: {twice}")
        forget(self._lake, manifest)

    def _from_all(self, mine: object) -> _Written:
        everyone: list[_Written] = [_Written()] * self._mesh.world
        dist.all_gather_object(everyone, mine)
        together = _Written()
        for each in everyone:
            together.files |= each.files
            together.digests |= each.digests
        return together

    def _raise(self) -> None:
        error = self._task.exception() if self._task is not None and self._task.done() else None
        reasons = reasons_of_all(store_words(error) if error else None, self._mesh.world)
        if isinstance(error, FencedError):
            raise error
        raise CheckpointError(f"the checkpoint of step {self._step} was not written: {reasons}") from error


def reasons_of_all(mine: str | None, world: int) -> str:
    """Why which processes failed, in words. Collective."""
    everyone: list[str | None] = [None] * world
    dist.all_gather_object(everyone, mine)
    return "; ".join(f"process {rank}: {reason}" for rank, reason in enumerate(everyone) if reason is not None)


def parts_of(sizes: Mapping[str, int], world: int) -> list[Part]:
    """Who writes which parameters: each process about as many values, none of its parts larger than need be."""
    total, end, filled, parts = sum(sizes.values()), 0, 0, [Part(0)]
    for name, size in sizes.items():
        end += size
        owner = (2 * end - size) * world // (2 * total)
        if parts[-1].names and (parts[-1].owner != owner or filled + size > _PART_VALUES):
            parts.append(Part(owner))
            filled = 0
        parts[-1].owner = owner
        parts[-1].names.append(name)
        filled += size
    return parts


def _by_kind(states: Mapping[str, ParameterState]) -> dict[str, dict[str, Tensor]]:
    """What goes into each of a part's files."""
    kinds: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}
    for name, state in states.items():
        kinds["model"][name] = state.weight
        kinds["optimizer"] |= {f"{name}.{moment}": getattr(state, moment) for moment in MOMENTS}
        if state.ema is not None:
            kinds.setdefault("ema", {})[name] = state.ema
    return kinds


def _safetensors(tensors: Mapping[str, Tensor]) -> list[bytes | memoryview]:
    """A safetensors file in pieces, its values not copied: length of the header, header, tensor after tensor."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *map(tensor_bytes, tensors.values())]
