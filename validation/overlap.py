"""Known surveys that lie where this one does: of one place, a data set should hold one survey."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd

from ingestion.manifest import Manifest
from validation.facts import has_coordinates

_CELLS = 200  # along each side of the box around the survey


def overlap(manifest: Manifest, known: Iterable[Manifest]) -> pd.DataFrame:
    """One row a known survey of the same CRS that shares ground with this one: the share of this one's area.

    Areas are counted on a raster of 200 by 200 cells over the survey's outline. Surveys whose CRS is unknown share one
    coordinate space, as they do in the splits; a survey without coordinates lies nowhere.
    """
    shares: dict[str, float] = {}
    if has_coordinates(manifest):
        cells_N2 = _cells_within(np.array(manifest.geometry.polygon))
        for other in known:
            if _comparable(manifest, other):
                share = float(_inside(np.array(other.geometry.polygon), cells_N2).mean()) if len(cells_N2) else 0.0
                if share > 0:
                    shares[other.survey] = share
    largest = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    rows = [{"survey": survey, "share": share, "per_cent": f"{share:.0%}"} for survey, share in largest]
    return pd.DataFrame(rows or [{"survey": None, "share": None, "per_cent": None}])


def _comparable(manifest: Manifest, other: Manifest) -> bool:
    same_space = other.geometry.crs == manifest.geometry.crs
    return other.survey != manifest.survey and same_space and has_coordinates(other)


def _cells_within(polygon_V2: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    low, high = polygon_V2.min(axis=0), polygon_V2.max(axis=0)
    steps = (np.arange(_CELLS) + 0.5) / _CELLS
    x, y = (low[axis] + steps * (high[axis] - low[axis]) for axis in (0, 1))
    cells_N2 = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return cells_N2[_inside(polygon_V2, cells_N2)]


def _inside(polygon_V2: npt.NDArray[np.float64], points_N2: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    from matplotlib.path import Path

    return np.asarray(Path(polygon_V2, closed=False).contains_points(points_N2), dtype=bool)
