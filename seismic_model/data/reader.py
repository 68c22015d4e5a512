"""Stream the crops of a run from the lake: threads fetch ahead while the model computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingestion.lake import Lake
from seismic_model.config import ReferenceSpacing
from seismic_model.data.dataset import Dataset, load_survey
from seismic_model.data.sampling import BatchPlan, CropSampler, CropSpec
from seismic_model.data.sharing import SharedRead, SlabGroup
from seismic_model.data.spacing import relative_spacing
from seismic_model.data.splits import train_origins, untrained_mask
from seismic_model.data.store import BoolArray, ChunkCache, FloatArray, SurveyVolume

_FETCH_THREADS = 8  # chunks in flight for one process
_AHEAD = 2  # micro-batches being read while another is computed


@dataclass(frozen=True)
class MicroBatch:
    """One rank's part of some crops: all of them, but only the inlines that hold the rank's tokens."""

    step: int  # counts from 0
    values_BIXZ: FloatArray  # normalised amplitudes, 0 where not live
    live_BIXZ: BoolArray
    crops: list[CropSpec]
    spacing_B3: npt.NDArray[np.float64]  # size of the voxels over the model's reference


class CropReader:
    """The micro-batches of one rank, in order, from one step to another.

    Args:
        lake: holds the data set's surveys.
        dataset: frozen.
        seed: of the run.
        plan: which crops are this rank's.
        group: the parts of each crop that the tokens of each rank lie in (``TokenLayout.inline_slab``).
        steps: first and one past the last step to read.
        reference: voxel that the model's positions count in.

    Raises ``DatasetError`` or ``VolumeError`` when a survey is not what was frozen.
    """

    def __init__(
        self,
        lake: Lake,
        dataset: Dataset,
        seed: int,
        plan: BatchPlan,
        group: SlabGroup,
        steps: range,
        reference: ReferenceSpacing | None = None,
    ) -> None:
        self._plan, self._group, self._steps = plan, group, steps
        self._window = dataset.window
        self._chunk_pool = ThreadPoolExecutor(_FETCH_THREADS, thread_name_prefix="chunks")
        self._volumes = _open_volumes(lake, dataset, self._chunk_pool)
        self._sampler = _sampler(dataset, seed, self._volumes)
        self._spacing = {at: relative_spacing(volume.manifest, reference) for at, volume in self._volumes.items()}

    def where(self, sample_id: int) -> str:
        """Survey and first voxel of a crop, for people who want to look at it."""
        crop = self._sampler.crop(sample_id)
        return f"{self._volumes[crop.survey].manifest.survey} at {crop.origin}"

    def stream(self) -> Generator[MicroBatch, None, None]:
        """The micro-batches; can be had once. Collective over the group at each item.

        Raises ``VolumeError`` for a chunk that is lost or damaged.
        """
        turns = ((step, micro) for step in self._steps for micro in range(self._plan.accumulation))
        pending: deque[Future[tuple[MicroBatch, SharedRead]]] = deque()
        with ThreadPoolExecutor(_AHEAD, thread_name_prefix="crops") as crop_pool, self._chunk_pool:
            try:
                for turn in turns:
                    pending.append(crop_pool.submit(self._load, *turn))
                    if len(pending) > _AHEAD:
                        yield _completed(pending.popleft())
                while pending:
                    yield _completed(pending.popleft())
            finally:
                crop_pool.shutdown(cancel_futures=True)

    def _load(self, step: int, micro_batch: int) -> tuple[MicroBatch, SharedRead]:
        """A micro-batch that still lacks what other ranks read."""
        crops = [self._sampler.crop(index) for index in self._plan.indices(step, micro_batch)]
        inlines = self._group.slabs[self._group.rank]
        shape = (len(crops), inlines.stop - inlines.start, *self._window[1:])
        values_BIXZ, live_BIXZ = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=bool)
        shared = SharedRead(self._group)
        for crop, values_IXZ, live_IXZ in zip(crops, values_BIXZ, live_BIXZ, strict=True):
            shared.add(self._volumes[crop.survey], crop.origin, self._window, values_IXZ, live_IXZ)
        shared.read(self._chunk_pool)
        spacing_B3 = np.array([self._spacing[crop.survey] for crop in crops])
        return MicroBatch(step, values_BIXZ, live_BIXZ, crops, spacing_B3), shared


def _open_volumes(lake: Lake, dataset: Dataset, pool: Executor) -> dict[int, SurveyVolume]:
    """Volumes of the surveys that train, by position in the data set."""
    cache = ChunkCache()
    training = {position: entry for position, entry in enumerate(dataset.surveys) if entry.weight}
    volumes = pool.map(lambda entry: SurveyVolume(lake, load_survey(lake, entry), cache, pool), training.values())
    return dict(zip(training, volumes, strict=True))


def _sampler(dataset: Dataset, seed: int, volumes: dict[int, SurveyVolume]) -> CropSampler:
    nowhere = np.zeros((0, 0), dtype=bool)
    origins, depths = [nowhere] * len(dataset.surveys), [0] * len(dataset.surveys)
    for position, volume in volumes.items():
        untrained_IX = untrained_mask(volume.manifest, dataset.split, dataset.held_out_cells)
        origins[position] = train_origins(untrained_IX, volume.live_IX, dataset.window)
        depths[position] = volume.manifest.shape[2] - dataset.window[2] + 1
    return CropSampler(seed, [entry.weight for entry in dataset.surveys], origins, depths)


def _completed(loaded: Future[tuple[MicroBatch, SharedRead]]) -> MicroBatch:
    batch, shared = loaded.result()
    shared.complete()
    return batch
