"""Which places are held out, which windows may train, which regions are scored.

Places are cells of a square grid in coordinates, not line numbers: a reprocessed survey of the same area
falls into the same cells, so what is held out once stays held out.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ingestion.manifest import Manifest
from seismic_model.config import Triple
from seismic_model.data.dataset import Cell, SplitPolicy

MIN_LIVE_SHARE = 0.5  # of the traces of a window that trains or is scored
LOCAL = "local"  # the one coordinate space of all surveys without a known CRS

BoolArray = npt.NDArray[np.bool_]
_BORDER = 1e-4  # of a cell: a grid that starts on a border, up to fitting noise, falls on one side of it


def held_out_mask(manifest: Manifest, split: SplitPolicy, held_out_cells: Iterable[Cell]) -> BoolArray:
    """Traces (I, X) of a survey that lie in held-out cells, dead ones included.

    ``held_out_cells`` are those that ``split.held_out_surveys`` add (``Dataset.held_out_cells``).
    """
    if manifest.survey in split.held_out_surveys:
        return np.ones(manifest.shape[:2], dtype=bool)
    return _in_held_out_cells(_places(manifest, split.cell_size) + _BORDER, manifest, split, held_out_cells)


def untrained_mask(manifest: Manifest, split: SplitPolicy, held_out_cells: Iterable[Cell]) -> BoolArray:
    """Traces (I, X) that never train: held-out ones, and those so near that another fit of the grid holds them out."""
    mask_IX = held_out_mask(manifest, split, held_out_cells)
    places_IX2, cells = _places(manifest, split.cell_size), list(held_out_cells)
    near_IX = (np.floor(places_IX2) != np.floor(places_IX2 + 2 * _BORDER)).any(axis=-1)
    for corner in itertools.product((0, 2 * _BORDER), repeat=2):
        mask_IX[near_IX] |= _in_held_out_cells(places_IX2[near_IX] + corner, manifest, split, cells)
    return mask_IX


def touched_cells(manifest: Manifest, live_IX: BoolArray, split: SplitPolicy) -> list[Cell]:
    """Cells that hold a live trace of the survey, sorted."""
    places_N2 = _places(manifest, split.cell_size)[live_IX] + _BORDER
    space = coordinate_space(manifest)
    return sorted((space, x, y) for x, y in np.unique(np.floor(places_N2).astype(np.int64), axis=0).tolist())


def train_origins(untrained_IX: BoolArray, live_IX: BoolArray, window: Triple) -> BoolArray:
    """Whether a window may train that starts at (inline, crossline): (I - wi + 1, X - wx + 1), maybe empty.

    It touches no trace of ``untrained_mask`` and at least ``MIN_LIVE_SHARE`` of its traces are live.
    """
    untouched: BoolArray = _window_sums(untrained_IX, window) == 0
    return untouched & _alive(live_IX, window)


def held_out_regions(held_out_IX: BoolArray, live_IX: BoolArray, samples: int, window: Triple) -> list[Triple]:
    """Origins (inline, crossline, sample) of the windows that are scored, in a fixed order.

    They lie wholly on held-out traces, at least ``MIN_LIVE_SHARE`` of them live, and do not overlap: laterally
    the first free place in row order is taken again and again; along the trace they follow each other from the top.
    """
    wi, wx, wz = window
    free = (_window_sums(~held_out_IX, window) == 0) & _alive(live_IX, window)
    regions: list[Triple] = []
    for i in range(free.shape[0]):
        places = np.flatnonzero(free[i])
        while places.size:
            x = int(places[0])
            regions += [(i, x, z) for z in range(0, samples - wz + 1, wz)]
            free[i : i + wi, max(0, x - wx + 1) : x + wx] = False
            places = np.flatnonzero(free[i])
    return regions


def _alive(live_IX: BoolArray, window: Triple) -> BoolArray:
    alive: BoolArray = _window_sums(live_IX, window) >= MIN_LIVE_SHARE * window[0] * window[1]
    return alive


def _window_sums(flags_IX: BoolArray, window: Triple) -> npt.NDArray[np.int64]:
    """How many flags each window holds, by a summed-area table (Crow 1984)."""
    wi, wx, _ = window
    inlines, crosslines = flags_IX.shape
    if inlines < wi or crosslines < wx:
        return np.zeros((max(0, inlines - wi + 1), max(0, crosslines - wx + 1)), dtype=np.int64)
    table = np.zeros((inlines + 1, crosslines + 1), dtype=np.int64)
    table[1:, 1:] = flags_IX.cumsum(0, dtype=np.int64).cumsum(1)
    return table[wi:, wx:] - table[:-wi, wx:] - table[wi:, :-wx] + table[:-wi, :-wx]


def _places(manifest: Manifest, cell_size: float) -> npt.NDArray[np.float64]:
    """Where each trace of a survey's grid lies, in cells: (I, X, 2)."""
    geometry, (inlines, crosslines, _) = manifest.geometry, manifest.shape
    i_I1, x_1X = np.arange(inlines)[:, None], np.arange(crosslines)[None]
    easting_IX, northing_IX = (
        geometry.origin[axis] + i_I1 * geometry.inline_vector[axis] + x_1X * geometry.crossline_vector[axis]
        for axis in (0, 1)
    )
    places_IX2: npt.NDArray[np.float64] = np.stack((easting_IX, northing_IX), axis=-1) / cell_size
    return places_IX2


def _in_held_out_cells(
    places_N2: npt.NDArray[np.float64], manifest: Manifest, split: SplitPolicy, held_out_cells: Iterable[Cell]
) -> BoolArray:
    """Whether places (..., 2), in cells, lie in a held-out one."""
    space = coordinate_space(manifest)
    added = {(x, y) for crs, x, y in held_out_cells if crs == space}
    cells_N2 = np.floor(places_N2).astype(np.int64).reshape(-1, 2)
    cells_C2, cell_of_N = np.unique(cells_N2, axis=0, return_inverse=True)
    held_C = [(x, y) in added or _chosen(split, (space, x, y)) for x, y in cells_C2.tolist()]
    return np.array(held_C, dtype=bool)[cell_of_N.reshape(places_N2.shape[:-1])]


def coordinate_space(manifest: Manifest) -> str:
    """What a survey's coordinates can be compared within: its CRS, or the one space of all without a known CRS."""
    return manifest.geometry.crs or LOCAL


def _chosen(split: SplitPolicy, cell: Cell) -> bool:
    digest = hashlib.sha256("|".join((split.salt, *map(str, cell))).encode()).digest()
    return int.from_bytes(digest[:8], "big") < split.held_out_share * 2**64
