"""Arrays with one value a cell of the grid: live mask, coordinates, trace numbers, trace headers.

Written and read back block by block, so that memory stays small whatever the survey.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ingestion.lake import Lake
from ingestion.preflight.inspection import Survey
from ingestion.preflight.placement import coordinates
from ingestion.preflight.scan import Raw
from ingestion.segy.samples import TRACE_HEADER_BYTES
from ingestion.volume.mdio_layout import CELL_ARRAYS, cell_chunks, header_fields, stored_array
from ingestion.volume.tiles import Tile, boxes

Values = npt.NDArray[Any]
_KEPT_APART = slice(232, 240)  # bytes of a trace header that the standard leaves unassigned


class CellArrays:
    """These arrays of one survey, in its store below ``folder``."""

    def __init__(self, survey: Survey, lake: Lake, folder: str) -> None:
        self.survey, self.lake, self.folder = survey, lake, folder

    def write(self) -> None:
        """Write all but the headers."""
        arrays = {name: stored_array(self.lake, self.folder, name, "r+") for name in CELL_ARRAYS - {_TAIL}}
        for block in self._blocks():
            for name, values_IX in self._values(block).items():
                arrays[name][block.cells] = values_IX

    def differing(self) -> str | None:
        """The first array that does not hold what ``write`` wrote."""
        arrays = {name: stored_array(self.lake, self.folder, name) for name in CELL_ARRAYS - {_TAIL}}
        for block in self._blocks():
            for name, values_IX in self._values(block).items():
                if not np.array_equal(arrays[name][block.cells], values_IX, equal_nan=values_IX.dtype.kind == "f"):
                    return name
        return None

    def write_headers(self, tile: Tile, headers_CB: Raw) -> None:
        """Write the trace headers of a tile, (cells, 240) bytes as they lie in the files."""
        filed, stored = header_fields(self.survey.layouts[0].order)
        shape = tile.shape[:2]
        fields_IX = headers_CB.view(filed)[:, 0].astype(stored).reshape(shape)
        stored_array(self.lake, self.folder, "headers", "r+")[tile.cells] = fields_IX
        tail_C = np.ascontiguousarray(headers_CB[:, _KEPT_APART]).view(np.int64)
        if tail_C.any():
            stored_array(self.lake, self.folder, _TAIL, "r+")[tile.cells] = tail_C.reshape(shape)

    def _blocks(self) -> Iterator[Tile]:
        shape = self.survey.grid.shape
        return boxes((*shape, 1), (*cell_chunks(shape), 1))

    def _values(self, block: Tile) -> dict[str, Values]:
        number_IX, live_IX = self.survey.grid.trace_IX[block.cells], self.survey.grid.live_IX[block.cells]
        xy_N2 = coordinates(self.survey.traces, self.survey.spec, rows=number_IX.ravel())
        x_IX, y_IX = (np.where(number_IX >= 0, values.reshape(number_IX.shape), np.nan) for values in xy_N2.T)
        return {"trace_mask": live_IX, "cdp_x": x_IX, "cdp_y": y_IX, "trace_number": number_IX.astype(np.int64) + 1}


def headers_digest(headers_CB: Raw) -> str:
    """SHA-256 of (cells, 240) trace headers."""
    return hashlib.sha256(headers_CB.tobytes()).hexdigest()


def stored_headers(lake: Lake, folder: str, tile: Tile, order: str) -> Raw:
    """(cells, 240) trace headers of a tile as they lay in the SEG-Y file of byte ``order``."""
    filed, _ = header_fields(order)
    headers_C = np.zeros(tile.shape[0] * tile.shape[1], filed)
    stored_IX, tail_IX = (np.asarray(stored_array(lake, folder, name)[tile.cells]) for name in ("headers", _TAIL))
    for name in filed.names or ():
        headers_C[name] = stored_IX[name].ravel()
    headers_CB = headers_C.view(np.uint8).reshape(len(headers_C), TRACE_HEADER_BYTES)
    headers_CB[:, _KEPT_APART] = tail_IX.reshape(-1, 1).view(np.uint8)
    return headers_CB


_TAIL = "trace_header_233_240"
