"""The reader brings the samples of the right places, however many ranks share the work."""

from __future__ import annotations

import itertools
import queue
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from published import noise, publish

from ingestion.lake import Lake
from seismic_model.config import ReferenceSpacing
from seismic_model.data.dataset import Dataset, SplitPolicy, load_survey
from seismic_model.data.freeze import freeze
from seismic_model.data.reader import CropReader, MicroBatch
from seismic_model.data.sampling import BatchPlan, CropSpec
from seismic_model.data.sharing import HandOver, SlabGroup
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


def alone() -> SlabGroup:
    """One rank that needs the whole crop and has nobody to ask."""
    return SlabGroup((slice(0, WINDOW[0]),), 0, lambda _outgoing, _sizes: pytest.fail("there is nobody to ask"))


def read(
    lake: Lake, dataset: Dataset, plan: BatchPlan, group: SlabGroup | None = None, steps: range = STEPS
) -> list[MicroBatch]:
    return list(CropReader(lake, dataset, 0, plan, group or alone(), steps).stream())


class Post:
    """Hands arrays over between threads that stand for the ranks of a group."""

    def __init__(self, ranks: int) -> None:
        self.boxes = {pair: queue.SimpleQueue() for pair in itertools.product(range(ranks), repeat=2)}

    def of(self, rank: int) -> HandOver:
        def exchange(outgoing: Mapping[int, np.ndarray], sizes: Mapping[int, int]) -> dict[int, np.ndarray]:
            for other, values in outgoing.items():
                self.boxes[rank, other].put(values)
            received = {other: self.boxes[other, rank].get(timeout=20) for other in sizes}
            assert {other: values.size for other, values in received.items()} == dict(sizes)
            return received

        return exchange


def read_together(
    lake: Lake, dataset: Dataset, plan: BatchPlan, slabs: tuple[slice, ...], steps: range = STEPS
) -> list[list[MicroBatch]]:
    """What each rank of a group gets."""
    post = Post(len(slabs))
    groups = [SlabGroup(slabs, rank, post.of(rank)) for rank in range(len(slabs))]
    with ThreadPoolExecutor(len(slabs)) as ranks:
        return list(ranks.map(lambda group: read(lake, dataset, plan, group, steps), groups))


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


@pytest.mark.parametrize("cp", [2, 3, 5])
def test_ranks_together_read_the_same_global_batches(lake: Lake, dataset: Dataset, cp: int) -> None:
    """Two strata in three planes of patches: a plane is needed by two ranks, and more ranks than two have no token."""
    whole = {crop.sample_id: (values, live) for crop, values, live in crops(read(lake, dataset, BatchPlan(8, 1, 1, 0)))}
    slabs = tuple(LAYOUT.inline_slab(LAYOUT.shard(rank, cp)) for rank in range(cp))
    seen = []
    for dp_rank in range(2):
        ranks = read_together(lake, dataset, BatchPlan(8, 2, 2, dp_rank), slabs)
        for inlines, batches in zip(slabs, ranks, strict=True):
            for crop, values, live in crops(batches):
                assert np.array_equal(values, whole[crop.sample_id][0][inlines])
                assert np.array_equal(live, whole[crop.sample_id][1][inlines])
                seen.append(crop.sample_id)
    assert Counter(seen) == dict.fromkeys(whole, cp)
    assert len(whole) == 8 * len(STEPS)


def test_each_crop_comes_with_the_size_of_its_own_voxels(lake: Lake) -> None:
    publish(lake, "north", noise((40, 30, 33)), inline_vector=(12.5, 0.0))
    publish(lake, "south", noise((40, 30, 20), seed=1), origin=(50_000.0, 0.0))
    dataset = freeze(lake, "2026-W48", WINDOW, SPLIT)
    reference = ReferenceSpacing(inline_m=25, crossline_m=50, time_ms=4, depth_m=10)
    reader = CropReader(lake, dataset, 0, BatchPlan(8, 1, 1, 0), alone(), STEPS, reference)
    expected = {dataset.surveys[at].survey: at for at in range(2)}
    sizes = {expected["north"]: [0.5, 0.5, 1.0], expected["south"]: [1.0, 0.5, 1.0]}
    found = [pair for batch in reader.stream() for pair in zip(batch.crops, batch.spacing_B3.tolist(), strict=True)]
    assert {crop.survey for crop, _ in found} == {0, 1}
    assert all(size == sizes[crop.survey] for crop, size in found)


def test_a_group_fetches_each_chunk_once(lake: Lake, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    fetch = Lake.read

    def noted(of: Lake, key: str) -> bytes:
        if "/amplitude/c/" in key:
            fetched.append(key)
        return fetch(of, key)

    monkeypatch.setattr(Lake, "read", noted)
    one_crop, slabs = BatchPlan(1, 1, 1, 0), tuple(slice(i, i + 3) for i in range(0, WINDOW[0], 3))
    for step in STEPS:
        read(lake, dataset, one_crop, steps=range(step, step + 1))
        by_one, fetched[:] = sorted(fetched), []
        read_together(lake, dataset, one_crop, slabs, range(step, step + 1))
        assert sorted(fetched) == by_one
        fetched.clear()


def test_a_lost_chunk_stops_the_reader_and_is_named(lake: Lake, dataset: Dataset) -> None:
    lake.delete([entry.key for entry in lake.objects("surveys") if "/amplitude/c/" in entry.key])
    with pytest.raises(VolumeError, match=r"amplitude/c/\d/\d/\d is lost"):
        read(lake, dataset, BatchPlan(4, 1, 1, 0))


def test_a_reader_left_early_leaves_no_thread(lake: Lake, dataset: Dataset) -> None:
    before = threading.active_count()
    reader = CropReader(lake, dataset, 0, BatchPlan(4, 1, 1, 0), alone(), range(10_000)).stream()
    next(reader)
    reader.close()
    assert threading.active_count() == before


def crops(batches: list[MicroBatch]) -> Iterator[tuple[CropSpec, np.ndarray, np.ndarray]]:
    for batch in batches:
        yield from zip(batch.crops, batch.values_BIXZ, batch.live_BIXZ, strict=True)
