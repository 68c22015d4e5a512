"""The frozen data set of one week: which published digests, which cells are held out, what changed."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from ingestion.manifest import Contract, Digest, Normalisation, SafeName, Week

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


def dataset_key(week: str) -> str:
    """``datasets/<week>.json``."""
    return f"datasets/{week}.json"
