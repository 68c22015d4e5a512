"""Read boxes of a published volume straight from the lake: few calls, threads, chunks decoded once.

zarr reads the metadata; chunks are fetched with obstore and decoded with numcodecs, which release the GIL.
The manifest says which chunks exist, so a chunk that is absent from it is fill, and one that is lost is an error.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from threading import Lock
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ZstdCodec

from ingestion.lake import Lake
from ingestion.manifest import Manifest
from seismic_model.config import Triple

FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]  # (first, one past the last) inline, crossline, sample

_DECODERS: dict[type, Callable[[bytes], Any]] = {
    BloscCodec: numcodecs.Blosc().decode,
    ZstdCodec: numcodecs.Zstd().decode,
    GzipCodec: numcodecs.GZip().decode,
}


class VolumeError(Exception):
    """A published volume is not what its manifest says; the message names the object and both values."""


class ChunkCache:
    """The most recently used decoded chunks, at most ``max_bytes`` of them, shared by threads and volumes.

    Threads that want the same chunk at once share one fetch.
    """

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._chunks: OrderedDict[str, Future[FloatArray]] = OrderedDict()
        self._lock = Lock()

    def get(self, name: str, load: Callable[[], FloatArray]) -> FloatArray:
        """The chunk ``name``, loaded by ``load`` when it is not here. Raises what ``load`` raises."""
        with self._lock:
            known = self._chunks.get(name)
            if known is not None:
                self._chunks.move_to_end(name)
            else:
                mine = self._chunks[name] = Future[FloatArray]()
        if known is not None:
            return known.result()
        try:
            chunk = load()
        except BaseException as error:
            with self._lock:
                del self._chunks[name]
            mine.set_exception(error)
            raise
        mine.set_result(chunk)
        self._shrink(chunk.nbytes)
        return chunk

    def _shrink(self, added: int) -> None:
        with self._lock:
            self._bytes += added
            for name, chunk in list(self._chunks.items()):
                if self._bytes <= self._max_bytes:
                    break
                if chunk.done():
                    self._bytes -= chunk.result().nbytes
                    del self._chunks[name]


class SurveyVolume:
    """Amplitudes of one published survey.

    Args:
        lake: where it lies.
        manifest: what it says of itself.
        cache: decoded chunks, shared with other volumes.
        pool: threads that fetch the chunks of one box side by side; without it they come one by one.

    Raises ``VolumeError`` when the store's metadata or trace mask contradict the manifest.
    """

    def __init__(
        self, lake: Lake, manifest: Manifest, cache: ChunkCache | None = None, pool: Executor | None = None
    ) -> None:
        self.manifest = manifest
        self._lake = lake
        self._cache = cache or ChunkCache()
        self._map: Callable[..., Iterator[None]] = map if pool is None else pool.map
        store = lake.zarr_store(f"{manifest.folder}/{manifest.volume.path}", read_only=True)
        self._array = self._open(store, manifest.volume.variable, manifest.shape)
        self._decoder = self._chunk_decoder()
        self.live_IX = self._live_mask(store)
        if (found := int(self.live_IX.sum())) != manifest.live_traces:
            raise VolumeError(
                f"{lake.uri_of(manifest.folder)}: trace_mask has {found} live traces, "
                f"the manifest {manifest.live_traces}; publish the survey again"
            )

    def read(self, i0: int, i1: int, x0: int, x1: int, z0: int, z1: int) -> FloatArray:
        """Raw amplitudes (i1 - i0, x1 - x0, z1 - z0) of that box of indices; NaN where nothing was recorded.

        Raises ``IndexError`` for a box outside the volume and ``VolumeError`` as ``scatter`` does.
        """
        box = ((i0, i1), (x0, x1), (z0, z1))
        if any(not 0 <= a <= b <= n for (a, b), n in zip(box, self.manifest.shape, strict=True)):
            raise IndexError(f"box {box} is not inside the volume of shape {self.manifest.shape}")
        out = np.full((i1 - i0, x1 - x0, z1 - z0), np.nan, dtype=np.float32)
        for _ in self._map(lambda chunk: self.scatter(chunk, [(box, out)]), self.chunks(box)):
            pass
        return out

    def normalised(self, i0: int, i1: int, x0: int, x1: int, z0: int, z1: int) -> tuple[FloatArray, BoolArray]:
        """Normalised amplitudes of a box, and which of its voxels are live and finite; the others are 0."""
        values = self.read(i0, i1, x0, x1, z0, z1)
        return values, self.normalise(values, i0, x0)

    def normalise(self, values_IXZ: FloatArray, i0: int, x0: int) -> BoolArray:
        """Normalise raw amplitudes that begin at inline ``i0`` and crossline ``x0``, in place; see ``normalised``."""
        inlines, crosslines, _ = values_IXZ.shape
        live_IXZ = self.live_IX[i0 : i0 + inlines, x0 : x0 + crosslines, None] & np.isfinite(values_IXZ)
        rule = self.manifest.normalisation
        with np.errstate(over="ignore"):  # infinite is clipped like any other
            values_IXZ -= rule.centre
            values_IXZ /= rule.scale
        values_IXZ.clip(-rule.clip, rule.clip, out=values_IXZ)
        values_IXZ[~live_IXZ] = 0
        return live_IXZ

    def chunks(self, box: Box) -> list[Triple]:
        """The stored chunks that a box touches, in order; those that are not stored hold nothing but fill."""
        if any(a == b for a, b in box):
            return []
        steps = self.manifest.volume.chunk_shape
        i, x, z = (range(a // step, -(-b // step)) for (a, b), step in zip(box, steps, strict=True))
        return [chunk for chunk in itertools.product(i, x, z) if self._key(chunk) in self.manifest.volume.keys]

    def part(self, chunk: Triple, box: Box) -> Box:
        """What a chunk and a box have in common; an axis of no length where that is nothing."""
        steps = self.manifest.volume.chunk_shape
        low = [max(a, n * step) for n, step, (a, _) in zip(chunk, steps, box, strict=True)]
        high = [min(b, (n + 1) * step) for n, step, (_, b) in zip(chunk, steps, box, strict=True)]
        i, x, z = ((a, max(a, b)) for a, b in zip(low, high, strict=True))
        return i, x, z

    def scatter(self, chunk: Triple, targets: Iterable[tuple[Box, FloatArray]]) -> None:
        """Copy what a chunk holds of each box into the array of that box's raw amplitudes; fetches it at most once.

        Raises ``VolumeError`` for a chunk that is lost, of another size or undecodable; digests are not checked,
        which would cost as much CPU as decoding.
        """
        key = self._key(chunk)
        values = self._cache.get(f"{self._lake.uri}/{self.manifest.folder}/{key}", lambda: self._fetch(key))
        origin = [n * step for n, step in zip(chunk, self.manifest.volume.chunk_shape, strict=True)]
        for box, out in targets:
            part = self.part(chunk, box)
            out[inside(part, [a for a, _ in box])] = values[inside(part, origin)]

    def _key(self, chunk: Triple) -> str:
        return f"{self.manifest.volume.variable}/{self._array.metadata.encode_chunk_key(chunk)}"

    def _fetch(self, key: str) -> FloatArray:
        path = f"{self.manifest.folder}/{self.manifest.volume.path}/{key}"
        expected = self.manifest.volume.keys[key].size
        try:
            encoded = self._lake.read(path)
        except FileNotFoundError as error:
            raise VolumeError(
                f"{self._lake.uri_of(path)} is lost: the manifest lists it with {expected} bytes; "
                "restore the object or publish the survey again"
            ) from error
        if len(encoded) != expected:
            raise VolumeError(
                f"{self._lake.uri_of(path)} has {len(encoded)} bytes, the manifest says {expected}; "
                "restore the object or publish the survey again"
            )
        try:
            return np.frombuffer(self._decoder(encoded), dtype="<f4").reshape(self.manifest.volume.chunk_shape)
        except (RuntimeError, ValueError) as error:  # what numcodecs and NumPy make of damaged bytes
            raise VolumeError(
                f"{self._lake.uri_of(path)} cannot be decoded ({error}); restore the object or publish the survey again"
            ) from error

    def _live_mask(self, store: Any) -> BoolArray:
        mask = self._open(store, "trace_mask", self.manifest.shape[:2])
        try:
            return np.asarray(mask[...], dtype=bool)
        except (RuntimeError, ValueError) as error:  # what codecs make of damaged bytes
            raise VolumeError(
                f"{self._lake.uri_of(self.manifest.folder)}: trace_mask cannot be decoded ({error}); restore it or "
                "publish the survey again"
            ) from error

    def _open(self, store: Any, variable: str, shape: tuple[int, ...]) -> zarr.Array[Any]:
        where = f"{self._lake.uri_of(self.manifest.folder)}/{self.manifest.volume.path}/{variable}"
        try:
            array = zarr.open_array(store, path=variable, mode="r", zarr_format=3)
        except FileNotFoundError as error:
            raise VolumeError(f"{where} has no array; publish the survey again") from error
        except (TypeError, ValueError) as error:  # what zarr makes of damaged metadata
            raise VolumeError(
                f"{where} has damaged metadata ({error}); restore it or publish the survey again"
            ) from error
        if array.shape != shape:
            raise VolumeError(f"{where} has shape {array.shape}, the manifest says {shape}; publish the survey again")
        return array

    def _chunk_decoder(self) -> Callable[[bytes], Any]:
        array, volume = self._array, self.manifest.volume
        plain = (
            array.dtype == np.float32
            and array.serializer == BytesCodec(endian="little")
            and not array.filters
            and array.chunks == volume.chunk_shape
            and np.isnan(array.fill_value)
        )
        match array.compressors:
            case () if plain:
                return lambda encoded: encoded
            case (codec,) if plain and type(codec) in _DECODERS:
                return _DECODERS[type(codec)]
        raise VolumeError(
            f"{self._lake.uri_of(self.manifest.folder)}: {volume.variable} is {array.dtype} in chunks {array.chunks}, "
            f"fill {array.fill_value}, {array.serializer}, compressed by {array.compressors}; "
            f"expected little-endian float32 in chunks {volume.chunk_shape}, fill NaN, "
            f"compressed by nothing or one of {sorted(codec.__name__ for codec in _DECODERS)}"
        )


def inside(box: Box, origin: Sequence[int]) -> tuple[slice, ...]:
    """Where ``box`` lies in an array whose first voxel is ``origin``."""
    return tuple(slice(a - first, b - first) for (a, b), first in zip(box, origin, strict=True))
