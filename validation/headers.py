"""The recorded traces of a published volume: where they lie, what their headers say, and how far the two differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ingestion.spec import LineType, SurveySpec
from ingestion.volume.mdio_layout import header_fields
from validation.volume import Patch, PublishedVolume

Float64 = npt.NDArray[np.float64]


def headers(volume: PublishedVolume) -> pd.DataFrame:
    """One row a recorded trace, in the order of the grid."""
    return pd.concat(list(header_parts(volume))).sort_index()


def header_parts(volume: PublishedVolume) -> Iterator[pd.DataFrame]:
    """The rows of ``headers``, one chunk of traces at a time; indexed by their place in the grid."""
    usual = _usual_samples(volume)
    for patch in volume.patches("headers", "cdp_x", "cdp_y"):
        yield _rows(volume, patch, usual)


def _usual_samples(volume: PublishedVolume) -> float:
    """Median of the sample counts in the headers of live traces; all may be wrong alike, which ingestion resolves."""
    counts = np.zeros(1 << 16, np.int64)
    for patch in volume.patches("headers"):
        live_IX = volume.live[patch.inlines, patch.crosslines]
        stated = patch.arrays["headers"]["samples_per_trace"][live_IX].astype(np.int64) & 0xFFFF
        counts += np.bincount(stated[stated != 0], minlength=len(counts))
    return float(np.searchsorted(np.cumsum(counts), (counts.sum() + 1) // 2)) if counts.any() else 0.0


def _rows(volume: PublishedVolume, patch: Patch, usual: float) -> pd.DataFrame:
    manifest, spec = volume.manifest, SurveySpec.model_validate(volume.manifest.spec)
    header_IX, live_IX = patch.arrays["headers"], volume.live[patch.inlines, patch.crosslines]
    i, x = np.nonzero(live_IX | _any_field(header_IX))
    header, live = header_IX[i, x], live_IX[i, x]
    order = "<" if manifest.source_format.startswith("little") else ">"
    scalar = header["coordinate_scalar"] if spec.coordinate_scalar is None else np.int16(spec.coordinate_scalar)
    cdp = [patch.arrays[name][i, x] for name in ("cdp_x", "cdp_y")]
    said = [_scaled(_field(header, order, byte), scalar) for byte in (spec.cdp_x_byte, spec.cdp_y_byte)]
    samples, interval = header["samples_per_trace"].astype(np.int64) & 0xFFFF, header["sample_interval"] / 1000
    start = _scaled(header["delay_recording_time"], header["times_scalar"])
    i, x = i + patch.inlines.start, x + patch.crosslines.start
    return pd.DataFrame(
        {
            "inline": manifest.inline.first + manifest.inline.step * i,
            "header_inline": _field(header, order, spec.inline_byte, spec.inline_type),
            "crossline": manifest.crossline.first + manifest.crossline.step * x,
            "header_crossline": _field(header, order, spec.crossline_byte, spec.crossline_type),
            "coordinate_error": np.hypot(said[0] - cdp[0], said[1] - cdp[1]),
            "live_trace_id": _where(live, header["trace_id_code"]),
            "samples_from_usual": _where(live & (samples != 0), abs(samples - usual)),
            "interval_error": _where(
                live & (interval != 0) & (spec.sample_interval is None), abs(interval - manifest.sample.step)
            ),
            "start_error": _where(live & (spec.first_sample is None), abs(start - manifest.sample.first)),
        },
        index=i * manifest.crossline.count + x,
    )


def _any_field(header_IX: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    names = header_IX.dtype.names or ()
    return np.asarray(np.any([header_IX[name] != 0 for name in names], axis=0))


def _where(condition: npt.NDArray[np.bool_], values: npt.NDArray[Any]) -> Float64:
    """``values`` where they mean something; elsewhere NaN, which expectations pass over."""
    return np.where(condition, values.astype(np.float64), np.nan)


def _field(header_N: npt.NDArray[np.void], order: str, byte: int, kind: LineType = "int32") -> Float64:
    """The integer that begins at ``byte`` (from 1) of the header as it lies in a file of ``order``; NaN if not kept."""
    filed, _ = header_fields(order)
    filed_N, kept = np.zeros(len(header_N), dtype=filed), np.zeros(1, dtype=filed)
    for name in header_N.dtype.names or ():
        filed_N[name] = header_N[name]
        kept[name] = -1  # all bits set
    stored = np.dtype(kind).newbyteorder("<" if order == "<" else ">")
    place = slice(byte - 1, byte - 1 + stored.itemsize)
    if not kept.view(np.uint8)[place].all():
        return np.full(len(header_N), np.nan)
    bytes_N = filed_N.view(np.uint8).reshape(len(header_N), filed.itemsize)
    return np.ascontiguousarray(bytes_N[:, place]).view(stored)[:, 0].astype(np.float64)


def _scaled(values: npt.NDArray[Any], scalar: npt.ArrayLike) -> Float64:
    """SEG-Y meaning of a scalar: positive multiplies, negative divides, zero counts as one."""
    factor = np.asarray(scalar, dtype=np.float64)
    return np.asarray(values.astype(np.float64) * np.maximum(factor, factor <= 0) / np.maximum(-factor, 1))
