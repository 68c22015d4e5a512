"""Checkpoints that belong to no strategy: weights and moments by parameter name, in safetensors, on the lake.

    runs/<run>/checkpoints/step-00000100/model-00001-of-00002-DIGEST.safetensors       full-precision weights
                                         optimizer-00001-of-00002-DIGEST.safetensors   both AdamW moments
                                         manifest.json                                 last: only now does it exist

Every process writes its share of the parameters, balanced by bytes. Files are named by their content, so that a
process that was believed dead can never change what a manifest names. A run goes on from the newest folder that
has a manifest; what killed processes left goes with the next save that is committed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Literal

import torch
import torch.distributed as dist
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest, SafeName, StoredKey
from seismic_model.config import RunConfig, run_folder
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies import MOMENTS, ParameterState, Strategy

_READ_THREADS = 4
_RECORD = 40  # bytes of one file's SHA-256 and size


class CheckpointError(Exception):
    """A checkpoint is damaged, incomplete or of another run; the message says what to do."""


class CheckpointManifest(Contract):
    """``manifest.json`` of one checkpoint, and its whole lineage."""

    schema_version: Literal[1] = 1
    run: SafeName
    step: int = Field(ge=0)  # optimiser steps done, skipped ones included
    samples: int = Field(ge=0)  # global sample indices below this one are consumed
    applied_steps: int = Field(ge=0)  # steps that changed the weights, AdamW's own count
    weights_sha256: Digest  # see weights_digest; does not depend on how the weights are sharded
    config: RunConfig  # data set digest, parent weights and seed with it
    files: dict[str, StoredKey]  # beside the manifest
    processes: int  # that wrote it
    created: datetime

    @property
    def folder(self) -> str:
        """Key prefix of the checkpoint on the lake."""
        return checkpoint_folder(self.run, self.step)


def checkpoint_folder(run: str, step: int) -> str:
    """``runs/<run>/checkpoints/step-<step>``."""
    return f"{run_folder(run)}/checkpoints/step-{step:08d}"


def committed(lake: Lake, run: str) -> list[CheckpointManifest]:
    """All committed checkpoints of a run, oldest first. Raises ``CheckpointError`` for an unreadable manifest."""
    found = (_manifest(lake, f"{folder}/manifest.json") for folder in _folders(lake, run))
    return sorted((manifest for manifest in found if manifest), key=lambda manifest: manifest.step)


def latest(lake: Lake, run: str) -> CheckpointManifest | None:
    """The newest committed checkpoint of a run, or None before the first."""
    return next(reversed(committed(lake, run)), None)


def latest_for_all(lake: Lake, run: str, mesh: Mesh) -> CheckpointManifest | None:
    """What process 0 finds newest, the same for all even while another is being committed. Collective."""
    newest = latest(lake, run) if mesh.rank == 0 else None
    step = int(mesh.total(torch.tensor(newest.step + 1 if newest else 0))) - 1
    return committed_at(lake, run, step) if step >= 0 else None


def committed_at(lake: Lake, run: str, step: int) -> CheckpointManifest:
    """The checkpoint of one step. Raises ``CheckpointError`` when it is not there, with the steps that are."""
    manifest = _manifest(lake, f"{checkpoint_folder(run, step)}/manifest.json")
    if manifest is None:
        steps = ", ".join(str(each.step) for each in committed(lake, run)) or "none"
        raise CheckpointError(f"run {run} has no committed checkpoint at step {step}; there are: {steps}")
    return manifest


def load_weights(lake: Lake, run: str, step: int) -> dict[str, Tensor]:
    """Full-precision weights by parameter name, on the CPU, every digest checked. Raises ``CheckpointError``."""
    return _weights(lake, committed_at(lake, run, step))


def load_states(lake: Lake, manifest: CheckpointManifest) -> dict[str, ParameterState]:
    """Weights and moments by parameter name, on the CPU, every digest checked. Raises ``CheckpointError``."""
    moments = _tensors(lake, manifest, "optimizer")
    return {
        name: ParameterState(weight, *(moments[f"{name}.{moment}"] for moment in MOMENTS))
        for name, weight in _weights(lake, manifest).items()
    }


def save(lake: Lake, config: RunConfig, mesh: Mesh, strategy: Strategy, step: int) -> None:
    """Write and commit the checkpoint of ``step``, then forget the oldest. Collective over all processes.

    Raises ``CheckpointError`` when someone else committed that step, or removed its files, meanwhile.
    """
    owners = _owners({name: shape.numel() for name, shape in strategy.shapes.items()}, mesh.world)
    weights: dict[str, Tensor] = {}
    moments: dict[str, Tensor] = {}
    digests: dict[str, str] = {}
    for name, state in strategy.states():
        if mesh.rank == 0:
            digests[name] = _tensor_digest(state.weight)
        if owners[name] == mesh.rank:
            weights[name] = state.weight
            moments |= {f"{name}.{moment}": getattr(state, moment) for moment in MOMENTS}
    folder = checkpoint_folder(config.run, step)
    written = [
        _write(lake, folder, f"{kind}-{mesh.rank + 1:05d}-of-{mesh.world:05d}", tensors)
        for kind, tensors in (("model", weights), ("optimizer", moments))
    ]
    files = _files_of_all(written, mesh)
    if mesh.rank == 0:
        manifest = CheckpointManifest(
            run=config.run,
            step=step,
            samples=step * config.batch,
            applied_steps=strategy.applied_steps,
            weights_sha256=_combined(digests),
            config=config,
            files=files,
            processes=mesh.world,
            created=datetime.now(UTC),
        )
        _commit(lake, manifest)
        _forget_oldest(lake, config)
        _sweep(lake, manifest)
    dist.barrier()


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 over name, type, shape and SHA-256 of the bytes of each tensor, in order of names."""
    return _combined({name: _tensor_digest(weight) for name, weight in weights.items()})


