"""What the expectations look at: data frames of a published survey, from its stored arrays and its manifest."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ingestion.lake import Lake
from ingestion.manifest import Manifest
from ingestion.mdio_layout import header_fields
from ingestion.spec import LineType, SurveySpec
from validation.amplitudes import measure
from validation.volume import PublishedVolume

Float64 = npt.NDArray[np.float64]

_READERS = 8  # objects read at once

_UTM = re.compile(  # UTM zones on WGS 84, ED50 and ETRS89
    r"EPSG:(32[67](0[1-9]|[1-5]\d|60)|230(2[89]|3[0-8])|258(2[89]|3[0-8]))"
)


def objects(lake: Lake, manifest: Manifest) -> pd.DataFrame:
    """One row a stored object of the volume: its digest in the manifest and on the lake."""
    folder, known = f"{manifest.folder}/{manifest.volume.path}/", manifest.volume.keys
    stored = {entry.key.removeprefix(folder) for entry in lake.objects(folder)}
    keys = sorted(stored | known.keys())
    with ThreadPoolExecutor(_READERS) as readers:  # waiting for the store and hashing both let go of the interpreter
        digests = list(readers.map(lambda key: _sha256(lake, folder + key) if key in known else None, keys))
    return pd.DataFrame(
        {
            "key": keys,
            "listed": [key in known for key in keys],
            "sha256": [known[key].sha256 if key in known else None for key in keys],
            "stored_sha256": digests,
        }
    )


def headers(volume: PublishedVolume) -> pd.DataFrame:
    """One row a recorded trace: where it lies, what its header says, and how far the two differ."""
    manifest, spec = volume.manifest, SurveySpec.model_validate(volume.manifest.spec)
    header_IX = volume.array("headers")
    recorded_IX = volume.live | _any_field(header_IX)
    i, x = np.nonzero(recorded_IX)
    header, live = header_IX[i, x], volume.live[i, x]
    scalar = header["coordinate_scalar"] if spec.coordinate_scalar is None else np.int16(spec.coordinate_scalar)
    cdp = [volume.array(name)[i, x] for name in ("cdp_x", "cdp_y")]
    said = [_scaled(_field(header, byte), scalar) for byte in (spec.cdp_x_byte, spec.cdp_y_byte)]
    samples, interval = header["samples_per_trace"].astype(np.float64), header["sample_interval"] / 1000
    start = _scaled(header["delay_recording_time"], header["times_scalar"])
    counted = live & (samples != 0)
    usual = np.median(samples[counted]) if counted.any() else 0.0  # all may be wrong alike, which ingestion resolves
    return pd.DataFrame(
        {
            "inline": manifest.inline.values()[i],
            "header_inline": _field(header, spec.inline_byte, spec.inline_type),
            "crossline": manifest.crossline.values()[x],
            "header_crossline": _field(header, spec.crossline_byte, spec.crossline_type),
            "coordinate_error": np.hypot(said[0] - cdp[0], said[1] - cdp[1]),
            "live_trace_id": _where(live, header["trace_id_code"]),
            "samples_from_usual": _where(counted, abs(samples - usual)),
            "interval_error": _where(
                live & (interval != 0) & (spec.sample_interval is None), abs(interval - manifest.sample.step)
            ),
            "start_error": _where(live & (spec.first_sample is None), abs(start - manifest.sample.first)),
        }
    )


def geometry(volume: PublishedVolume) -> pd.DataFrame:
    """One row: the regular grid of the manifest against the published coordinates of the live traces."""
    manifest, live_IX = volume.manifest, volume.live
    grid = manifest.geometry
    i, x = np.nonzero(live_IX)
    points_N2 = np.stack([volume.array("cdp_x")[i, x], volume.array("cdp_y")[i, x]], axis=1)
    known_N = np.isfinite(points_N2).all(axis=1)
    points_N2, i, x = points_N2[known_N], i[known_N], x[known_N]
    inline_vector, crossline_vector = np.array(grid.inline_vector), np.array(grid.crossline_vector)
    bins = np.array([np.linalg.norm(inline_vector), np.linalg.norm(crossline_vector)])
    row: dict[str, Any] = {
        "live_traces": int(live_IX.sum()),
        "manifest_live_traces": manifest.live_traces,
        "live_share": float(live_IX.mean()),
        "live_without_coordinates": int((~known_N).sum()),
        "has_coordinates": bool(len(points_N2)) and bool((np.ptp(points_N2, axis=0) > 0).any()),
        "outside_utm": _outside_utm(points_N2) if _UTM.fullmatch(grid.crs or "") else None,
    }
    if row["has_coordinates"]:
        placed_N2 = np.array(grid.origin) + i[:, None] * inline_vector + x[:, None] * crossline_vector
        turn = inline_vector[1] * crossline_vector[0] - inline_vector[0] * crossline_vector[1]
        along = float(inline_vector @ crossline_vector)
        row |= {
            "bin_shortest": bins.min(),
            "bin_aspect": bins.max() / bins.min() if bins.min() > 0 else None,
            "bin_angle": float(np.degrees(np.arctan2(abs(turn), along))) if bins.min() > 0 else None,
            "clockwise": float(np.sign(turn)),
            "residual_bins": np.linalg.norm(points_N2 - placed_N2, axis=1).max() / max(bins.min(), 1e-9),
            "outside_outline_bins": _beyond(points_N2, np.array(grid.polygon)) / max(bins.min(), 1e-9),
        }
    columns = ["bin_shortest", "bin_aspect", "bin_angle", "clockwise", "residual_bins", "outside_outline_bins"]
    return pd.DataFrame([dict.fromkeys(columns) | row])


def lines_and_amplitudes(volume: PublishedVolume) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row an inline with live traces, and one row for the survey."""
    manifest, facts = volume.manifest, measure(volume)
    rms_I = facts.line_rms
    live_I = np.isfinite(rms_I)
    usual = float(np.median(rms_I[live_I]))
    lines = pd.DataFrame(
        {
            "inline": manifest.inline.values()[live_I],
            "rms": rms_I[live_I],
            "gain": rms_I[live_I] / usual if usual > 0 else np.full(int(live_I.sum()), np.nan),
        }
    )
    moments, stated = facts.moments, manifest.statistics
    deviation = moments.deviation or 1.0
    pairs = (
        (moments.count / max(stated.count, 1), 1.0),
        (moments.mean / deviation, stated.mean / deviation),
        (moments.deviation / deviation, stated.std / deviation),
        (moments.minimum / deviation, stated.minimum / deviation),
        (moments.maximum / deviation, stated.maximum / deviation),
    )
    amplitudes = pd.DataFrame(
        [
            {
                "live_non_finite": facts.live_non_finite,
                "dead_finite": facts.dead_finite,
                "statistics_error": max(abs(found - said) / max(1.0, abs(found)) for found, said in pairs),
                "scale_over_deviation": manifest.normalisation.scale / deviation,
                "offset_over_deviation": abs(moments.mean) / deviation,
                "clipped_share": stated.clipped_share,
                "zero_share": facts.zeros / max(moments.count, 1),
                "repeated_share": facts.repeated_share,
                "band_centre": facts.band_centre,
                "neighbour_correlation": facts.neighbour_correlation,
            }
        ]
    )
    return lines, amplitudes


