"""How large a survey's voxels are beside those that a model's positions count in."""

from __future__ import annotations

import math

from ingestion.manifest import Manifest
from seismic_model.config import ReferenceSpacing

_METRES = {"m": 1.0, "ft": 0.3048}


def relative_spacing(manifest: Manifest, reference: ReferenceSpacing | None) -> tuple[float, float, float]:
    """Size of a voxel over the reference along (inline, crossline, sample); ones where there is no reference.

    Lateral coordinates are taken as metres: a manifest does not tell their unit. Samples are compared in the
    survey's own domain, time or depth.
    """
    if reference is None:
        return (1.0, 1.0, 1.0)
    inline_m, crossline_m = (
        math.hypot(*v) for v in (manifest.geometry.inline_vector, manifest.geometry.crossline_vector)
    )
    if manifest.domain == "time":
        sample = manifest.sample.step / reference.time_ms
    else:
        sample = manifest.sample.step * _METRES[manifest.sample.unit] / reference.depth_m
    return (inline_m / reference.inline_m, crossline_m / reference.crossline_m, sample)