def _tensor_digest(tensor: Tensor) -> str:
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(raw).hexdigest()}"


def _combined(digests: Mapping[str, str]) -> str:
    return hashlib.sha256("\n".join(f"{name} {digests[name]}" for name in sorted(digests)).encode()).hexdigest()


def _owners(sizes: Mapping[str, int], world: int) -> dict[str, int]:
    """Which process writes which parameter: neighbours together, each process about as many bytes."""
    total, end, owners = sum(sizes.values()), 0, {}
    for name, size in sizes.items():
        end += size
        owners[name] = (2 * end - size) * world // (2 * total)
    return owners


def _file(part: str, sha256: str) -> str:
    return f"{part}-{sha256[:16]}.safetensors"


def _write(lake: Lake, folder: str, part: str, tensors: dict[str, Tensor]) -> StoredKey:
    stored = safetensors.save(tensors)
    sha256 = hashlib.sha256(stored).hexdigest()
    lake.write(f"{folder}/{_file(part, sha256)}", stored)
    return StoredKey(size=len(stored), sha256=sha256)


def _files_of_all(written: list[StoredKey], mesh: Mesh) -> dict[str, StoredKey]:
    """Size and digest of the files of all processes, which are all written when this returns."""
    mine = b"".join(bytes.fromhex(stored.sha256) + stored.size.to_bytes(8, "big") for stored in written)
    table = torch.zeros(mesh.world, len(mine), dtype=torch.int64)
    table[mesh.rank] = torch.tensor(list(mine))
    files = {}
    for rank, row in enumerate(mesh.total(table).tolist()):
        for kind, start in (("model", 0), ("optimizer", _RECORD)):
            record = bytes(row[start : start + _RECORD])
            stored = StoredKey(size=int.from_bytes(record[32:], "big"), sha256=record[:32].hex())
            files[_file(f"{kind}-{rank + 1:05d}-of-{mesh.world:05d}", stored.sha256)] = stored
    return files