def _sha256(lake: Lake, key: str) -> str | None:
    try:
        return hashlib.sha256(lake.read(key)).hexdigest()
    except FileNotFoundError:
        return None


def _any_field(header_IX: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    names = header_IX.dtype.names or ()
    return np.asarray(np.any([header_IX[name] != 0 for name in names], axis=0))


def _where(condition: npt.NDArray[np.bool_], values: npt.NDArray[Any]) -> Float64:
    """``values`` where they mean something; elsewhere NaN, which expectations pass over."""
    return np.where(condition, values.astype(np.float64), np.nan)


def _field(header_N: npt.NDArray[np.void], byte: int, kind: LineType = "int32") -> Float64:
    """The integer that begins at ``byte`` (from 1) of the header as it lies in a SEG-Y file; NaN if not kept."""
    filed, _ = header_fields(">")
    filed_N, kept = np.zeros(len(header_N), dtype=filed), np.zeros(1, dtype=filed)
    for name in header_N.dtype.names or ():
        filed_N[name] = header_N[name]
        kept[name] = -1  # all bits set
    stored = np.dtype(kind).newbyteorder(">")
    place = slice(byte - 1, byte - 1 + stored.itemsize)
    if not kept.view(np.uint8)[place].all():
        return np.full(len(header_N), np.nan)
    bytes_N = filed_N.view(np.uint8).reshape(len(header_N), filed.itemsize)
    return np.ascontiguousarray(bytes_N[:, place]).view(stored)[:, 0].astype(np.float64)


def _scaled(values: npt.NDArray[Any], scalar: npt.ArrayLike) -> Float64:
    """SEG-Y meaning of a scalar: positive multiplies, negative divides, zero counts as one."""
    factor = np.asarray(scalar, dtype=np.float64)
    return np.asarray(values.astype(np.float64) * np.maximum(factor, factor <= 0) / np.maximum(-factor, 1))


def _outside_utm(points_N2: Float64) -> int:
    easting, northing = points_N2.T
    inside = (easting >= 1e5) & (easting <= 9e5) & (northing >= 0) & (northing <= 1e7)
    return int((~inside).sum())


def _beyond(points_N2: Float64, polygon_V2: Float64) -> float:
    """How far the box of the points reaches beyond the box of the polygon."""
    low, high = polygon_V2.min(axis=0) - points_N2.min(axis=0), points_N2.max(axis=0) - polygon_V2.max(axis=0)
    return float(max(0.0, low.max(), high.max()))
