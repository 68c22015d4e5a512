"""The kinds of dirty input that are held back: how each comes about, its codes, and the spec that releases it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from segy_bytes import Draft
from spoils import (
    Spoil,
    ascii_transfer,
    binary,
    copies,
    cut,
    degrees,
    ebcdic_to_ascii,
    fields,
    fortran_records,
    gzipped,
    ibm_word,
    in_metres,
    junk,
    line_2d,
    lines_where_coordinates_belong,
    mislabelled,
    more,
    nothing,
    numbers_at,
    picked,
    prestack,
    put,
    raw_samples,
    repeated,
    samples,
    scaled_by,
    second_survey,
    several,
    sparse,
    swapped,
    tape_image,
    tarred,
    text_with_line_ends,
    uneven_lengths,
    without_text,
    zipped,
)

FLOATS, INTEGERS, ALL = (1, 5), (2, 3, 8), (1, 2, 3, 5, 8)
REV_2 = b"\x02\x00"


@dataclass(frozen=True)
class Kind:
    """One kind of input and the exact outcome it must have."""

    spoil: Spoil
    codes: tuple[str, ...] = ()  # of all findings
    outcome: Literal["held", "published", "uploading"] = "held"
    spec: dict[str, Any] = field(default_factory=dict)
    release: dict[str, Any] | None = None  # further spec fields under which it is published, every sample exact
    how: dict[str, Any] = field(default_factory=dict)  # of the draft
    formats: tuple[int, ...] = ALL
    revisions: tuple[bytes, ...] = (b"\x00\x00", b"\x01\x00", REV_2)
    orders: str = "><"
    variants: int = 4
    file: str = "survey.sgy"
    said: str = ""  # in the notes of the manifest, or in the findings
    loses: bool = False  # something that no volume holds, so that the export is not the same file
    axis: tuple[float, float] | None = None  # first sample and step, where the headers do not say them


def held(spoil: Spoil, *codes: str, **more: Any) -> Kind:
    return Kind(spoil, codes, **more)


def typo(name: str, value: int) -> Spoil:
    return put(name, 17, value)


def no_counts(made: Draft) -> None:
    fields(count=0)(made)
    put("count", ..., 0)(made)


def swapped_trace_headers(made: Draft) -> None:
    made.header_order = "<" if made.order == ">" else ">"


def swapped_traces(made: Draft) -> None:
    swapped_trace_headers(made)
    made.sample_order = made.header_order


def swapped_samples(made: Draft) -> None:
    made.sample_order = "<" if made.order == ">" else ">"


def silent_swapped_traces(made: Draft) -> None:
    """As ``swapped_traces``, in a file that leaves counts, intervals and coordinates out."""
    swapped_traces(made)
    for name in ("count", "interval", "x", "y", "scalar"):
        made.headers[name] = np.zeros(len(made), int)


_TYPO_TRACE = {"drop_traces": [18]}

NO_SEGY: dict[str, Kind] = {
    "empty file": held(cut(0), "file-empty", variants=2),
    "one byte": held(cut(1), "not-segy", variants=1),
    "cut in the text header": held(cut(1000), "not-segy", variants=2),
    "a byte short of the file headers": held(cut(3599), "not-segy", variants=2),
    "a zip archive of it": held(zipped, "not-segy", said="zip", variants=2),
    "gzip of it": held(gzipped, "not-segy", said="gzip", variants=2),
    "a tar archive of it": held(tarred, "not-segy", said="tar", variants=2),
    "a PDF report": held(junk(b"%PDF-1.7\n"), "not-segy", said="PDF", variants=1),
    "a PNG picture": held(junk(b"\x89PNG\r\n\x1a\n"), "not-segy", said="PNG", variants=1),
    "an HDF5 file": held(junk(b"\x89HDF\r\n\x1a\n"), "not-segy", said="HDF5", variants=1),
    "an HTML error page": held(repeated(b"<html><body>403 Forbidden</body></html>\n"), "not-segy", variants=1),
    "a table as text": held(repeated(b"inline,crossline,x,y\n100,300,450000,6200000\n"), "not-segy", variants=1),
    "zeros": held(repeated(b"\0"), "not-segy", said="zero", variants=1),
    "0xFF": held(repeated(b"\xff"), "not-segy", variants=1),
    "EBCDIC spaces": held(repeated(b"\x40"), "not-segy", variants=1),
    "random bytes": held(junk(b""), "not-segy", variants=1),
    "SEG-2": held(junk(b"\x55\x3a\x01\x00"), "not-segy", said="SEG-2", variants=1),
    "SEG-2 big endian": held(junk(b"\x3a\x55\x00\x01"), "not-segy", said="SEG-2", variants=1),
    "SEG-D": held(junk(b"\x00\x01\x80\x58\x00\x00\x00\x00\x00\x00\x23\x12", seed=5), "not-segy", variants=1),
    "a tape image": held(tape_image, "not-segy", variants=2),
    "Fortran records": held(fortran_records, "not-segy", variants=2),
    "text header left out": held(without_text, "not-segy", formats=(5,), variants=2),
    "text header with line ends": held(text_with_line_ends, "not-segy", variants=2),
    "through a code page": held(
        ebcdic_to_ascii, "sample-format-unsupported", formats=(5,), orders=">", revisions=(b"\1\0",), variants=1
    ),
}  # fmt: skip

FILE: dict[str, Kind] = {
    "header only": held(cut(3600), "no-traces"),
    "cut in the first trace": held(cut(3700), "truncated"),
    "cut in a trace": held(cut(-10), "truncated"),
    "a byte too many": held(more(b"\0"), "truncated"),
    "zeros after the last trace": held(more(b"\0" * 1021), "truncated"),
    "a transfer in text mode": held(ascii_transfer, "truncated", how={"text": "C 1\nC 2"}, formats=(2,), variants=2),
    "traces of uneven lengths": held(uneven_lengths, "grid-sparse", formats=(5,), orders=">"),
    "whole traces missing of a counted number": held(
        several(binary(3513, "Q", 50)), "truncated", revisions=(REV_2,), said="50"
    ),
    "a count of 65535": held(fields(count=65535), "truncated"),
    "a count of two terabytes": held(binary(3269, "I", 2**32 - 1), "truncated", revisions=(REV_2,)),
    "a count of one too many": held(fields(count=51), "truncated", release={"samples_per_trace": 50}),
    "no count anywhere": held(no_counts, "sample-count-missing", release={"samples_per_trace": 50}),
    "counts that differ": held(put("count", 4, 19), "sample-count-differs", release={"samples_per_trace": 50}),
    "two files of different lengths": held(
        lambda made: [made.to_bytes(), Draft(made.samples[:, :-1], made.headers, order=made.order).to_bytes()],
        "files-differ", formats=(5,),
    ),
    "two files, the second cut": held(
        lambda made: [made.to_bytes(), made.to_bytes()[:-9]], "truncated"
    ),
    "the same file twice": held(
        lambda made: [made.to_bytes()] * 2, "duplicate-traces", release={"duplicates": "first"}
    ),
    "a file of the survey not there yet": held(
        nothing, "still-uploading", outcome="uploading", spec={"files": ["survey.sgy", "more.sgy"]}, variants=2
    ),
}  # fmt: skip

HEADERS: dict[str, Kind] = {
    "extended texts beyond the end": held(fields(extended=900), "extended-headers-invalid", revisions=(b"\1\0", REV_2)),
    "extended texts without end": held(fields(extended=-1), "extended-headers-invalid", revisions=(b"\1\0", REV_2)),
    "extended texts of a negative number": held(
        fields(extended=-7), "extended-headers-invalid", revisions=(b"\1\0", REV_2)
    ),
    "one extended text declared, none there": held(
        fields(extended=1), "extended-headers-invalid", revisions=(b"\1\0", REV_2), release={"first_trace_byte": 3601}
    ),
    "one extended text there, none declared": held(
        fields(extended_texts=["C 41 MORE"]), "extended-headers-invalid", revisions=(b"\1\0", REV_2),
        release={"first_trace_byte": 6801},
    ),
    "two extended texts there, one declared": held(
        fields(extended=1, extended_texts=["C 41", "C 81"]), "extended-headers-invalid", revisions=(b"\1\0", REV_2)
    ),
    "extended trace headers": held(binary(3507, "i", 1), "extended-trace-headers", revisions=(REV_2,)),
    "a trailer of unknown length": held(binary(3529, "i", -1), "data-trailer-unknown", revisions=(REV_2,)),
    "format code 0": held(fields(code=0), "sample-format-unknown", formats=(5,)),
    "fixed point with gain": held(fields(code=4), "sample-format-unsupported", formats=(5,)),
    "float64": held(
        raw_samples(lambda m: m.samples, "f8", 6), "sample-format-unsupported", formats=(5,), said="float64"
    ),
    "int24": held(fields(code=7), "sample-format-unsupported", formats=(5,), said="int24"),
    "int64": held(raw_samples(lambda m: m.samples, "i8", 9), "sample-format-unsupported", formats=(5,), said="int64"),
    "uint32": held(fields(code=10), "sample-format-unsupported", formats=(2,), said="uint32"),
    "uint16": held(fields(code=11), "sample-format-unsupported", formats=(3,), said="uint16"),
    "uint8": held(fields(code=16), "sample-format-unsupported", formats=(8,), said="uint8"),
    "format code 99": held(fields(code=99), "not-segy", formats=(5,)),
    "traces of the other byte order": held(
        swapped_traces, "byte-order-mixed", formats=(1, 2, 3, 5),
    ),
    "trace headers of the other byte order": held(swapped_trace_headers, "byte-order-mixed"),
    "traces of the other byte order that say little": held(
        silent_swapped_traces, "byte-order-mixed", formats=(1, 2, 3, 5)
    ),
    "text speaks of depth": held(
        fields(text="C 1 PSDM STACK"), "domain-unclear", release={"domain": "depth"}
    ),
    "ASCII text speaks of depth": held(
        fields(text="C 1 VOLUME IN DEPTH", ascii_text=True), "domain-unclear", release={"domain": "time"}
    ),
}  # fmt: skip

VERTICAL: dict[str, Kind] = {
    "no interval anywhere": held(
        several(fields(interval=0), put("interval", ..., 0)), "sample-interval-missing",
        release={"sample_interval": 4}, axis=(0, 4),
    ),
    "an interval of some traces": held(
        put("interval", [5, 6], 2000), "sample-interval-differs", release={"sample_interval": 4}
    ),
    "interval against the traces": held(
        put("interval", ..., 2000), "sample-interval-conflict", release={"sample_interval": 2}, axis=(0, 2)
    ),
    "interval in ms": held(
        several(fields(interval=4), put("interval", ..., 4)), "sample-interval-implausible",
        release={"sample_interval": 4}, axis=(0, 4), said="0.004",
    ),
    "interval in ms, silent traces": held(
        several(fields(interval=2), put("interval", ..., 0)), "sample-interval-implausible",
        release={"sample_interval": 2}, axis=(0, 2),
    ),
    "a negative interval": held(
        several(fields(interval=65536 - 4000), put("interval", ..., 65536 - 4000)), "sample-interval-implausible",
        release={"sample_interval": 4}, axis=(0, 4),
    ),
    "interval of revision 2 in ms": held(
        several(binary(3273, "d", 4.0), put("interval", ..., 0)), "sample-interval-conflict", revisions=(REV_2,),
        release={"sample_interval": 4}, axis=(0, 4),
    ),
    "delays that differ": held(
        put("delay", slice(10, 20), 1000), "delay-differs", release={"first_sample": 0}, axis=(0, 4), said="10 of 42"
    ),
    "one delay of a thousand": held(put("delay", 30, 4), "delay-differs", release={"first_sample": 0}, axis=(0, 4)),
    "an odd scalar for times": held(
        several(put("delay", ..., 1000), put("times_scalar", ..., 7)), "times-scalar-unknown",
        release={"first_sample": 1000}, axis=(1000, 4),
    ),
    "a scalar for times of some traces": held(
        several(put("delay", ..., 100), put("times_scalar", slice(0, 9), 10)), "delay-differs",
        revisions=(b"\1\0", REV_2), release={"first_sample": 100}, axis=(100, 4),
    ),
    "a scalar for times in revision 0": held(
        several(put("delay", ..., 100), put("times_scalar", ..., 10)), "times-scalar-unknown",
        revisions=(b"\0\0",), release={"first_sample": 100}, axis=(100, 4),
    ),
}  # fmt: skip

SAMPLES: dict[str, Kind] = {
    "IEEE called IBM": held(
        mislabelled(1), "sample-format-mismatch", formats=(5,), release={"sample_format": "ieee"}, said="like ieee"
    ),
    "IBM called IEEE": held(
        mislabelled(5), "sample-format-mismatch", formats=(1,), release={"sample_format": "ibm"}, said="like ibm"
    ),
    "IEEE called int32": held(
        mislabelled(2), "sample-format-mismatch", formats=(5,), release={"sample_format": "ieee"}, said="like ieee"
    ),
    "IBM called int32": held(
        mislabelled(2), "sample-format-mismatch", formats=(1,), release={"sample_format": "ibm"}, said="like ibm"
    ),
    "int32 called IEEE": held(
        mislabelled(5), "non-finite-samples", "sample-format-mismatch", formats=(2,),
        release={"sample_format": "int32"}, said="like int32",
    ),
    "int32 called IBM": held(
        mislabelled(1), "amplitude-overflow", "sample-format-mismatch", formats=(2,),
        release={"sample_format": "int32"}, said="like int32",
    ),
    "int16 called int32": held(mislabelled(2), "truncated", formats=(3,)),
    "IBM called int16": held(several(mislabelled(3)), "truncated", formats=(1,)),
    "int8 called int16": held(mislabelled(3), "truncated", formats=(8,)),
    "uint8 called int8": held(
        raw_samples(lambda m: m.samples.round() + 128, "u1", 8), "implausible-amplitudes", formats=(8,)
    ),
    "uint16 called int16": held(
        raw_samples(lambda m: m.samples.round() + 32768, "u2", 3), "implausible-amplitudes", formats=(3,)
    ),
    "float samples of the other byte order": held(swapped_samples, "byte-order-mixed", formats=(5,)),
    "IBM samples of the other byte order": held(swapped_samples, "all-zero", "byte-order-mixed", formats=(1,)),
    "int16 samples of the other byte order": held(
        several(swapped_samples, scaled_by(8)), "byte-order-mixed", formats=(3,)
    ),
    "int32 samples of the other byte order": held(
        several(swapped_samples, scaled_by(8)), "byte-order-mixed", formats=(2,)
    ),
    "one NaN": held(samples((3, 4), np.nan), "non-finite-samples", formats=(5,), release={"non_finite": "dead"}),
    "NaN for dead traces": held(
        samples(slice(3, 9), np.nan), "non-finite-samples", formats=(5,), release={"non_finite": "dead"}
    ),
    "infinite": held(samples((3, 4), -np.inf), "non-finite-samples", formats=(5,), release={"non_finite": "dead"}),
    "all NaN": held(samples(..., np.nan), "non-finite-samples", formats=(5,)),
    "beyond float32": held(
        ibm_word(5, 6, 0x7FFFFFFF), "amplitude-overflow", formats=(1,), release={"non_finite": "dead"}
    ),
    "of all magnitudes": held(
        lambda m: samples(..., (10.0 ** np.linspace(-37, 37, m.samples.size)).reshape(m.samples.shape))(m),
        "implausible-amplitudes", formats=(5,), release={"sample_format": "ieee"},
    ),
    "all zero": held(samples(..., 0), "all-zero"),
    "all negative zero": held(samples(..., -0.0), "all-zero", formats=(5,)),
    "constant": held(samples(..., 7), "constant-amplitude"),
    "all dead": held(put("trace_id", ..., 2), "no-live-traces"),
}  # fmt: skip

GRID: dict[str, Kind] = {
    "a wild inline": held(typo("inline", 90_000), "wild-inline", release=_TYPO_TRACE, said="90000"),
    "a wild negative inline": held(typo("inline", -2_000_000_000), "wild-inline", release=_TYPO_TRACE),
    "a wild crossline": held(typo("crossline", -5_000), "wild-crossline", release=_TYPO_TRACE, said="-5000"),
    "a wild inline and another wild crossline": held(
        several(typo("inline", 90_000), put("crossline", 30, 77_777)), "wild-inline", "wild-crossline",
        release={"drop_traces": [18, 31]},
    ),
    "a near inline of one trace": held(
        typo("inline", 107), "wild-inline", how={"shape": (6, 9, 50)}, release=_TYPO_TRACE, said="107"
    ),
    "a near crossline of one trace": held(
        typo("crossline", 297), "wild-crossline", how={"shape": (9, 8, 50)}, release=_TYPO_TRACE, said="297"
    ),
    "an inline between the steps": held(
        several(typo("inline", 105), put("crossline", 17, 300)), "inline-off-step", how={"inlines": (100, 2)},
        release=_TYPO_TRACE,
    ),
    "a crossline between the steps": held(
        typo("crossline", 301), "crossline-off-step", how={"crosslines": (300, 4)}, release=_TYPO_TRACE
    ),
    "an inline that is another's": held(typo("inline", 104), "duplicate-traces", release=_TYPO_TRACE),
    "duplicates with other samples": held(
        several(picked(lambda m: np.r_[np.arange(len(m)), 3, 3, 10]), samples((-1, 3), 9)), "duplicate-traces",
        release={"duplicates": "first"}, said="3 traces too many",
    ),
    "the same traces twice": held(
        picked(lambda m: np.r_[np.arange(len(m)), 3, 10]), "duplicate-traces", release={"duplicates": "last"}
    ),
    "pre-stack": held(prestack, "prestack", said="100, 200"),
    "pre-stack without offsets": held(several(prestack, put("offset", ..., 0)), "duplicate-traces"),
    "angle stacks in one file": held(copies(3), "duplicate-traces", release={"duplicates": "first"}),
    "angle stacks with their angles": held(copies(3, 10, 20, 30), "prestack", said="10, 20, 30"),
    "one inline": held(put("inline", ..., 100), "no-3d-grid"),
    "no line numbers": held(several(put("inline", ..., 0), put("crossline", ..., 0)), "no-3d-grid"),
    "a 2D line": held(line_2d, "no-3d-grid"),
    "numbers at 9 and 21": held(
        numbers_at("at_9", "at_21"), "no-3d-grid", release={"inline_byte": 9, "crossline_byte": 21}, said="proposed"
    ),
    "numbers at 17 and 13": held(
        numbers_at("at_17", "at_13"), "no-3d-grid", release={"inline_byte": 17, "crossline_byte": 13}, said="proposed"
    ),
    "numbers at 221 and 225": held(
        numbers_at("at_221", "at_225"), "no-3d-grid", release={"inline_byte": 221, "crossline_byte": 225},
        said="proposed",
    ),
    "lines where coordinates belong": held(
        lines_where_coordinates_belong, "lines-are-coordinates",
        release={"inline_byte": 181, "crossline_byte": 185, "cdp_x_byte": 189, "cdp_y_byte": 193},
    ),
    "sparse": held(sparse, "grid-sparse"),
    "two far surveys in one file": held(second_survey(5000, 0, 0), "grid-sparse"),
    "two surveys of one numbering": held(
        second_survey(0, 0, 50_000_00), "duplicate-traces", release={"duplicates": "first"}
    ),
    "two near surveys of different places": held(second_survey(6, 0, 3_000_000), "coordinates-misfit"),
    "auxiliary traces": held(
        put("trace_id", [0, 1], 5), "auxiliary-traces", release={"drop_traces": [1, 2]}
    ),
    "a single live trace": held(samples(np.arange(42) != 20, 0), "no-3d-grid"),
    "a single live line": held(samples(np.arange(42) >= 7, 0), "no-3d-grid"),
    "a trace number that is not there": held(nothing, "drop-traces-unknown", spec={"drop_traces": [43]}),
}  # fmt: skip

PLACE: dict[str, Kind] = {
    "a coordinate off": held(put("x", 20, 44_000_000), "coordinates-misfit", release={"drop_traces": [21]}),
    "coordinates of some traces missing": held(
        several(put("x", [5, 6], 0), put("y", [5, 6], 0)), "coordinates-misfit", release={"drop_traces": [6, 7]}
    ),
    "a typo that hits another line": held(
        several(put("inline", 20, 105), put("trace_id", 41, 2)), "coordinates-misfit", release={"drop_traces": [21]}
    ),
    "x and y exchanged in some traces": held(
        swapped("x", "y", slice(8, 12)), "coordinates-misfit", release={"drop_traces": [9, 10, 11, 12]}
    ),
    "y missing": held(put("y", ..., 0), "coordinates-degenerate"),
    "all coordinates equal": held(
        several(put("x", ..., 45_000_000), put("y", ..., 620_000_000)), "coordinates-degenerate"
    ),
    "a scalar of some traces wrong": held(put("scalar", slice(3, 6), 1), "coordinates-misfit",
                                          release={"coordinate_scalar": -100}),
    "a scalar left out": held(put("scalar", ..., 1), "bin-size-implausible", release={"coordinate_scalar": -100}),
    "a wrong scalar in the spec": held(
        nothing, "bin-size-implausible", spec={"coordinate_scalar": 1}, release={"coordinate_scalar": -100}
    ),
    "a scalar applied twice": held(
        put("scalar", ..., -10_000), "bin-size-implausible", release={"coordinate_scalar": -100}
    ),
    "degrees by their unit code": held(degrees(3), "coordinates-geographic"),
    "seconds of arc": held(several(in_metres, put("x", ..., 10_800), put("coordinate_unit", ..., 2),
                           lambda m: put("x", ..., 10_800 + m.headers["inline"])(m),
                           lambda m: put("y", ..., 201_600 + m.headers["crossline"])(m)), "coordinates-geographic"),
    "degrees without unit code": held(degrees(0), "coordinates-geographic"),
    "degrees called metres": held(degrees(1), "coordinates-geographic"),
    "coordinates at the source fields": held(
        several(swapped("source_x", "x"), swapped("source_y", "y")), "coordinates-elsewhere",
        release={"cdp_x_byte": 73, "cdp_y_byte": 77},
    ),
}  # fmt: skip

HELD = NO_SEGY | FILE | HEADERS | VERTICAL | SAMPLES | GRID | PLACE