def _commit(lake: Lake, manifest: CheckpointManifest) -> None:
    key, twice = f"{manifest.folder}/manifest.json", "two trainings share one run name; stop one of them"
    there = {entry.key for entry in lake.objects(manifest.folder)}
    if lost := sorted(name for name in manifest.files if f"{manifest.folder}/{name}" not in there):
        raise CheckpointError(f"{lake.uri_of(manifest.folder)} lost {lost[0]} before it was committed: {twice}")
    if not lake.create(key, manifest.to_bytes()) and lake.read(key) != manifest.to_bytes():
        raise CheckpointError(f"{lake.uri_of(key)} was committed by another process: {twice}")


def _forget_oldest(lake: Lake, config: RunConfig) -> None:
    for old in committed(lake, config.run)[: -config.checkpoints_kept]:
        lake.delete([f"{old.folder}/manifest.json"])  # first: half a checkpoint must not look like one
        lake.delete([entry.key for entry in lake.objects(old.folder)])


def _sweep(lake: Lake, newest: CheckpointManifest) -> None:
    """Delete what killed processes left, up to the step just committed: a later folder may be one being written."""
    named = {f"{newest.folder}/{name}" for name in ("manifest.json", *newest.files)}
    for folder in _folders(lake, newest.run):
        keys = {entry.key for entry in lake.objects(folder)}
        uncommitted = folder < newest.folder and f"{folder}/manifest.json" not in keys
        if uncommitted or folder == newest.folder:
            lake.delete(sorted(keys - named))


def _folders(lake: Lake, run: str) -> list[str]:
    checkpoints = f"{run_folder(run)}/checkpoints"
    return [f"{checkpoints}/{name}" for name in lake.folders(checkpoints)]


def _manifest(lake: Lake, key: str) -> CheckpointManifest | None:
    try:
        return CheckpointManifest.model_validate_json(lake.read(key))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise CheckpointError(
            f"{lake.uri_of(key)} is no checkpoint manifest of this version; "
            f"use the version that wrote it, or delete it to go on from the checkpoint before: {error}"
        ) from error


def _weights(lake: Lake, manifest: CheckpointManifest) -> dict[str, Tensor]:
    weights = _tensors(lake, manifest, "model")
    if (found := weights_digest(weights)) != manifest.weights_sha256:
        raise CheckpointError(
            f"the weights at {lake.uri_of(manifest.folder)} have digest {found}, "
            f"the manifest says {manifest.weights_sha256}; delete its manifest.json to go on from the one before"
        )
    return weights


def _tensors(lake: Lake, manifest: CheckpointManifest, kind: str) -> dict[str, Tensor]:
    names = [name for name in manifest.files if name.startswith(f"{kind}-")]
    with ThreadPoolExecutor(_READ_THREADS) as pool:
        shards = pool.map(lambda name: _read(lake, f"{manifest.folder}/{name}", manifest.files[name]), names)
        return {name: tensor for shard in shards for name, tensor in shard.items()}


def _read(lake: Lake, key: str, expected: StoredKey) -> dict[str, Tensor]:
    remedy = "restore it, or delete the manifest.json beside it to go on from the checkpoint before"
    try:
        stored = lake.read(key)
    except FileNotFoundError as error:
        raise CheckpointError(f"{lake.uri_of(key)} is lost; {remedy}") from error
    if (found := hashlib.sha256(stored).hexdigest()) != expected.sha256:
        raise CheckpointError(
            f"{lake.uri_of(key)} has {len(stored)} bytes and SHA-256 {found}, "
            f"the manifest says {expected.size} bytes and {expected.sha256}; {remedy}"
        )
    try:
        return safetensors.load(stored)
    except SafetensorError as error:
        raise CheckpointError(f"{lake.uri_of(key)} is no safetensors file: {error}; {remedy}") from error
