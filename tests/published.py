"""Small published surveys for tests, written as the ingestion writes them but without a SEG-Y."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec

from ingestion.lake import Lake
from ingestion.manifest import (
    Axis,
    Geometry,
    Manifest,
    Normalisation,
    SourceFile,
    Statistics,
    StoredKey,
    Verdict,
    Volume,
    manifest_key,
    verdict_key,
)

CREATED = datetime(2026, 11, 1, tzinfo=UTC)


def manifest_of(
    survey: str,
    shape: tuple[int, int, int],
    *,
    digest: str | None = None,
    version: int = 1,
    origin: tuple[float, float] = (0.0, 0.0),
    inline_vector: tuple[float, float] = (25.0, 0.0),
    crossline_vector: tuple[float, float] = (0.0, 25.0),
    crs: str | None = None,
    live_traces: int | None = None,
    normalisation: Normalisation | None = None,
    chunk_shape: tuple[int, int, int] = (16, 16, 16),
    keys: dict[str, StoredKey] | None = None,
) -> Manifest:
    """A manifest with made-up statistics; bins of 25 m unless told otherwise."""
    sha = hashlib.sha256(survey.encode()).hexdigest()
    traces = shape[0] * shape[1]
    live = traces if live_traces is None else live_traces
    return Manifest(
        survey=survey,
        digest=digest or sha,
        created=CREATED + timedelta(days=version),
        sources=[SourceFile(uri="file:///x.sgy", original_name="x.sgy", size=1, sha256=sha, etag=None)],
        spec_sha256=sha,
        spec={},
        domain="time",
        polarity="unknown",
        amplitude_unit=None,
        licence="CC0-1.0",
        inline=Axis(first=1, step=1, count=shape[0], unit="line"),
        crossline=Axis(first=1, step=1, count=shape[1], unit="line"),
        sample=Axis(first=0, step=4, count=shape[2], unit="ms"),
        geometry=Geometry(
            crs=crs,
            origin=origin,
            inline_vector=inline_vector,
            crossline_vector=crossline_vector,
            residual_max=0,
            polygon=[],
        ),
        live_traces=live,
        live_share=live / traces,
        statistics=Statistics(
            count=1,
            mean=0,
            std=1,
            minimum=-1,
            maximum=1,
            zero_share=0,
            clipped_share=0,
            percentiles={},
            histogram_edges=[],
            histogram_counts=[],
        ),
        normalisation=normalisation or Normalisation(centre=0, scale=1, clip=5),
        volume=Volume(chunk_shape=chunk_shape, keys=keys or {}),
        source_format="big ieee",
        notes=[],
        software={},
    )


def publish(
    lake: Lake,
    survey: str,
    volume_IXZ: npt.NDArray[np.float32],
    live_IX: npt.NDArray[np.bool_] | None = None,
    *,
    chunk_shape: tuple[int, int, int] = (16, 16, 16),
    status: str | None = "passed",
    version: int = 1,
    **about: object,
) -> Manifest:
    """Write volume, manifest and verdict (none for ``status=None``); a higher ``version`` is a newer digest."""
    live_IX = np.ones(volume_IXZ.shape[:2], dtype=bool) if live_IX is None else live_IX
    digest = hashlib.sha256(f"{survey} {version}".encode()).hexdigest()
    folder = f"surveys/{survey}/{digest}"
    store = lake.zarr_store(f"{folder}/volume.mdio")
    zarr.create_group(store=store, zarr_format=3)
    amplitude = zarr.create_array(
        store=store,
        name="amplitude",
        shape=volume_IXZ.shape,
        chunks=chunk_shape,
        dtype="float32",
        fill_value=float("nan"),
        compressors=[BloscCodec(cname="zstd", clevel=5)],
    )
    amplitude[...] = np.where(live_IX[:, :, None], volume_IXZ, np.nan)
    mask = zarr.create_array(
        store=store, name="trace_mask", shape=live_IX.shape, chunks=live_IX.shape, dtype="bool", fill_value=False
    )
    mask[...] = live_IX
    inside = f"{folder}/volume.mdio"
    keys = {
        entry.key.removeprefix(f"{inside}/"): StoredKey(
            size=entry.size, sha256=hashlib.sha256(lake.read(entry.key)).hexdigest()
        )
        for entry in lake.objects(inside)
    }
    manifest = manifest_of(
        survey,
        volume_IXZ.shape,
        digest=digest,
        version=version,
        live_traces=int(live_IX.sum()),
        chunk_shape=chunk_shape,
        keys=keys,
        **about,  # type: ignore[arg-type]
    )
    lake.write(manifest_key(survey, digest), manifest.to_bytes())
    if status is not None:
        verdict = Verdict.model_validate(
            {
                "survey": survey,
                "digest": digest,
                "status": status,
                "findings": [],
                "suite_version": 1,
                "created": CREATED,
            }
        )
        lake.write(verdict_key(survey, digest), verdict.to_bytes())
    return manifest


def noise(shape: tuple[int, int, int], seed: int = 0) -> npt.NDArray[np.float32]:
    """Smooth-ish random amplitudes."""
    drawn = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return (drawn + np.roll(drawn, 1, 0) + np.roll(drawn, 1, 1) + np.roll(drawn, 1, 2)) / np.float32(2)
