"""The reader brings the samples of the right places, however many ranks share the work."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from published import noise, publish

from ingestion.lake import Lake
from seismic_model.data.dataset import Dataset, SplitPolicy, load_survey
from seismic_model.data.freeze import freeze
from seismic_model.data.reader import CropReader, MicroBatch
from seismic_model.data.sampling import BatchPlan
from seismic_model.data.splits import held_out_mask
from seismic_model.data.store import SurveyVolume, VolumeError
from seismic_model.model.masking import TokenLayout

WINDOW = (12, 8, 16)
LAYOUT = TokenLayout(WINDOW, (4, 4, 4))
SPLIT = SplitPolicy(cell_size=250, held_out_share=0.2, salt="4")
STEPS = range(3, 9)


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    live = np.ones((40, 30), dtype=bool)
    live[::3, 5] = False
    publish(lake, "north", noise((40, 30, 33)), live)
    publish(lake, "south", noise((40, 30, 20), seed=1), origin=(50_000.0, 0.0))
    return freeze(lake, "2026-W48", WINDOW, SPLIT)


def read(lake: Lake, dataset: Dataset, plan: BatchPlan, inlines: slice = slice(0, WINDOW[0])) -> list[MicroBatch]:
    return list(CropReader(lake, dataset, 0, plan, inlines, STEPS).stream())


def test_crops_hold_the_published_samples_and_no_held_out_trace(lake: Lake, dataset: Dataset) -> None:
    volumes = [SurveyVolume(lake, load_survey(lake, entry)) for entry in dataset.surveys]
    masks = [held_out_mask(v.manifest, dataset.split, dataset.held_out_cells) for v in volumes]
    assert any(mask.any() for mask in masks)
    batches = read(lake, dataset, BatchPlan(8, 2, 1, 0))
    assert [batch.step for batch in batches] == [step for step in STEPS for _ in range(2)]
    for batch in batches:
        for crop, values, live in zip(batch.crops, batch.values_BIXZ, batch.live_BIXZ, strict=True):
            (i, x, z), (wi, wx, wz) = crop.origin, WINDOW
            expected = volumes[crop.survey].normalised(i, i + wi, x, x + wx, z, z + wz)
            assert np.array_equal(values, expected[0])
            assert np.array_equal(live, expected[1])
            assert not masks[crop.survey][i : i + wi, x : x + wx].any()
    assert {crop.survey for batch in batches for crop in batch.crops} == {0, 1}


def test_ranks_together_read_the_same_global_batches(lake: Lake, dataset: Dataset) -> None:
    whole = {crop.sample_id: values for b in read(lake, dataset, BatchPlan(8, 1, 1, 0)) for crop, values in pairs(b)}
    seen = set()
    for dp_rank in range(2):
        for cp_rank in range(3):
            tokens = LAYOUT.shard(cp_rank, 3)
            inlines = LAYOUT.inline_slab(tokens)
            for batch in read(lake, dataset, BatchPlan(8, 2, 2, dp_rank), inlines):
                for crop, values in pairs(batch):
                    assert np.array_equal(values, whole[crop.sample_id][inlines])
                    seen.add(crop.sample_id)
    assert seen == whole.keys()
    assert len(seen) == 8 * len(STEPS)


def test_a_rank_without_tokens_gets_empty_crops(lake: Lake, dataset: Dataset) -> None:
    batches = read(lake, dataset, BatchPlan(4, 1, 1, 0), slice(0, 0))
    assert len(batches) == len(STEPS)
    assert all(batch.values_BIXZ.shape == batch.live_BIXZ.shape == (4, 0, 8, 16) for batch in batches)


def test_a_lost_chunk_stops_the_reader_and_is_named(lake: Lake, dataset: Dataset) -> None:
    lake.delete([entry.key for entry in lake.objects("surveys") if "/amplitude/c/" in entry.key])
    with pytest.raises(VolumeError, match=r"amplitude/c/\d/\d/\d is lost"):
        read(lake, dataset, BatchPlan(4, 1, 1, 0))


def test_a_reader_left_early_leaves_no_thread(lake: Lake, dataset: Dataset) -> None:
    before = threading.active_count()
    reader = CropReader(lake, dataset, 0, BatchPlan(4, 1, 1, 0), slice(0, WINDOW[0]), range(10_000)).stream()
    next(reader)
    reader.close()
    assert threading.active_count() == before


def pairs(batch: MicroBatch) -> list[tuple[object, np.ndarray]]:
    return list(zip(batch.crops, batch.values_BIXZ, strict=True))
