"""Boxes of a volume on S3 are what was published, and a volume that changed is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from published import noise, publish

from ingestion.lake import Lake
from ingestion.manifest import Manifest, Normalisation
from seismic_model.data.store import ChunkCache, SurveyVolume, VolumeError

SHAPE = (21, 18, 33)


@pytest.fixture
def sea(lake: Lake) -> tuple[SurveyVolume, np.ndarray, np.ndarray]:
    manifest, samples, live = survey(lake)
    cache = ChunkCache(max_bytes=5 * 16**3 * 4)
    return SurveyVolume(lake, manifest, cache, ThreadPoolExecutor(3)), samples, live


def survey(lake: Lake) -> tuple[Manifest, np.ndarray, np.ndarray]:
    volume, live = noise(SHAPE), np.ones(SHAPE[:2], dtype=bool)
    live[:17, 16:] = False  # the chunks below it are never written
    live[3, 4] = False
    manifest = publish(lake, "sea", volume, live, normalisation=Normalisation(centre=0.25, scale=0.5, clip=2))
    return manifest, volume, live


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_box_equals_the_published_samples(
    sea: tuple[SurveyVolume, np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    reader, volume, live = sea
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in SHAPE]
    box = tuple(slice(a, b) for a, b in bounds)
    flat = [edge for pair in bounds for edge in pair]

    expected_live = np.broadcast_to(live[:, :, None], SHAPE)[box]
    assert np.array_equal(reader.read(*flat), np.where(expected_live, volume[box], np.nan), equal_nan=True)
    values, alive = reader.normalised(*flat)
    assert np.array_equal(alive, expected_live)
    assert np.array_equal(values, np.where(expected_live, ((volume[box] - 0.25) / 0.5).clip(-2, 2), 0))
    assert values.dtype == np.float32


def test_a_box_outside_the_volume_is_refused(lake: Lake) -> None:
    volume = SurveyVolume(lake, survey(lake)[0])
    with pytest.raises(IndexError, match=r"not inside the volume of shape \(21, 18, 33\)"):
        volume.read(0, 22, 0, 1, 0, 1)
    with pytest.raises(IndexError):
        volume.read(-1, 3, 0, 1, 0, 1)


def test_a_nan_sample_on_a_live_trace_is_not_live(lake: Lake) -> None:
    samples = noise((8, 8, 8))
    samples[2, 3, 4] = np.inf
    volume = SurveyVolume(lake, publish(lake, "odd", samples))
    values, live = volume.normalised(0, 8, 0, 8, 0, 8)
    assert np.argwhere(~live).tolist() == [[2, 3, 4]]
    assert values[2, 3, 4] == 0


@pytest.mark.parametrize(
    ("key", "damage", "said"),
    [
        ("amplitude/zarr.json", b"{}", "amplitude has damaged metadata"),
        ("amplitude/zarr.json", b"\xff", "amplitude has damaged metadata"),
        ("trace_mask/c/0/0", b"cut", "trace_mask cannot be decoded"),
    ],
)
def test_damaged_objects_are_named(lake: Lake, key: str, damage: bytes, said: str) -> None:
    manifest = survey(lake)[0]
    lake.write(f"{manifest.folder}/{manifest.volume.path}/{key}", damage)
    with pytest.raises(VolumeError, match=said):
        SurveyVolume(lake, manifest)


def test_a_lost_chunk_is_an_error_and_not_fill(lake: Lake) -> None:
    manifest = survey(lake)[0]
    lake.delete([f"{manifest.folder}/volume.mdio/amplitude/c/1/0/0"])
    volume = SurveyVolume(lake, manifest)
    volume.read(0, 16, 0, 18, 0, 33)
    with pytest.raises(VolumeError, match="amplitude/c/1/0/0 is lost"):
        volume.read(0, 17, 0, 18, 0, 33)


def test_a_chunk_of_another_size_is_refused(lake: Lake) -> None:
    manifest = survey(lake)[0]
    key = f"{manifest.folder}/volume.mdio/amplitude/c/0/0/0"
    lake.write(key, lake.read(key)[:-1])
    with pytest.raises(VolumeError, match="the manifest says"):
        SurveyVolume(lake, manifest).read(0, 1, 0, 1, 0, 1)


def test_a_chunk_with_damaged_bytes_is_refused(lake: Lake) -> None:
    manifest = survey(lake)[0]
    key = f"{manifest.folder}/volume.mdio/amplitude/c/0/0/0"
    stored = lake.read(key)
    lake.write(key, stored[:16] + bytes(len(stored) - 16))
    with pytest.raises(VolumeError, match="amplitude/c/0/0/0 cannot be decoded"):
        SurveyVolume(lake, manifest).read(0, 1, 0, 1, 0, 1)


def test_a_trace_mask_that_contradicts_the_manifest_is_refused(lake: Lake) -> None:
    manifest = survey(lake)[0].model_copy(update={"live_traces": 5})
    with pytest.raises(VolumeError, match="live traces, the manifest 5"):
        SurveyVolume(lake, manifest)


def test_threads_that_want_one_chunk_share_one_fetch_and_one_failure() -> None:
    cache, calls = ChunkCache(), []

    def load() -> np.ndarray:
        calls.append(1)
        return np.zeros(4, dtype=np.float32)

    with ThreadPoolExecutor(8) as pool:
        assert all(chunk.size == 4 for chunk in pool.map(lambda _: cache.get("a", load), range(50)))
    assert len(calls) == 1

    def fail() -> np.ndarray:
        raise VolumeError("gone")

    for _ in range(2):  # a failure is not remembered
        with pytest.raises(VolumeError):
            cache.get("b", fail)
    assert cache.get("b", load).size == 4


def test_the_cache_forgets_the_least_recently_used_chunk() -> None:
    cache, loaded = ChunkCache(max_bytes=2 * 16), []

    def get(name: str) -> None:
        def load() -> np.ndarray:
            loaded.append(name)
            return np.zeros(4, dtype=np.float32)

        cache.get(name, load)

    for name in "abacab":
        get(name)
    assert "".join(loaded) == "abcb"
