"""The survey spec: the few facts a person knows about a SEG-Y file that the file does not say, or says wrongly.

One small YAML file per survey. Nothing in it is needed for a clean revision 1 file; everything that is
inferred from a file is proposed in the report of a held-back survey and applied only when it stands here.

    name: Block A 2019          # default: the file's name
    inline_byte: 9              # first byte of the field, as the SEG-Y standard counts (from 1)
    crossline_byte: 21
    domain: depth
    sample_interval: 5          # m (ms in time)
    crs: EPSG:23031
    duplicates: first
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from ingestion.manifest import FORMAT_VERSION, Contract

MAX_SPEC_BYTES = 64 * 1024
_SAFE = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")

HeaderByte = Annotated[int, Field(ge=1, le=237)]  # a 4-byte field of the 240-byte trace header
SampleFormat = Literal["ibm", "ieee", "int8", "int16", "int32"]


class SpecError(Exception):
    """A survey spec that cannot be used; the message names the field, what was found and what was expected."""


class SurveySpec(Contract):
    """What a person says of a survey. All fields are optional; ``None`` means: as the file says."""

    name: str | None = Field(default=None, min_length=1, max_length=500)
    files: list[str] = []  # plain names of all SEG-Y files of the survey, beside the spec
    inline_byte: HeaderByte = 189
    crossline_byte: HeaderByte = 193
    cdp_x_byte: HeaderByte = 181
    cdp_y_byte: HeaderByte = 185
    coordinate_scalar: int | None = Field(default=None, ge=-32768, le=32767)  # SEG-Y meaning: −100 divides by 100
    endianness: Literal["big", "little"] | None = None
    sample_format: SampleFormat | None = None
    domain: Literal["time", "depth"] | None = None
    depth_unit: Literal["m", "ft"] | None = None
    sample_interval: float | None = Field(default=None, gt=0, le=1e6)  # ms, or the depth unit
    first_sample: float | None = Field(
        default=None, ge=-1e9, le=1e9
    )  # ms, or the depth unit; instead of the recording delay
    polarity: Literal["normal", "reverse", "unknown"] = "unknown"
    amplitude_unit: str | None = None
    crs: str | None = Field(default=None, pattern=r"^EPSG:[1-9][0-9]{3,5}$")
    licence: str | None = None
    drop_traces: list[Annotated[int, Field(ge=1)]] = []  # counted from 1 through all files in order
    duplicates: Literal["hold", "first", "last", "mean"] = "hold"
    non_finite: Literal["hold", "dead"] = "hold"

    @field_validator("files")
    @classmethod
    def _plain_names(cls, files: list[str]) -> list[str]:
        for name in files:
            if not name or "/" in name or "\\" in name or name in (".", ".."):
                raise ValueError(f"{name!r} is not a plain file name; list files that lie beside the spec")
        if len(set(files)) != len(files):
            raise ValueError("a file is listed twice")
        return files

    @field_validator("coordinate_scalar")
    @classmethod
    def _scalar_is_not_zero(cls, scalar: int | None) -> int | None:
        if scalar == 0:
            raise ValueError("0 is no scalar; use 1 for coordinates that need none")
        return scalar

    @property
    def sha256(self) -> str:
        """Digest of the whole spec."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def parse_spec(text: bytes, origin: str) -> SurveySpec:
    """The spec that ``text`` (YAML) holds; ``origin`` names it in messages. Raises ``SpecError``."""
    if len(text) > MAX_SPEC_BYTES:
        raise SpecError(f"{origin}: {len(text)} bytes; expected a survey spec of at most {MAX_SPEC_BYTES}")
    try:
        fields = yaml.safe_load(text.decode("utf-8"))
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # besides its own errors, PyYAML lets those of int(), date() and the like through
        raise SpecError(f"{origin}: not readable as YAML: {error}") from error
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        raise SpecError(f"{origin}: found a {type(fields).__name__}; expected `field: value` lines")
    try:
        return SurveySpec.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'spec'}: {e['msg']}" for e in error.errors())
        known = ", ".join(SurveySpec.model_fields)
        raise SpecError(f"{origin}: {problems}. Known fields: {known}") from error


def survey_digest(source_sha256: list[str], spec: SurveySpec) -> str:
    """Digest of a survey: the bytes of its files, what the spec says of them, and the format version.

    The names of survey and files are no part of it, so that the same bytes under another name are recognised.
    """
    content = spec.model_copy(update={"name": None, "files": []})
    parts = [f"format {FORMAT_VERSION}", *source_sha256, content.sha256]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def safe_identifier(original: str) -> str:
    """A name for keys and paths: ``[a-z0-9._-]``, with a hash of the original wherever that had to be changed.

    Two originals never share an identifier, save with the probability of a 40-bit hash collision.
    """
    if _SAFE.fullmatch(original):
        return original
    composed = unicodedata.normalize("NFC", original)
    ascii_part = unicodedata.normalize("NFKD", composed).encode("ascii", "ignore").decode().lower()
    stem = re.sub(r"[^a-z0-9]+", "-", ascii_part).strip("-")[:60].strip("-") or "survey"
    return f"{stem}-{hashlib.sha256(composed.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def printable(text: str) -> str:
    """``text`` with control, format and surrogate characters escaped, safe for a terminal and a report."""
    return "".join(c if unicodedata.category(c)[0] != "C" else ascii(c)[1:-1] for c in text)
