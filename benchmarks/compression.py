"""Which compression of amplitudes is small, quick to write and quick to read?

    python -m benchmarks.compression [--json]

One chunk of made surveys, with 21 significant bits as IBM floats have and with all 24 of IEEE floats, through Blosc's
zstd with its two shuffles and several levels, on one thread. The best of some turns counts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numcodecs import Blosc
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.common import Goal, Measured, run, say
from benchmarks.ingest import enlarged
from ingestion.synthetic import BASINS, make_survey
from ingestion.volume.mdio_layout import COMPRESSION

Row = dict[str, Any]
Chunk = npt.NDArray[np.float32]

_EDGE = 128
_TURNS = 5
_SHUFFLES = {"bytes": Blosc.SHUFFLE, "bits": Blosc.BITSHUFFLE}
_LEVELS = (1, 3, 4, 5)
_MDIO = ("bytes", 5)
_OURS = ("bits", COMPRESSION.clevel)


def main() -> int:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], epilog=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return run("compression", measure, _table, as_json=parser.parse_args().json)


def measure() -> Measured:
    """All codecs on all chunks."""
    rows: list[Row] = []
    for basin, bits, chunk in _chunks():
        say(f"{basin}, {bits} bits")
        rows += [_row(basin, bits, chunk, shuffle, level) for shuffle in _SHUFFLES for level in _LEVELS]
    gains = {
        name: min(ours[name] / theirs[name] for ours, theirs in _pairs(rows)) for name in ("ratio", "encode", "decode")
    }
    return Measured(
        rows,
        [
            Goal("size against MDIO's own compression, worst chunk", gains["ratio"], "×", 0.97, "higher"),
            Goal("writing against MDIO's own compression, worst chunk", gains["encode"], "×", 2.0, "higher"),
            Goal("reading against MDIO's own compression, worst chunk", gains["decode"], "×", 1.0, "higher"),
        ],
    )


def _chunks() -> Iterator[tuple[str, int, Chunk]]:
    for basin in ("salt_flank", "carbonate_shelf"):
        made = enlarged(make_survey(BASINS[basin], 0, (_EDGE // 2, _EDGE // 2, 2 * _EDGE)), (_EDGE, _EDGE))
        chunk = np.ascontiguousarray(made.amplitude_IXZ[:, :, :_EDGE])
        yield basin, 21, chunk
        finer = np.random.default_rng(1).normal(0, 1e-4 * chunk.std(), chunk.shape)
        yield basin, 24, (chunk + finer).astype(np.float32)


def _row(basin: str, bits: int, chunk: Chunk, shuffle: str, level: int) -> Row:
    codec = Blosc("zstd", level, _SHUFFLES[shuffle])
    stored, out = codec.encode(chunk), np.empty_like(chunk)
    return {
        "basin": basin,
        "bits": bits,
        "shuffle": shuffle,
        "level": level,
        "ratio": chunk.nbytes / len(stored),
        "encode": chunk.nbytes / _seconds(lambda: codec.encode(chunk)) / 1e6,
        "decode": chunk.nbytes / _seconds(lambda: codec.decode(stored, out=out)) / 1e6,
    }


def _seconds(act: Callable[[], object]) -> float:
    taken = []
    for _ in range(_TURNS):
        started = time.perf_counter()
        act()
        taken.append(time.perf_counter() - started)
    return min(taken)


def _pairs(rows: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Our row and MDIO's of each chunk."""
    by_codec = {(row["basin"], row["bits"], row["shuffle"], row["level"]): row for row in rows}
    for basin, bits in {(row["basin"], row["bits"]) for row in rows}:
        yield by_codec[(basin, bits, *_OURS)], by_codec[(basin, bits, *_MDIO)]


def _table(rows: list[Row]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for name in ("basin", "bits", "shuffle", "level", "ratio", "encode MB/s", "decode MB/s"):
        table.add_column(name, justify="left" if name in ("basin", "shuffle") else "right")
    for row in rows:
        numbers = f"{row['ratio']:.3f}", f"{row['encode']:.0f}", f"{row['decode']:.0f}"
        table.add_row(row["basin"], str(row["bits"]), row["shuffle"], str(row["level"]), *numbers)
    return table


if __name__ == "__main__":
    sys.exit(main())
