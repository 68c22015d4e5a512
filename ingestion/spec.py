"""The survey spec: the few facts a person knows about a SEG-Y file that the file does not say, or says wrongly.

One small YAML file per survey. Nothing in it is needed for a clean revision 1 file; everything that is
inferred from a file is proposed, by the report of a held-back survey or by ``survey propose``, and applied only
when it stands here.

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
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from ingestion.manifest import FORMAT_VERSION, Contract

HeaderByte = Annotated[int, Field(ge=1, le=237)]  # a 4-byte field of the 240-byte trace header
LineByte = Annotated[int, Field(ge=1, le=239)]
LineType = Literal["int32", "int16"]
SampleFormat = Literal["ibm", "ieee", "int8", "int16", "int32"]


class SurveySpec(Contract):
    """What a person says of a survey. All fields are optional; null, or no such line, means: as the file says."""

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="The survey's name. Without it, the name of the file (of this spec, when it lists files).",
        examples=["Block A 2019"],
    )
    files: list[str] = Field(
        default=[],
        description="All SEG-Y files of the survey, in order: plain names of files that lie beside the spec. "
        "The survey is taken in when all are there.",
        examples=[["block_a_1.sgy", "block_a_2.sgy"]],
    )
    inline_byte: LineByte = Field(
        default=189,
        description="First byte of the inline number in the trace header, counted from 1.",
        examples=[9],
    )
    inline_type: LineType = Field(
        default="int32", description="Whether the inline number takes 4 bytes or 2.", examples=["int16"]
    )
    crossline_byte: LineByte = Field(
        default=193,
        description="First byte of the crossline number in the trace header, counted from 1.",
        examples=[21],
    )
    crossline_type: LineType = Field(
        default="int32", description="Whether the crossline number takes 4 bytes or 2.", examples=["int16"]
    )
    cdp_x_byte: HeaderByte = Field(
        default=181,
        description="First byte of the x coordinate of a trace (4 bytes). 73 is that of the source.",
        examples=[73],
    )
    cdp_y_byte: HeaderByte = Field(
        default=185,
        description="First byte of the y coordinate of a trace (4 bytes). 77 is that of the source.",
        examples=[77],
    )
    coordinate_scalar: int | None = Field(
        default=None,
        ge=-32768,
        le=32767,
        description="Scalar of all coordinates, instead of bytes 71-72 of each trace: "
        "−100 divides by 100, 10 multiplies by 10; 0 is refused.",
        examples=[-100],
    )
    coordinate_unit: Literal["m", "ft"] | None = Field(
        default=None,
        description="Unit of the coordinates, instead of the measurement system in bytes 3255-3256. Saying it also "
        "says that bins of any size are right; whether a data set may mix them is still asked.",
        examples=["ft"],
    )
    endianness: Literal["big", "little"] | None = Field(
        default=None, description="Byte order of headers and samples.", examples=["little"]
    )
    sample_format: SampleFormat | None = Field(
        default=None,
        description="Format of the samples, instead of the code in bytes 3225-3226. "
        "Saying it also silences the check whether the samples look like it.",
        examples=["ieee"],
    )
    samples_per_trace: int | None = Field(
        default=None,
        ge=1,
        le=2**24,
        description="Samples of every trace, instead of the counts in the headers.",
        examples=[1501],
    )
    first_trace_byte: int | None = Field(
        default=None,
        ge=3601,
        le=2**31,
        description="First byte of the first trace header, counted from 1, instead of the number of extended text "
        "headers: 3601 follows the binary header at once.",
        examples=[3601],
    )
    domain: Literal["time", "depth"] | None = Field(
        default=None,
        description="What the vertical axis is. Without it, time; a text header that speaks of depth then holds "
        "the survey back.",
        examples=["depth"],
    )
    depth_unit: Literal["m", "ft"] | None = Field(
        default=None,
        description="Unit of the depth axis, instead of the measurement system in bytes 3255-3256.",
        examples=["ft"],
    )
    sample_interval: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Distance of two samples, in ms or the depth unit, instead of the headers' intervals.",
        examples=[2.5],
    )
    first_sample: float | None = Field(
        default=None,
        ge=-1e9,
        le=1e9,
        description="Time or depth of the first sample of every trace, in ms or the depth unit, instead of the "
        "recording delays.",
        examples=[1000],
    )
    polarity: Literal["normal", "reverse", "unknown"] = Field(
        default="unknown",
        description="In `normal`, an increase of impedance, as at the water bottom, is a positive peak; "
        "in `reverse`, a negative one. Kept with the volume, and compared with the data by validation.",
        examples=["normal"],
    )
    amplitude_unit: str | None = Field(
        default=None, description="What amplitudes are. Kept with the volume.", examples=["Pa"]
    )
    crs: str | None = Field(
        default=None,
        pattern=r"^EPSG:[1-9][0-9]{3,5}$",
        description="Coordinate reference system of the coordinates, by its EPSG code. Without it, coordinates share "
        "one unnamed space with all such surveys.",
        examples=["EPSG:23031"],
    )
    licence: str | None = Field(
        default=None,
        description="Under which terms the data is held. Kept with the volume.",
        examples=["internal use until 2030-12-31"],
    )
    drop_traces: list[Annotated[int, Field(ge=1)]] = Field(
        default=[],
        description="Traces to leave out, counted from 1 through all files in order.",
        examples=[[17, 120]],
    )
    auxiliary: Literal["hold", "drop"] = Field(
        default="hold",
        description="What to do with traces that are no seismic data by their trace id (3 to 8, bytes 29-30).",
        examples=["drop"],
    )
    duplicates: Literal["hold", "first", "last", "mean"] = Field(
        default="hold",
        description="Which of several live traces with one inline and crossline counts.",
        examples=["first"],
    )
    non_finite: Literal["hold", "dead"] = Field(
        default="hold",
        description="What to do with traces that hold NaN or infinite samples.",
        examples=["dead"],
    )

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

    @model_validator(mode="after")
    def _lines_end_in_the_header(self) -> SurveySpec:
        for name in ("inline", "crossline"):
            byte, kind = getattr(self, f"{name}_byte"), getattr(self, f"{name}_type")
            if kind == "int32" and byte > 237:
                raise ValueError(f"{name}_byte {byte} leaves no room for 4 bytes; expected at most 237")
        if (self.inline_byte, self.inline_type) == (self.crossline_byte, self.crossline_type):
            raise ValueError(f"inline and crossline are both at byte {self.inline_byte}; expected two header fields")
        return self

    @model_serializer(mode="wrap")
    def _without_later_fields(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Fields that came after the first version count only where they are set: older digests stay true."""
        fields: dict[str, Any] = serialize(self)
        return {name: value for name, value in fields.items() if name not in _LATER or value != _LATER[name]}

    @property
    def sha256(self) -> str:
        """Digest of the whole spec."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


_FIELDS = SurveySpec.model_fields
_LATER = {
    name: _FIELDS[name].default
    for name in (
        "inline_type",
        "crossline_type",
        "coordinate_unit",
        "samples_per_trace",
        "first_trace_byte",
        "auxiliary",
    )
}


def survey_digest(source_sha256: list[str], spec: SurveySpec) -> str:
    """Digest of a survey: the bytes of its files, what the spec says of them, and the format version.

    The names of survey and files are no part of it, so that the same bytes under another name are recognised.
    """
    content = spec.model_copy(update={"name": None, "files": []})
    parts = [f"format {FORMAT_VERSION}", *source_sha256, content.sha256]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
