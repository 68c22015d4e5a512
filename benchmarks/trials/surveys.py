"""Made surveys as arrays: no SEG-Y, no lake, no ingestion.

Amplitudes are normalised as ingestion does it: median and 1 to 99 % range of live samples, clipped at 6 scales.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingestion.synthetic import BASINS, make_survey
from seismic_model.config import Triple
from seismic_model.data.reader import MicroBatch
from seismic_model.data.sampling import CropSampler, CropSpec
from seismic_model.data.splits import held_out_regions, train_origins
from seismic_model.data.store import BoolArray, FloatArray

SHAPE = (128, 128, 128)  # voxels of a survey
_CLIP = 6.0  # scales
_TAIL_DEVIATIONS = 2.326  # standard normal quantile of 0.99


@dataclass(frozen=True)
class MadeSurvey:
    """A generated survey, ready to train on or to be scored."""

    basin: str
    seed: int
    values_IXZ: FloatArray  # normalised, 0 where not live
    live_IX: BoolArray
    fault_IXZ: BoolArray


@functools.lru_cache(maxsize=32)
def made_survey(basin: str, seed: int) -> MadeSurvey:
    """The survey of ``make_survey``; other seeds below 64 are other places of the basin."""
    made = make_survey(BASINS[basin], seed, SHAPE)
    low, centre, high = np.percentile(made.amplitude_IXZ[made.live_IX], (1, 50, 99))
    values_IXZ = (made.amplitude_IXZ - centre) / (high - low) * (2 * _TAIL_DEVIATIONS)
    values_IXZ = np.where(made.live_IX[:, :, None], values_IXZ.clip(-_CLIP, _CLIP), 0).astype(np.float32)
    return MadeSurvey(basin, seed, values_IXZ, made.live_IX, made.fault_IXZ)


class TrainingCrops:
    """The crops of a training run, drawn as a real one draws them, all surveys alike."""

    def __init__(self, surveys: Sequence[MadeSurvey], window: Triple, seed: int) -> None:
        self._surveys, self._window = surveys, window
        origins = [train_origins(np.zeros_like(each.live_IX), each.live_IX, window) for each in surveys]
        depths = [each.values_IXZ.shape[2] - window[2] + 1 for each in surveys]
        self._sampler = CropSampler(seed, [1.0] * len(surveys), origins, depths)

    def batch(self, step: int, size: int) -> MicroBatch:
        """The ``size`` crops of a step."""
        return cut(self._surveys, [self._sampler.crop(step * size + b) for b in range(size)], self._window, step)


def tiles(survey: MadeSurvey, window: Triple) -> list[Triple]:
    """Origins of windows that do not overlap and are at least half live; those of one place follow each other."""
    return held_out_regions(np.ones_like(survey.live_IX), survey.live_IX, survey.values_IXZ.shape[2], window)


def cut(surveys: Sequence[MadeSurvey], crops: list[CropSpec], window: Triple, step: int = 0) -> MicroBatch:
    """Cut some crops out of their surveys; sizes of voxels are those of the reference."""
    boxes = [(surveys[crop.survey], _box(crop.origin, window)) for crop in crops]
    values_BIXZ = np.stack([survey.values_IXZ[box] for survey, box in boxes])
    live_BIX = np.stack([survey.live_IX[box[:2]] for survey, box in boxes])
    live_BIXZ = np.broadcast_to(live_BIX[..., None], values_BIXZ.shape).copy()
    return MicroBatch(step, values_BIXZ, live_BIXZ, crops, np.ones((len(crops), 3)))


def cut_faults(survey: MadeSurvey, origins: Sequence[Triple], window: Triple) -> BoolArray:
    """Fault labels (B, I, X, Z) of the windows at ``origins``."""
    return np.stack([survey.fault_IXZ[_box(origin, window)] for origin in origins])


def _box(origin: Triple, window: Triple) -> tuple[slice, slice, slice]:
    i, x, z = (slice(first, first + edge) for first, edge in zip(origin, window, strict=True))
    return i, x, z
