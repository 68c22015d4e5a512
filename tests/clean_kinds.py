"""Clean but unusual input: none of it is held back, and what is published is exact. Warnings stand as codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from dirty_kinds import REV_2, Kind
from segy_bytes import Draft
from spoils import (
    Spoil,
    binary,
    cut_into,
    fields,
    ibm_word,
    in_metres,
    nothing,
    numbers_at,
    patched,
    picked,
    put,
    samples,
    scalars_that_differ,
    scaled_by,
    several,
)


def clean(spoil: Spoil = nothing, *warnings: str, **more: Any) -> Kind:
    return Kind(spoil, warnings, "published", **({"variants": 2} | more))


def by_crossline(made: Draft) -> None:
    made.take(np.lexsort([made.headers["inline"], made.headers["crossline"]]))


def descending(made: Draft) -> None:
    made.take(np.lexsort([-made.headers["crossline"], -made.headers["inline"]]))


def back_and_forth(made: Draft) -> None:
    sign = np.where(made.headers["inline"] % 2, -1, 1)
    made.take(np.lexsort([sign * made.headers["crossline"], made.headers["inline"]]))


def sparse_live(made: Draft) -> None:
    """Live on the two diagonals only; the others are all zero."""
    i, x = made.headers["inline"] - 100, made.headers["crossline"] - 300
    made.samples[(i != x) & (i + x != 6)] = 0


def padding(made: Draft) -> None:
    """Traces with empty headers and no samples at the end of each inline, as fixed-length lines are padded."""
    made.take(np.r_[np.arange(42), np.zeros(6, int)])
    for name, values in made.headers.items():
        made.headers[name] = np.where(np.arange(48) < 42, values, 0)
    made.samples[42:] = 0


def scalar_of_times(made: Draft) -> None:
    put("delay", ..., 25)(made)
    put("times_scalar", ..., -10)(made)


def delays_of_dead_traces(made: Draft) -> None:
    put("trace_id", [4, 5], 2)(made)
    put("delay", [4, 5], 8)(made)


def gone_edge(made: Draft) -> None:
    made.take(made.headers["crossline"] - 300 < 8 - (made.headers["inline"] - 100))


def single_traces_beyond_gaps(made: Draft) -> None:
    """One trace on the last inline and on the first crossline, whose neighbours are not there."""
    i, x = made.headers["inline"] - 100, made.headers["crossline"] - 300
    made.take(~np.isin(x, [0, 1]) & (i < 6) | (i == 7) & (x == 4) | (i == 2) & (x == 0))


def huge_coordinates(made: Draft) -> None:
    made.headers |= {name: made.headers[name] // 100 + 2_000_000_000 for name in ("x", "y")}
    made.headers["scalar"] = np.ones(len(made), int)


def multiplied(made: Draft) -> None:
    """A positive scalar: coordinates in tens of metres, bins of 100 by 50."""
    i, x = made.headers["inline"] - 100, made.headers["crossline"] - 300
    made.headers |= {"x": 45_000 + 8 * i + 3 * x, "y": 620_000 - 6 * i + 4 * x, "scalar": np.full(len(made), 10)}


EXTENDED = {"extended": 2, "extended_texts": ["C 41 NOTES", "C 81 MORE NOTES"]}
STANZAS = {"extended": -1, "extended_texts": ["((SEG: Notes))", "((SEG: EndText))"]}
LATER = (b"\1\0", REV_2)

CLEAN: dict[str, Kind] = {
    "as it should be": clean(variants=30),
    "0.5 ms": clean(several(fields(interval=500), put("interval", ..., 500))),
    "2.5 ms": clean(several(fields(interval=2500), put("interval", ..., 2500))),
    "3.999 ms": clean(several(fields(interval=3999), put("interval", ..., 3999))),
    "0.05 ms": clean(several(fields(interval=50), put("interval", ..., 50))),
    "0.0333 ms in revision 2": clean(
        several(fields(interval=33), binary(3273, "d", 33.3), put("interval", ..., 33)), revisions=(REV_2,),
        axis=(0, 33.3 / 1000),
    ),
    "65 ms by the spec": clean(
        several(fields(interval=65000), put("interval", ..., 65000)), spec={"sample_interval": 65}
    ),
    "depth of 2.5 m": clean(
        several(fields(interval=2500), put("interval", ..., 2500)), spec={"domain": "depth"}, said="taken as metres"
    ),
    "depth of 5 m": clean(several(fields(interval=5000), put("interval", ..., 5000)), spec={"domain": "depth"}),
    "depth in feet": clean(
        several(fields(interval=10_000), put("interval", ..., 10_000), binary(3255, "h", 2)), spec={"domain": "depth"}
    ),
    "depth in feet by the spec": clean(spec={"domain": "depth", "depth_unit": "ft"}),
    "a delay of 1000 ms": clean(put("delay", ..., 1000)),
    "a negative delay": clean(put("delay", ..., -200)),
    "a delay of 2.5 ms by its scalar": clean(scalar_of_times, revisions=LATER, said="2.5"),
    "other delays of dead traces": clean(delays_of_dead_traces, loses=True),
    "first sample by the spec": clean(spec={"first_sample": -3.5}, axis=(-3.5, 4)),
    "interval and count only in the traces": clean(
        fields(count=0, interval=0), said="from the trace headers", axis=(0, 4)
    ),
    "traces that say nothing": clean(
        several(put("count", ..., 0), put("interval", ..., 0), put("trace_id", ..., 0), put("sequence", ..., 0))
    ),
    "cropped, old counts in the traces": clean(put("count", ..., 462), said="only this fits"),
    "trace id 0": clean(put("trace_id", ..., 0)),
    "unknown trace ids": clean(put("trace_id", [3, 4, 40], [12, -1, 12]), said="1 with -1, 2 with 12"),
    "dead by trace id": clean(
        several(put("trace_id", [3, 4, 40], 2), samples(3, 77)), said="3 dead traces", loses=True
    ),
    "dead by zeros": clean(samples([10, 11, 12], 0), said="3 dead traces"),
    "sparse live traces": clean(sparse_live),
    "padding with empty headers": clean(padding, said="6 dead traces with inline or crossline 0"),
    "shuffled": clean(picked(lambda m: np.random.default_rng(1).permutation(len(m))), variants=4),
    "by crossline": clean(by_crossline),
    "descending": clean(descending),
    "back and forth": clean(back_and_forth),
    "step 2 and 5": clean(how={"inlines": (100, 2), "crosslines": (300, 5)}),
    "negative line numbers": clean(how={"inlines": (-3, 1), "crosslines": (-40, 4)}),
    "line numbers from zero": clean(how={"inlines": (0, 1), "crosslines": (0, 1)}),
    "line numbers of millions": clean(how={"inlines": (2_100_000_000, 3), "crosslines": (1_000_000, 1)}),
    "missing inlines": clean(picked(lambda m: ~np.isin(m.headers["inline"], [102, 103]))),
    "missing last trace": clean(picked(lambda m: np.arange(len(m) - 1))),
    "an irregular edge": clean(gone_edge),
    "single traces beyond gaps": clean(single_traces_beyond_gaps, how={"shape": (8, 11, 50)}, variants=4),
    "2 by 2 traces": clean(picked(lambda m: [0, 1, 7, 8])),
    "one sample a trace": clean(how={"shape": (12, 14, 1)}),
    "numbers at 9 and 21": clean(numbers_at("at_9", "at_21"), spec={"inline_byte": 9, "crossline_byte": 21}),
    "varied offsets of a stack": clean(lambda m: put("offset", ..., np.arange(42) % 5 * 25)(m)),
    "a duplicate that is dead": clean(
        several(picked(lambda m: np.r_[np.arange(len(m)), 9]), put("trace_id", -1, 2), samples(-1, 0)),
        loses=True,
    ),
    "scalars that differ": clean(scalars_that_differ, variants=4),
    "scalar 0": clean(lambda m: in_metres(m, 0), said="read as 1"),
    "scalar 1": clean(in_metres),
    "a positive scalar": clean(multiplied),
    "scalar by the spec": clean(put("scalar", ..., 0), spec={"coordinate_scalar": -100}, said="by the spec"),
    "bins of 2500 m by the spec": clean(put("scalar", ..., 1), spec={"coordinate_unit": "m"}),
    "bins of 600 by 12.5 m": clean(how={"bins": (600.0, 12.5)}),
    "huge coordinates": clean(huge_coordinates),
    "no coordinates": clean(several(put("x", ..., 0), put("y", ..., 0)), said="no coordinates"),
    "lengths under the unit code of degrees": clean(put("coordinate_unit", ..., 3), said="too large"),
    "left-handed": clean(lambda m: m.headers.update(y=-m.headers["y"])),
    "ASCII text": clean(fields(ascii_text=True), variants=4),
    "text with escapes and tags": clean(
        fields(ascii_text=True, text="C 1 H\xf8yde \x1b[31m <script>alert(1)</script> {{7*7}} $(id)")
    ),
    "blank text": clean(fields(text="")),
    "text of zeros": clean(patched(1, bytes(3200))),
    "water depth in the text": clean(fields(text="C 1 WATER DEPTH 90 M, TIME SECTION")),
    "extended texts": clean(fields(**EXTENDED), revisions=LATER, said="2 extended"),
    "extended texts in revision 0": clean(fields(**EXTENDED), revisions=(b"\0\0",), said="2 extended"),
    "extended ASCII texts": clean(fields(**EXTENDED, ascii_text=True), revisions=LATER, said="2 extended"),
    "extended texts with an end": clean(fields(**STANZAS), revisions=LATER, said="2 extended"),
    "a trailer": clean(fields(trailer=b"x" * 3200, binary={329: ("i", 1)}), revisions=(REV_2,)),
    "a byte order mark": clean(binary(3297, "I", 0x01020304), revisions=(REV_2,)),
    "the offset of the first trace": clean(
        fields(**EXTENDED, binary={321: ("Q", 3600 + 6400)}), revisions=(REV_2,)
    ),
    "the number of traces": clean(binary(3513, "Q", 42), revisions=(REV_2,)),
    "revision 2 fields full of spaces": clean(
        lambda m: patched(3507, b"\x40" * 94)(m), revisions=(REV_2,), said="ignored"
    ),
    "an odd revision": clean(revisions=(b"\x37\x31",), said="no known revision"),
    "a swapped revision": clean(fields(**EXTENDED), revisions=(b"\x00\x01",), said="2 extended"),
    "spikes": clean(samples(([3, 20], [4, 9]), 120)),
    "a mute zone": clean(lambda m: samples(np.arange(50) < np.arange(42)[:, None] % 30, 0)(m)),
    "a zero top": clean(samples((slice(None), slice(0, 25)), 0)),
    "amplitudes of 1e-9": clean(scaled_by(2.0**-40), formats=(1, 5)),
    "amplitudes of 1e9": clean(scaled_by(2.0**20), formats=(1, 5)),
    "all positive": clean(lambda m: setattr(m, "samples", np.abs(m.samples)), formats=(1, 2, 3, 5)),
    "a constant shift": clean(scaled_by(1, 4096), formats=(1, 2, 3, 5)),
    "IBM zeros with an exponent": clean(
        several(samples((5, 6), 0), ibm_word(5, 6, 0x40000000)), loses=True, formats=(1,)
    ),
    "clipped": clean(lambda m: setattr(m, "samples", m.samples.clip(-20, 20)), "clipped"),
    "int32 beyond 24 bits": clean(
        several(
            lambda m: setattr(m, "samples", m.samples.astype(float) * 2**22), samples((3, 4), 2**24 + 1)
        ), "samples-rounded", loses=True, formats=(2,)
    ),
    "two files": clean(cut_into(slice(0, 20), slice(20, 42)), variants=4),
    "two files, later part first": clean(cut_into(slice(20, 42), slice(0, 20))),
    "a name with spaces and quotes": clean(file="Block A 'new' \"2019\".sgy"),
    "a name of a command": clean(file="$(touch hacked); rm -rf ~.segy"),
    "a name in other letters": clean(file="Brønn 7 – Ålesund 地震.sgy"),
    "a name that begins with a dash": clean(file="-rf.SGY"),
    "a name of dots": clean(file="...sgy"),
    "a name without ending": clean(file="survey"),
    "a very long name": clean(file="a" * 240 + ".sgy"),
}  # fmt: skip
