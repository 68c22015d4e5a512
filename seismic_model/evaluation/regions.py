"""Which held-out regions are scored and what is hidden in them, decided once for all models that are compared."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest, Manifest, SafeName
from seismic_model.config import RunConfig, Triple
from seismic_model.data.dataset import Dataset, load_survey
from seismic_model.data.splits import held_out_mask, held_out_regions
from seismic_model.data.store import BoolArray, ChunkCache, FloatArray, SurveyVolume
from seismic_model.evaluation.scores import Unscored
from seismic_model.model.masking import Masking, Masks, Shard, TokenLayout, unpatchify

EVALUATION_VERSION = 1  # part of every evaluation key; raise it when the same weights would be scored otherwise
REGIONS = {"select": 8, "test": 24}  # most regions of one survey
_MASK_SEED = 1  # not the run's: another run is given the same masks
_MASK_EPOCH = 2**63  # no training epoch comes near
_BATCH_VOXELS = 1 << 22
_FETCH_THREADS = 8

Half = Literal["select", "test"]


class PlannedSurvey(Contract):
    """The regions of one survey."""

    survey: SafeName
    digest: Digest
    unseen: bool  # the whole survey is held out
    origins: list[Triple]


class EvaluationPlan(Contract):
    """Regions and masks; the same plan gives every model the same task."""

    version: int
    window: Triple  # voxels of a region
    patch: Triple  # voxels that are hidden or visible together
    keep_ratio: float
    mask_seed: int
    surveys: list[PlannedSurvey]

    @property
    def key(self) -> str:
        """SHA-256 of all that decides what is scored."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def shard(self) -> Shard:
        """All tokens of a region."""
        return Shard.of(TokenLayout(self.window, self.patch), Masking(self.keep_ratio, self.mask_seed))


@dataclass(frozen=True)
class RegionBatch:
    """Some regions of one survey, and what is hidden in them."""

    manifest: Manifest
    origins: list[Triple]
    values_BIXZ: FloatArray  # normalised and clipped, 0 where not live
    truth_BIXZ: npt.NDArray[np.float64]  # amplitudes as published, 0 where not live
    live_BIXZ: BoolArray
    masks: Masks
    known_BIXZ: BoolArray  # live and visible: where a method may look at the values
    scored_BIXZ: BoolArray  # live and hidden


@contextmanager
def open_volumes(lake: Lake, dataset: Dataset) -> Iterator[dict[str, SurveyVolume]]:
    """The data set's volumes by survey name, with threads that fetch their chunks side by side."""
    cache = ChunkCache()
    with ThreadPoolExecutor(_FETCH_THREADS, thread_name_prefix="chunks") as pool:
        yield {entry.survey: SurveyVolume(lake, load_survey(lake, entry), cache, pool) for entry in dataset.surveys}


def plan_evaluation(
    volumes: Mapping[str, SurveyVolume], config: RunConfig, dataset: Dataset, half: Half
) -> tuple[EvaluationPlan, list[Unscored]]:
    """The plan that the data set and a candidate's patch and keep ratio give, and the surveys it has no region of.

    Regions that lie over each other are one column, and columns go to the two halves in turn, beginning with the
    test: the checkpoint is chosen on other places than those that give its figures. A survey that is held out
    wholly chooses nothing.
    """
    surveys, unscored = [], []
    for name, volume in volumes.items():
        unseen = name in dataset.split.held_out_surveys
        held_out_IX = held_out_mask(volume.manifest, dataset.split, dataset.held_out_cells)
        regions = held_out_regions(held_out_IX, volume.live_IX, volume.manifest.shape[2], dataset.window)
        if origins := _spread(_half(regions, half, unseen), REGIONS[half]):
            surveys.append(PlannedSurvey(survey=name, digest=volume.manifest.digest, unseen=unseen, origins=origins))
        else:
            unscored.append(Unscored(survey=name, reason=_why_not(held_out_IX, dataset.window)))
    plan = EvaluationPlan(
        version=EVALUATION_VERSION,
        window=dataset.window,
        patch=config.model.patch,
        keep_ratio=config.keep_ratio,
        mask_seed=_MASK_SEED,
        surveys=surveys,
    )
    return plan, unscored


def read_regions(volume: SurveyVolume, origins: list[Triple], plan: EvaluationPlan) -> Iterator[RegionBatch]:
    """Regions of one survey in batches of bounded size. Raises ``VolumeError``."""
    size = max(1, _BATCH_VOXELS // math.prod(plan.window))
    for first in range(0, len(origins), size):
        yield _read(volume, origins[first : first + size], plan)


def _read(volume: SurveyVolume, origins: list[Triple], plan: EvaluationPlan) -> RegionBatch:
    boxes = [_box(origin, plan.window) for origin in origins]
    values, live = map(np.stack, zip(*(volume.normalised(*box) for box in boxes), strict=True))
    amplitudes = np.stack([volume.read(*box) for box in boxes])
    masks = plan.shard.draw(_MASK_EPOCH, [_sample_id(volume.manifest.survey, origin) for origin in origins])
    visible_BIXZ = _voxels(masks.visible_BK, plan.shard.layout)
    return RegionBatch(
        manifest=volume.manifest,
        origins=origins,
        values_BIXZ=values,
        truth_BIXZ=np.where(live, amplitudes, 0).astype(np.float64),
        live_BIXZ=live,
        masks=masks,
        known_BIXZ=live & visible_BIXZ,
        scored_BIXZ=live & ~visible_BIXZ,
    )


def _sample_id(survey: str, origin: Triple) -> int:
    """A place keeps its mask when other places, or a new version of the survey, come."""
    return int.from_bytes(hashlib.sha256(f"{survey}|{origin}".encode()).digest()[:8], "big")


def _voxels(ids_BK: Tensor, layout: TokenLayout) -> BoolArray:
    """Whether a voxel (B, I, X, Z) belongs to one of the tokens."""
    flags_BLP = torch.zeros(len(ids_BK), layout.tokens, math.prod(layout.patch), dtype=torch.bool)
    flags_BLP[torch.arange(len(ids_BK))[:, None], ids_BK] = True
    voxels_BIXZ: BoolArray = unpatchify(flags_BLP, layout, range(layout.tokens)).numpy()
    return voxels_BIXZ


def _half(regions: list[Triple], half: Half, unseen: bool) -> list[Triple]:
    columns = list(dict.fromkeys(origin[:2] for origin in regions))
    tested = set(columns if unseen else columns[::2])
    return [origin for origin in regions if (origin[:2] in tested) == (half == "test")]


def _spread(regions: list[Triple], most: int) -> list[Triple]:
    """At most ``most`` of them, evenly spread over their order."""
    count = min(most, len(regions))
    return [regions[n * len(regions) // count] for n in range(count)]


def _why_not(held_out_IX: BoolArray, window: Triple) -> str:
    return (
        f"no region {window} of its own lies wholly on held-out places ({held_out_IX.mean():.0%} of its traces) "
        "with enough live traces"
    )


def _box(origin: Triple, window: Triple) -> tuple[int, int, int, int, int, int]:
    (i, x, z), (wi, wx, wz) = origin, window
    return i, i + wi, x, x + wx, z, z + wz
