"""The contract between the rooms: what a published survey says of itself, and validation's word on it.

``manifest.json`` is written last, by a conditional PUT: only then does the survey exist. Every
later room (reader, training, evaluation, registry) reads the volume through it and recomputes nothing.
Raise ``schema_version`` when a field changes its meaning; readers refuse a version they do not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from ingestion.names import LONGEST_NAME, LONGEST_REASON

FORMAT_VERSION = 2  # part of every digest; raise it by hand when the same SEG-Y would be converted otherwise
CHUNK = 128  # edge of a stored chunk, in cells and samples

SafeName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Who = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"\S")]  # a person who decided something
Why = Annotated[str, Field(min_length=1, max_length=LONGEST_REASON, pattern=r"\S")]
Week = Annotated[str, Field(pattern=r"^\d{4}-W\d{2}$")]


class Contract(BaseModel):
    """Base of everything stored as JSON on the lake: closed, immutable, finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def to_bytes(self) -> bytes:
        """Canonical UTF-8 JSON, the bytes that digests are taken over."""
        return (self.model_dump_json(indent=2) + "\n").encode()


class SourceFile(Contract):
    """One SEG-Y file as it was read."""

    uri: str
    original_name: str
    size: int
    sha256: Digest
    etag: str | None


class Axis(Contract):
    """A regular axis: ``first + step * index`` for ``count`` indices. Exact for 0.5 ms and 2.5 m steps."""

    first: float
    step: float
    count: int = Field(gt=0)
    unit: Literal["line", "ms", "m", "ft"]

    def values(self) -> npt.NDArray[np.float64]:
        """Coordinates of all indices."""
        return self.first + self.step * np.arange(self.count, dtype=np.float64)


class Geometry(Contract):
    """Where the grid lies: coordinates = origin + inline_index * inline_vector + crossline_index * crossline_vector."""

    crs: str | None  # e.g. "EPSG:23031"; None: unknown, all such surveys share one coordinate space
    origin: tuple[float, float]
    inline_vector: tuple[float, float]  # step to the next inline index, coordinate units
    crossline_vector: tuple[float, float]
    residual_max: float  # largest distance of a live trace from the fitted grid, coordinate units
    polygon: list[tuple[float, float]]  # outline of the live traces, counter-clockwise, not closed


class Statistics(Contract):
    """Of live, finite samples, in double precision."""

    count: int
    mean: float
    std: float
    minimum: float
    maximum: float
    zero_share: float
    clipped_share: float  # samples equal to the extreme values, when those repeat
    percentiles: dict[str, float]  # "0.1", "1", "5", "25", "50", "75", "95", "99", "99.9"
    histogram_edges: list[float]
    histogram_counts: list[int]


class Normalisation(Contract):
    """(amplitude - centre) / scale, then clipped to ±clip. Stored once, never recomputed in training."""

    method: Literal["robust"] = "robust"
    centre: float
    scale: float = Field(gt=0)
    clip: float = Field(gt=0)


class StoredKey(Contract):
    """One object of the volume."""

    size: int
    sha256: Digest


class Volume(Contract):
    """The MDIO v1 store beside the manifest. A chunk that is not in ``keys`` is all fill, not lost."""

    path: Literal["volume.mdio"] = "volume.mdio"
    variable: str = "amplitude"
    dtype: Literal["float32"] = "float32"
    chunk_shape: tuple[int, int, int]
    keys: dict[str, StoredKey]  # relative to the store


class Manifest(Contract):
    """A published survey."""

    schema_version: Literal[1] = 1
    format_version: int = FORMAT_VERSION
    survey: SafeName
    digest: Digest
    created: datetime
    sources: list[SourceFile] = Field(min_length=1)
    spec_sha256: Digest
    spec: dict[str, object]  # the resolved survey spec, as JSON
    domain: Literal["time", "depth"]
    polarity: Literal["normal", "reverse", "unknown"]
    amplitude_unit: str | None
    licence: str | None
    inline: Axis
    crossline: Axis
    sample: Axis
    geometry: Geometry
    live_traces: int = Field(gt=0)
    live_share: float = Field(gt=0, le=1)
    statistics: Statistics
    normalisation: Normalisation
    volume: Volume
    source_format: str  # e.g. "ibm", "ieee", "int16", with endianness: "big ibm"
    notes: list[str]  # what a person should know: overrides applied, scalar 0 read as 1, ...
    software: dict[str, str]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(inlines, crosslines, samples)."""
        return (self.inline.count, self.crossline.count, self.sample.count)

    @property
    def folder(self) -> str:
        """Key prefix of the survey on the lake."""
        return survey_folder(self.survey, self.digest)


class Finding(Contract):
    """One thing that is wrong or odd, with what would mend it."""

    code: str  # stable, kebab-case, e.g. "duplicate-traces"
    severity: Literal["warn", "hold"]
    found: str
    expected: str
    release: str  # what would release the survey, or "" for a warning
    examples: list[str] = []


class Verdict(Contract):
    """Validation's word on one digest. The freeze takes only ``passed``."""

    schema_version: Literal[1] = 1
    survey: SafeName
    digest: Digest
    status: Literal["passed", "held"]
    findings: list[Finding]
    suite_version: int
    created: datetime


def survey_folder(survey: str, digest: str) -> str:
    """``surveys/<survey>/<digest>``."""
    return f"surveys/{survey}/{digest}"


def manifest_key(survey: str, digest: str) -> str:
    """Where the manifest lies; the survey exists when this object does."""
    return f"{survey_folder(survey, digest)}/manifest.json"


def verdict_key(survey: str, digest: str) -> str:
    """Where validation's verdict lies."""
    return f"{survey_folder(survey, digest)}/verdict.json"


def quarantine_folder(survey: str, digest: str) -> str:
    """Where ``report.json`` and ``report.html`` of a held-back survey lie."""
    return f"quarantine/{survey}/{digest}"
