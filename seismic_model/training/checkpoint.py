"""Checkpoints that belong to no strategy: state by parameter name, in safetensors, on the lake.

    runs/<run>/checkpoints/step-00000100/model-00001-of-00002-DIGEST.safetensors       full-precision weights
                                         optimizer-00001-of-00002-DIGEST.safetensors   both AdamW moments
                                         ema-00001-of-00002-DIGEST.safetensors         averaged weights, if kept
                                         manifest.json                                 last: only now does it exist

Files of one number are one part: neighbouring parameters, all that is known of them. Parts are bounded in size, so
that any number of processes can write and read them. Files are named by their content, so that a process that was
believed dead can never change what a manifest names. A run goes on from the newest folder that has a manifest.

Weights, moments and AdamW's step, and how many samples are consumed: that is the whole state. Masks, crops and
their order are drawn by counter from the seed, so there is no generator to save.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationError, model_validator
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest, SafeName, StoredKey
from seismic_model.config import RunConfig, run_folder
from seismic_model.parallel.mesh import Mesh

_READ_THREADS = 4
_FOLDER = re.compile(r"step-\d{8,}")


class CheckpointError(Exception):
    """A checkpoint is damaged, incomplete or of another run; the message says what to do."""


class CheckpointManifest(Contract):
    """``manifest.json`` of one checkpoint, and its whole lineage."""

    schema_version: Literal[2] = 2  # 1 named the parameters otherwise
    run: SafeName
    step: int = Field(ge=0)  # optimiser steps done, skipped ones included
    samples: int = Field(ge=0)  # global sample indices below this one are consumed
    applied_steps: int = Field(ge=0)  # steps that changed the weights, AdamW's own count
    weights_sha256: Digest  # of the product (see there) by ``weights_digest``; does not depend on how it is sharded
    config: RunConfig  # data set digest, parent weights and seed with it
    files: dict[Annotated[str, Field(pattern=r"^(model|optimizer|ema)-\d+-of-\d+-[0-9a-f]+\.safetensors$")], StoredKey]
    processes: int  # that wrote it
    created: datetime

    @model_validator(mode="after")
    def _is_whole(self) -> CheckpointManifest:
        if not self.parts or any(not {"model", "optimizer"} <= part.keys() for part in self.parts):
            raise ValueError("a part lacks its model or its optimizer file")
        return self

    @property
    def folder(self) -> str:
        """Key prefix of the checkpoint on the lake."""
        return checkpoint_folder(self.run, self.step)

    @property
    def parts(self) -> list[dict[str, str]]:
        """File name by kind (model, optimizer, ema) of each part."""
        parts: dict[str, dict[str, str]] = {}
        for name in sorted(self.files):
            kind, number, _ = name.split("-", 2)
            parts.setdefault(number, {})[kind] = name
        return [parts[number] for number in sorted(parts)]

    @property
    def product(self) -> Literal["model", "ema"]:
        """Kind of the files that evaluation, registry and later runs take: averaged weights where the run keeps them.

        ``model`` then only serves to go on with this run.
        """
        return "ema" if any("ema" in part for part in self.parts) else "model"


def checkpoint_folder(run: str, step: int) -> str:
    """``runs/<run>/checkpoints/step-<step>``."""
    return f"{run_folder(run)}/checkpoints/step-{step:08d}"


def committed(lake: Lake, run: str) -> list[CheckpointManifest]:
    """All committed checkpoints of a run, oldest first. Raises ``CheckpointError`` for an unreadable manifest."""
    found = (_manifest(lake, f"{folder}/manifest.json") for folder in folders(lake, run))
    return sorted((manifest for manifest in found if manifest), key=lambda manifest: manifest.step)


def folders(lake: Lake, run: str) -> list[str]:
    """Key prefixes of the checkpoints of a run, committed or not, oldest first; other folders are none of ours."""
    checkpoints = f"{run_folder(run)}/checkpoints"
    return [f"{checkpoints}/{name}" for name in lake.folders(checkpoints) if _FOLDER.fullmatch(name)]


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
    """The whole product by parameter name, on the CPU: the average where the run keeps one, else the weights.

    Every digest is checked. Raises ``CheckpointError``.
    """
    manifest = committed_at(lake, run, step)
    names = [part[manifest.product] for part in manifest.parts]
    with ThreadPoolExecutor(_READ_THREADS) as pool:
        files = pool.map(lambda name: read_file(lake, manifest, name), names)
        weights = {name: tensor for file in files for name, tensor in file.items()}
    if (found := weights_digest(weights)) != manifest.weights_sha256:
        raise CheckpointError(
            f"the weights at {lake.uri_of(manifest.folder)} have digest {found}, "
            f"the manifest says {manifest.weights_sha256}; delete its manifest.json to go on from the one before"
        )
    return weights


def read_file(lake: Lake, manifest: CheckpointManifest, name: str) -> dict[str, Tensor]:
    """Tensors of one of a checkpoint's files. Raises ``CheckpointError`` when it is not what the manifest says."""
    key, expected = f"{manifest.folder}/{name}", manifest.files[name]
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


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 over name, type, shape and SHA-256 of the bytes of each tensor, in order of names."""
    return combined_digest({name: tensor_digest(weight) for name, weight in weights.items()})


def tensor_digest(tensor: Tensor) -> str:
    """One tensor's part in ``weights_digest``."""
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(tensor_bytes(tensor)).hexdigest()}"


def combined_digest(digests: Mapping[str, str]) -> str:
    """``weights_digest`` from what ``tensor_digest`` says by name."""
    return hashlib.sha256("\n".join(f"{name} {digests[name]}" for name in sorted(digests)).encode()).hexdigest()


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The values of a CPU tensor in C order, not copied where they lie so."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def _manifest(lake: Lake, key: str) -> CheckpointManifest | None:
    try:
        manifest = CheckpointManifest.model_validate_json(lake.read(key))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise CheckpointError(
            f"{lake.uri_of(key)} is no checkpoint manifest of this version; "
            f"use the version that wrote it, or delete it to go on from the checkpoint before: {error}"
        ) from error
    if key != f"{manifest.folder}/manifest.json":
        raise CheckpointError(
            f"{lake.uri_of(key)} is the manifest of {manifest.folder}; move that copy out of checkpoints/, or delete it"
        )
    return manifest
