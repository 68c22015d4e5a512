"""Known surveys that lie where this one does: of one place, a data set should hold one survey."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ingestion.catalog import Version, each_survey, newest_readable
from ingestion.lake import Lake
from ingestion.manifest import Manifest
from validation.facts import has_coordinates

_CELLS = 200  # along each side of the box around the survey


@dataclass(frozen=True)
class Outline:
    """Where one survey lies: all that is kept of each of thousands."""

    survey: str
    crs: str | None
    corners: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, manifest: Manifest) -> Outline | None:
        """None of a survey without coordinates, which lies nowhere."""
        grid = manifest.geometry
        return cls(manifest.survey, grid.crs, grid.polygon) if has_coordinates(manifest) else None


def neighbours(lake: Lake, manifest: Manifest) -> list[Outline]:
    """Outlines of all other surveys in use that have the same CRS.

    Those whose CRS is unknown share one coordinate space, as they do in the splits.
    """

    def outline(_survey: str, versions: list[Version]) -> Outline | None:
        in_use, _ = newest_readable(lake, [version for version in versions if version.withdrawal is None])
        return None if in_use is None or in_use.survey == manifest.survey else Outline.of(in_use)

    return [known for known in each_survey(lake, outline) if known and known.crs == manifest.geometry.crs]


def overlap(manifest: Manifest, known: Iterable[Outline]) -> pd.DataFrame:
    """One row for each of the ``known`` surveys that shares ground with this one: the share of this one's area.

    Areas are counted on a raster of 200 by 200 cells over the survey's outline.
    """
    own = Outline.of(manifest)
    cells_N2 = _cells_within(np.array(own.corners)) if own else np.empty((0, 2))
    shares = {other.survey: _share(cells_N2, np.array(other.corners)) for other in known if len(cells_N2)}
    largest = sorted(((share, survey) for survey, share in shares.items() if share > 0), reverse=True)
    rows = [{"survey": survey, "share": share, "per_cent": f"{share:.0%}"} for share, survey in largest]
    return pd.DataFrame(rows or [{"survey": None, "share": None, "per_cent": None}])


def _share(cells_N2: npt.NDArray[np.float64], polygon_V2: npt.NDArray[np.float64]) -> float:
    low, high = polygon_V2.min(axis=0), polygon_V2.max(axis=0)
    if (high < cells_N2.min(axis=0)).any() or (low > cells_N2.max(axis=0)).any():
        return 0.0
    return float(_inside(polygon_V2, cells_N2).mean())


def _cells_within(polygon_V2: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    low, high = polygon_V2.min(axis=0), polygon_V2.max(axis=0)
    steps = (np.arange(_CELLS) + 0.5) / _CELLS
    x, y = (low[axis] + steps * (high[axis] - low[axis]) for axis in (0, 1))
    cells_N2 = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return cells_N2[_inside(polygon_V2, cells_N2)]


def _inside(polygon_V2: npt.NDArray[np.float64], points_N2: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    from matplotlib.path import Path

    return np.asarray(Path(polygon_V2, closed=False).contains_points(points_N2), dtype=bool)
