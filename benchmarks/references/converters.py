"""Ways from SEG-Y to Zarr, each timed in a process of its own that has converted a small survey before.

    python -m benchmarks.references.converters WAY SMALL.sgy LARGE.sgy TARGET

Prints one JSON object. Files and target are paths or ``s3://`` URIs. All store chunks of 128 voxels a side;
``bare`` and ``multidimio`` compress as MDIO v1 does by itself (Blosc, zstd 5, bytes shuffled), ``bare-bits`` as ours
does. Only ours compares what it wrote, makes statistics, looks at the headers before, and publishes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

CHUNK = 128


def ours(segy: str, target: str) -> None:
    """``survey ingest``."""
    from ingestion.ingest import ingest
    from ingestion.lake import Lake

    result = ingest(segy, Lake(target))
    if result.status != "published":
        raise RuntimeError(f"{segy} was not published: {result.findings}")


def bare(segy: str, target: str) -> None:
    """segyio, a chunk's worth of inlines at a time, into a Zarr array; from S3 the file is downloaded before."""
    _bare(segy, target, clevel=5, shuffle="shuffle")


def bare_bits(segy: str, target: str) -> None:
    """As ``bare``, with the compression of ours."""
    _bare(segy, target, clevel=4, shuffle="bitshuffle")


def _bare(segy: str, target: str, *, clevel: int, shuffle: Literal["shuffle", "bitshuffle"]) -> None:
    import segyio
    import zarr
    from zarr.codecs import BloscCodec

    from ingestion.lake import Lake, split_uri

    with tempfile.TemporaryDirectory() as folder:
        if segy.startswith("s3://"):
            lake, key = split_uri(segy)
            segy = str(Path(folder) / "survey.sgy")
            _download(lake.store, key, segy)
        with segyio.open(segy) as file:
            shape = len(file.ilines), len(file.xlines), len(file.samples)
            array = zarr.create_array(
                Lake(target).zarr_store("amplitude.zarr"),
                shape=shape,
                chunks=(CHUNK, CHUNK, CHUNK),
                dtype="float32",
                compressors=BloscCodec(cname="zstd", clevel=clevel, shuffle=shuffle),
            )
            for first in range(0, shape[0], CHUNK):
                last = min(first + CHUNK, shape[0])
                traces = file.trace.raw[first * shape[1] : last * shape[1]]
                array[first:last] = traces.reshape(last - first, *shape[1:])


def multidimio(segy: str, target: str) -> None:
    """``mdio.segy_to_mdio`` with its own template."""
    import mdio
    from mdio.builder.template_registry import get_template
    from segy.standards import get_segy_standard

    os.environ["MDIO__IMPORT__CLOUD_NATIVE"] = str(int(segy.startswith("s3://")))
    spec = get_segy_standard(1.0)
    spec.endianness = None  # else big endian is assumed
    mdio.segy_to_mdio(spec, get_template("PostStack3DTime"), segy, f"{target}/volume.mdio", overwrite=True)


def compression(segy: str, target: str) -> None:
    """No conversion: the chunks of the survey, already in memory, through the compressor on all processors."""
    import numpy as np
    from numcodecs import Blosc

    del target
    samples = np.fromfile(segy, ">f4", offset=3600).astype(np.float32)
    chunks = [samples[i : i + CHUNK**3] for i in range(0, len(samples), CHUNK**3)]
    codec = Blosc("zstd", 4, Blosc.BITSHUFFLE)
    started = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(codec.encode, chunks):
            pass
    compression.seconds = time.perf_counter() - started  # type: ignore[attr-defined]


WAYS: dict[str, Callable[[str, str], None]] = {
    "ours": ours,
    "bare": bare,
    "bare-bits": bare_bits,
    "multidimio": multidimio,
    "compression": compression,
}


def main(way: str, small: str, large: str, target: str) -> None:
    """Convert ``small``, then ``large`` with a clock."""
    convert: Any = WAYS[way]
    convert(small, f"{target}/small")
    started = time.perf_counter()
    convert(large, f"{target}/large")
    seconds = getattr(convert, "seconds", time.perf_counter() - started)
    print(json.dumps({"seconds": seconds}))


def _download(store: Any, key: str, path: str) -> None:
    import obstore

    with Path(path).open("wb") as file:
        for part in obstore.get(store, key).stream(min_chunk_size=16 * 1024 * 1024):
            file.write(part)


if __name__ == "__main__":
    main(*sys.argv[1:])
