"""What the expectations look at: data frames of a published survey, from its stored arrays and its manifest."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ingestion.lake import Lake
from ingestion.manifest import Manifest
from ingestion.preflight.geometry import usual_side
from ingestion.volume.verification import stored_digests, unlisted
from validation.amplitudes import Amplitudes
from validation.facts import Facts
from validation.volume import PublishedVolume

Float64 = npt.NDArray[np.float64]

_QUIET_TOP = 0.1  # of the strongest window: a water column or a mute

_UTM = re.compile(  # UTM zones on WGS 84, ED50 and ETRS89
    r"EPSG:(32[67](0[1-9]|[1-5]\d|60)|230(2[89]|3[0-8])|258(2[89]|3[0-8]))"
)


def objects(lake: Lake, manifest: Manifest) -> pd.DataFrame:
    """One row a stored object of the volume: its digest in the manifest and on the lake."""
    known = manifest.volume.keys
    rows: list[tuple[str, bool, str | None, str | None]] = [
        *((key, False, None, None) for key in unlisted(lake, manifest)),
        *((key, True, known[key].sha256, digest) for key, digest in stored_digests(lake, manifest)),
    ]
    return pd.DataFrame(sorted(rows), columns=["key", "listed", "sha256", "stored_sha256"])


def geometry(volume: PublishedVolume) -> pd.DataFrame:
    """One row: the regular grid of the manifest against the published coordinates of the live traces."""
    manifest, live_IX = volume.manifest, volume.live
    grid = manifest.geometry
    inline_vector, crossline_vector = np.array(grid.inline_vector), np.array(grid.crossline_vector)
    bins = np.array([np.linalg.norm(inline_vector), np.linalg.norm(crossline_vector)])
    place = _place(volume)
    row: dict[str, Any] = {
        "live_traces": int(live_IX.sum()),
        "manifest_live_traces": manifest.live_traces,
        "live_share": float(live_IX.mean()),
        "live_without_coordinates": place.unknown,
        "has_coordinates": bool((place.high > place.low).any()),
        "outside_utm": place.outside_utm if _UTM.fullmatch(grid.crs or "") else None,
    }
    if row["has_coordinates"]:
        turn = inline_vector[1] * crossline_vector[0] - inline_vector[0] * crossline_vector[1]
        along = float(inline_vector @ crossline_vector)
        row |= {
            # who names the unit says that bins are right, here as in ingestion
            "bin_without_unit": usual_side(bins) if manifest.spec.get("coordinate_unit") is None else None,
            "bin_aspect": bins.max() / bins.min() if bins.min() > 0 else None,
            "bin_angle": float(np.degrees(np.arctan2(abs(turn), along))) if bins.min() > 0 else None,
            "clockwise": float(np.sign(turn)),
            "residual_bins": place.residual / max(bins.min(), 1e-9),
            "outside_outline_bins": _beyond(place, np.array(grid.polygon)) / max(bins.min(), 1e-9),
        }
    columns = ["bin_without_unit", "bin_aspect", "bin_angle", "clockwise", "residual_bins", "outside_outline_bins"]
    return pd.DataFrame([dict.fromkeys(columns) | row])


@dataclass
class _Place:
    """Where the live traces lie, gathered chunk by chunk."""

    low: Float64 = field(default_factory=lambda: np.full(2, np.inf))
    high: Float64 = field(default_factory=lambda: np.full(2, -np.inf))
    residual: float = 0.0  # largest distance from the grid of the manifest
    unknown: int = 0  # without coordinates
    outside_utm: int = 0


def _place(volume: PublishedVolume) -> _Place:
    place, grid = _Place(), volume.manifest.geometry
    for patch in volume.patches("cdp_x", "cdp_y"):
        i, x = np.nonzero(volume.live[patch.inlines, patch.crosslines])
        points_N2 = np.stack([patch.arrays["cdp_x"][i, x], patch.arrays["cdp_y"][i, x]], axis=1)
        known_N = np.isfinite(points_N2).all(axis=1)
        place.unknown += int((~known_N).sum())
        if not known_N.any():
            continue
        points_N2, i, x = points_N2[known_N], i[known_N] + patch.inlines.start, x[known_N] + patch.crosslines.start
        placed_N2 = (
            grid.origin + i[:, None] * np.array(grid.inline_vector) + x[:, None] * np.array(grid.crossline_vector)
        )
        place.low, place.high = (
            np.minimum(place.low, points_N2.min(axis=0)),
            np.maximum(place.high, points_N2.max(axis=0)),
        )
        place.residual = max(place.residual, float(np.linalg.norm(points_N2 - placed_N2, axis=1).max()))
        place.outside_utm += _outside_utm(points_N2)
    return place


def lines(manifest: Manifest, found: Amplitudes) -> pd.DataFrame:
    """One row an inline with live traces."""
    rms_I = found.line_rms
    live_I = np.isfinite(rms_I)
    usual = float(np.median(rms_I[live_I]))
    return pd.DataFrame(
        {
            "inline": manifest.inline.values()[live_I],
            "rms": rms_I[live_I],
            "gain": rms_I[live_I] / usual if usual > 0 else np.full(int(live_I.sum()), np.nan),
        }
    )


def amplitudes(manifest: Manifest, found: Amplitudes, facts: Facts) -> pd.DataFrame:
    """One row: the samples against the manifest, and what they look like."""
    moments, stated = found.moments, manifest.statistics
    deviation = moments.deviation or 1.0
    pairs = (
        (moments.count / max(stated.count, 1), 1.0),
        (moments.mean / deviation, stated.mean / deviation),
        (moments.deviation / deviation, stated.std / deviation),
        (moments.minimum / deviation, stated.minimum / deviation),
        (moments.maximum / deviation, stated.maximum / deviation),
    )
    return pd.DataFrame(
        [
            {
                "live_non_finite": found.live_non_finite,
                "dead_finite": found.dead_finite,
                "statistics_error": max(abs(value - said) / max(1.0, abs(value)) for value, said in pairs),
                "scale_over_deviation": manifest.normalisation.scale / deviation,
                "offset_over_deviation": abs(moments.mean) / deviation,
                "clipped_share": stated.clipped_share,
                "zero_share": facts.zero_share,
                "repeated_share": facts.repeated_share,
                "band_centre": facts.centre_over_nyquist,
                "neighbour_correlation": facts.neighbour_correlation,
            }
        ]
    )


def plausibility(manifest: Manifest, facts: Facts) -> pd.DataFrame:
    """One row: gain along the traces, and the phase of the first event against the declared polarity."""
    gain = np.array([value for value in facts.gain or [] if value > 0])
    below = gain[int(np.argmax(gain > _QUIET_TOP * gain.max())) :] if len(gain) else gain  # without a water column
    phase = facts.first_event_phase
    declared = {"normal": 0.0, "reverse": 180.0}.get(manifest.polarity)
    steps = np.maximum(below[1:] / below[:-1], below[:-1] / below[1:])
    return pd.DataFrame(
        [
            {
                "gain_variation": facts.gain_variation,
                "gain_decay": float((np.maximum.accumulate(below) / below).max()) if len(below) else None,
                "gain_step": float(steps.max()) if len(steps) else None,
                "phase": phase,
                "phase_rotation": None if phase is None else min(_turn(phase, 0.0), _turn(phase, 180.0)),
                "polarity": manifest.polarity,
                "polarity_turn": None if phase is None or declared is None else _turn(phase, declared),
            }
        ]
    )


def policy(facts: Facts) -> pd.DataFrame:
    """One row: what the declared policy for one data set looks at."""
    in_time = facts.domain == "time"
    return pd.DataFrame(
        [
            {
                "domain": facts.domain,
                "interval_ms": facts.interval if in_time else None,
                "interval_m": None if in_time else facts.interval,
                "bin_shortest": None if facts.bins is None else min(facts.bins),
                "bin_longest": None if facts.bins is None else max(facts.bins),
            }
        ]
    )


def _turn(phase: float, other: float) -> float:
    """Degrees between two phases, 0 to 180."""
    return abs((phase - other + 180) % 360 - 180)


def _outside_utm(points_N2: Float64) -> int:
    easting, northing = points_N2.T
    inside = (easting >= 1e5) & (easting <= 9e5) & (northing >= 0) & (northing <= 1e7)
    return int((~inside).sum())


def _beyond(place: _Place, polygon_V2: Float64) -> float:
    """How far the box of the traces reaches beyond the box of the polygon."""
    low, high = polygon_V2.min(axis=0) - place.low, place.high - polygon_V2.max(axis=0)
    return float(max(0.0, low.max(), high.max()))
