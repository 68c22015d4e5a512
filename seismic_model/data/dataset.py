"""The frozen data set of one week: which published digests, which cells are held out, what changed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime
from typing import Literal, TypeVar

from pydantic import Field, ValidationError

from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest, Manifest, Normalisation, SafeName, Week, manifest_key
from ingestion.withdrawal import all_events, withdrawal

SPLIT_KEY = "datasets/splits.json"

_Stored = TypeVar("_Stored", bound=Contract)

Cell = tuple[str, int, int]  # (CRS or "local", floor(x / cell_size), floor(y / cell_size))


class SplitPolicy(Contract):
    """How places are held out: decided once, by hash of the geographic cell, and kept for ever."""

    cell_size: float = Field(gt=0)  # coordinate units
    held_out_share: float = Field(gt=0, lt=1)  # of cells
    salt: str
    held_out_surveys: list[SafeName] = []  # every cell these touch is held out as well


class SurveyEntry(Contract):
    """One survey of the data set."""

    survey: SafeName
    digest: Digest
    manifest_sha256: Digest
    normalisation: Normalisation
    weight: float = Field(ge=0)  # share of the crops; 0 when only its held-out part is used
    licence: str | None


class Excluded(Contract):
    """A published survey that the data set leaves out, and why."""

    survey: SafeName
    digest: Digest
    reason: str


class Difference(Contract):
    """Against the last frozen week."""

    previous: Week | None
    added: list[SafeName]
    removed: list[SafeName]
    superseded: list[SafeName]
    unchanged: list[SafeName]


class Dataset(Contract):
    """``datasets/<week>.json``."""

    schema_version: Literal[1] = 1
    week: Week
    created: datetime
    window: tuple[int, int, int]  # voxels; surveys without room for one crop are excluded
    split: SplitPolicy
    held_out_cells: list[Cell]  # those that split.held_out_surveys add
    surveys: list[SurveyEntry]
    excluded: list[Excluded]
    difference: Difference


class DatasetError(Exception):
    """A data set, or a survey it names, is not there or not what was frozen."""


class WithdrawnError(DatasetError):
    """A survey of a frozen data set may not be used any more; the message names who said so, and what can be done."""


def refuse_withdrawn(lake: Lake, dataset: Dataset) -> None:
    """Raises ``WithdrawnError`` when a survey of ``dataset`` was withdrawn after it was frozen.

    To be asked before anything starts, or goes on, to train on it.
    """
    logs = all_events(lake)
    found = [
        f"{entry.survey} ({event.words()})"
        for entry in dataset.surveys
        if (event := withdrawal(logs.get(entry.survey, []), entry.digest)) is not None
    ]
    if found:
        raise WithdrawnError(
            f"the data set of {dataset.week} holds withdrawn surveys, so nothing trains on it: {'; '.join(found)}. "
            "Freeze another one: the next week's leaves them out, and so does a choice of surveys without them "
            "(--surveys); or end the withdrawal with `survey restore`"
        )


def load_dataset(lake: Lake, key: str, sha256: str | None = None) -> Dataset:
    """The frozen data set at ``key``; with ``sha256`` only if its bytes have that digest. Raises ``DatasetError``."""
    return _frozen(lake, key, sha256, Dataset)


def load_survey(lake: Lake, entry: SurveyEntry) -> Manifest:
    """The manifest that was frozen as ``entry``. Raises ``DatasetError`` when it is lost or has changed."""
    return _frozen(lake, manifest_key(entry.survey, entry.digest), entry.manifest_sha256, Manifest)


def _frozen(lake: Lake, key: str, sha256: str | None, contract: type[_Stored]) -> _Stored:
    try:
        stored = lake.read(key)
    except FileNotFoundError as error:
        raise DatasetError(f"{lake.uri_of(key)} does not exist; freeze a data set first or restore it") from error
    if sha256 not in (None, found := hashlib.sha256(stored).hexdigest()):
        raise DatasetError(
            f"{lake.uri_of(key)} has SHA-256 {found}, expected {sha256}: it was changed after it was frozen; "
            "restore it, or plan a new run on what is there now"
        )
    try:
        return contract.model_validate_json(stored)
    except ValidationError as error:
        raise DatasetError(f"{lake.uri_of(key)} is no {contract.__name__} of this version: {error}") from error


def dataset_label(week: str, surveys: Collection[str] | None = None) -> str:
    """The week; a choice of surveys adds a mark of its own, so that it never stands in for the whole week."""
    if surveys is None:
        return week
    return f"{week}-{hashlib.sha256(','.join(sorted(surveys)).encode()).hexdigest()[:8]}"


def dataset_key(label: str) -> str:
    """``datasets/<label>.json``."""
    return f"datasets/{label}.json"
