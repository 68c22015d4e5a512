"""What is scored: the same held-out regions with the same patches hidden, for every model.

Regions and masks follow from the data set and the protocol alone, so a candidate and a champion that are scored
under one protocol see the same voxels, whatever their runs were told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from ingestion.manifest import Contract, Manifest
from seismic_model.config import RunConfig, Triple
from seismic_model.data.dataset import Dataset
from seismic_model.data.splits import held_out_mask, held_out_regions
from seismic_model.data.store import BoolArray, FloatArray, SurveyVolume
from seismic_model.model.masking import TokenLayout, visible_ids

_STREAM = 2**64 - 2  # the epoch of evaluation masks; no training epoch comes near


class Protocol(Contract):
    """How models are scored. Figures compare only under equal protocols."""

    version: int = 1  # raise it by hand when the same model would get other figures
    window: Triple  # voxels of a region
    block: Triple  # voxels that are hidden or seen together
    keep_ratio: float = Field(gt=0, lt=1)  # share of blocks that models see
    seed: int = Field(default=2026, ge=0)  # of masks and choices, not the run's
    regions_per_survey: int = Field(default=32, gt=0)  # in each of the two halves

    @classmethod
    def of(cls, config: RunConfig) -> Protocol:
        """The protocol that a run's own window, patch and keep ratio give."""
        return cls(window=config.window, block=config.model.patch, keep_ratio=config.keep_ratio)


@dataclass(frozen=True)
class RegionChoice:
    """Origins in one survey: some to choose a checkpoint by, others, apart laterally, that give the figures."""

    unseen: bool  # the whole survey is held out: no model has trained on any of it
    selection: list[Triple]
    test: list[Triple]


@dataclass(frozen=True)
class Region:
    """One region as models and baselines see it, and the truth."""

    origin: Triple
    true_IXZ: FloatArray  # raw amplitudes, NaN where nothing was recorded
    values_IXZ: FloatArray  # normalised, 0 where not live
    live_IXZ: BoolArray
    seen_IXZ: BoolArray  # voxels of blocks that are not hidden, dead ones included

    @property
    def known_IXZ(self) -> BoolArray:
        """What a model may use: seen and live."""
        return self.seen_IXZ & self.live_IXZ

    @property
    def scored_IXZ(self) -> BoolArray:
        """What counts: hidden and live."""
        return ~self.seen_IXZ & self.live_IXZ


def choose_regions(volume: SurveyVolume, dataset: Dataset, protocol: Protocol) -> RegionChoice:
    """Split a survey's held-out places into two halves and take a bounded number of regions of each.

    Whole lateral places go to one half, since regions above each other are alike. A survey that is held out
    wholly is not used to choose anything.
    """
    manifest = volume.manifest
    held_out_IX = held_out_mask(manifest, dataset.split, dataset.held_out_cells)
    origins = held_out_regions(held_out_IX, volume.live_IX, manifest.shape[2], protocol.window)
    places = sorted({(i, x) for i, x, _ in origins}, key=lambda place: _draw(manifest, protocol, place))
    unseen = manifest.survey in dataset.split.held_out_surveys
    halves = ([], places) if unseen else (places[1::2], places[::2])

    def first_regions(half: list[tuple[int, int]]) -> list[Triple]:
        drawn = [origin for place in half for origin in origins if origin[:2] == place]
        return sorted(drawn[: protocol.regions_per_survey])

    return RegionChoice(unseen, *map(first_regions, halves))


def read_regions(volume: SurveyVolume, origins: list[Triple], protocol: Protocol) -> Iterator[Region]:
    """The regions at ``origins``, in order. Raises ``VolumeError``."""
    for origin in origins:
        (i, x, z), (wi, wx, wz) = origin, protocol.window
        box = (i, i + wi, x, x + wx, z, z + wz)
        values_IXZ, live_IXZ = volume.normalised(*box)
        seen_IXZ = _seen(protocol, _draw(volume.manifest, protocol, origin))
        yield Region(origin, volume.read(*box), values_IXZ, live_IXZ, seen_IXZ)


def _seen(protocol: Protocol, sample_id: int) -> BoolArray:
    layout = TokenLayout(protocol.window, protocol.block)
    seen_L = np.zeros(layout.tokens, dtype=bool)
    seen_L[visible_ids(layout, protocol.keep_ratio, protocol.seed, _STREAM, sample_id, range(layout.tokens))] = True
    seen_IXZ = seen_L.reshape(layout.grid)
    for axis, edge in enumerate(protocol.block):
        seen_IXZ = seen_IXZ.repeat(edge, axis)
    return seen_IXZ


def _draw(manifest: Manifest, protocol: Protocol, place: tuple[int, ...]) -> int:
    """A number in [0, 2**64) that belongs to a place of a survey; a new version of the survey keeps it."""
    text = "|".join(map(str, (protocol.seed, manifest.survey, *place)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
