"""Ways to spoil a made SEG-Y: each takes a draft and changes it, or gives the bytes that become of it."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from segy_bytes import Draft

Spoil = Callable[[Draft], Any]  # None: the draft was changed; bytes: one file; list of bytes: several


def nothing(_made: Draft) -> None:
    return


def several(*spoils: Spoil) -> Spoil:
    def spoil(made: Draft) -> Any:
        return [one(made) for one in spoils][-1]

    return spoil


def put(name: str, where: Any, value: Any) -> Spoil:
    """A trace header field of some traces."""

    def spoil(made: Draft) -> None:
        made.headers.setdefault(name, np.zeros(len(made), int))
        made.headers[name] = made.headers[name].copy()
        made.headers[name][where] = value

    return spoil


def fields(**values: Any) -> Spoil:
    """Fields of the draft itself: revision, interval, text and so on."""

    def spoil(made: Draft) -> None:
        for name, value in values.items():
            setattr(made, name, value)

    return spoil


def binary(byte: int, kind: str, value: float) -> Spoil:
    """A field of the binary header by its byte in the standard (3201 to 3600)."""
    return lambda made: made.binary.update({byte - 3200: (kind, value)})


def samples(where: Any, value: Any) -> Spoil:
    def spoil(made: Draft) -> None:
        made.samples[where] = value

    return spoil


def scaled_by(factor: float, shift: float = 0.0) -> Spoil:
    def spoil(made: Draft) -> None:
        made.samples = (made.samples * np.float32(factor) + np.float32(shift)).astype(made.samples.dtype)

    return spoil


def cut(length: int) -> Spoil:
    return lambda made: made.to_bytes()[:length]


def more(tail: bytes) -> Spoil:
    return lambda made: made.to_bytes() + tail


def patched(byte: int, data: bytes) -> Spoil:
    """Bytes of the finished file overwritten from ``byte`` (from 1)."""

    def spoil(made: Draft) -> bytes:
        whole = bytearray(made.to_bytes())
        whole[byte - 1 : byte - 1 + len(data)] = data
        return bytes(whole)

    return spoil


def mislabelled(declared: int) -> Spoil:
    """Another format code than that of the samples."""
    return lambda made: patched(3225, struct.pack(made.order + "H", declared))(made)


def raw_samples(values: Callable[[Draft], Any], kind: str, code: int) -> Spoil:
    """Samples of the numpy type ``kind`` under the format ``code`` of any name."""

    def spoil(made: Draft) -> bytes:
        stored = np.asarray(values(made)).astype(np.dtype(made.order + kind))
        made.code = code
        whole = made.to_bytes()
        head, size = 3600, 240 + made.samples.shape[1] * (len(whole) - 3600 - 240 * len(made)) // made.samples.size
        out = [whole[:head]]
        out += [whole[head + t * size :][:240] + stored[t].tobytes() for t in range(len(made))]
        return b"".join(out)

    return spoil


def picked(order: Callable[[Draft], Any]) -> Spoil:
    """Some of the traces, or all in another order, or some twice."""

    def spoil(made: Draft) -> None:
        made.take(order(made))

    return spoil


def numbers_at(inline: str, crossline: str) -> Spoil:
    def spoil(made: Draft) -> None:
        made.headers[inline], made.headers[crossline] = made.headers["inline"], made.headers["crossline"]
        made.headers["inline"] = np.zeros(len(made), int)
        made.headers["crossline"] = np.zeros(len(made), int)

    return spoil


def swapped(one: str, other: str, where: Any = slice(None)) -> Spoil:
    """The values of two fields exchanged in some traces."""

    def spoil(made: Draft) -> None:
        for name in (one, other):
            made.headers.setdefault(name, np.zeros(len(made), int))
        first, second = made.headers[one].copy(), made.headers[other].copy()
        made.headers[one], made.headers[other] = first.copy(), second.copy()
        made.headers[one][where], made.headers[other][where] = second[where], first[where]

    return spoil


def prestack(made: Draft) -> None:
    made.take(np.repeat(np.arange(len(made)), 2))
    made.headers["offset"] = np.tile([100, 200], len(made) // 2)
    made.samples = made.samples + np.tile([0, 1], len(made) // 2)[:, None].astype(made.samples.dtype)


def copies(count: int, *offsets: int) -> Spoil:
    """Whole volumes one after the other in one file."""

    def spoil(made: Draft) -> None:
        traces = len(made)
        made.take(np.tile(np.arange(traces), count))
        made.samples = np.roll(made.samples, 1, axis=1)
        made.headers["offset"] = np.repeat(offsets or [0] * count, traces)

    return spoil


def second_survey(inline: int, crossline: int, east: int) -> Spoil:
    """The traces once more with other line numbers and coordinates, after the first ones."""

    def spoil(made: Draft) -> None:
        traces = len(made)
        made.take(np.tile(np.arange(traces), 2))
        later = np.arange(len(made)) >= traces
        for name, by in (("inline", inline), ("crossline", crossline), ("x", east)):
            made.headers[name] = made.headers[name] + by * later

    return spoil


def scalars_that_differ(made: Draft) -> None:
    scalar = np.resize([-100, -10, 1], len(made))
    divisor = np.where(scalar < 0, 100 / -scalar, 100)
    made.headers |= {name: np.round(made.headers[name] / divisor).astype(int) for name in ("x", "y")}
    made.headers["scalar"] = scalar


def in_metres(made: Draft, scalar: int = 1) -> None:
    """Coordinates in whole metres, as the scalars 0 and 1 need them."""
    made.headers |= {name: np.round(made.headers[name] / 100).astype(int) for name in ("x", "y")}
    made.headers["scalar"] = np.full(len(made), scalar)


def degrees(unit: int) -> Spoil:
    """Longitude and latitude in 1e-7 degrees about 3° E 56° N, under a coordinate unit code."""

    def spoil(made: Draft) -> None:
        east, north = made.headers["x"] / 100 - 450_000, made.headers["y"] / 100 - 6_200_000
        made.headers["x"] = np.round((3 + east / 62_000) * 1e7).astype(int)
        made.headers["y"] = np.round((56 + north / 111_000) * 1e7).astype(int)
        made.headers["scalar"] = np.full(len(made), -10_000)
        made.headers["x"], made.headers["y"] = made.headers["x"] // 1000, made.headers["y"] // 1000
        made.headers["coordinate_unit"] = np.full(len(made), unit)

    return spoil


def sparse(made: Draft) -> None:
    made.headers |= {"inline": np.arange(len(made)) * 997, "crossline": np.arange(len(made))}


def lines_where_coordinates_belong(made: Draft) -> None:
    made.headers["x"] = 45_000_000 + 2500 * (made.headers["inline"] - 100)
    made.headers["y"] = 620_000_000 + 1250 * (made.headers["crossline"] - 300)
    swapped("inline", "x")(made)
    swapped("crossline", "y")(made)


def line_2d(made: Draft) -> None:
    """One line of CDPs: numbers in the CDP field (21), nothing at 189 and 193."""
    made.headers["at_21"] = np.arange(1, len(made) + 1)
    for name in ("inline", "crossline"):
        made.headers[name] = np.zeros(len(made), int)


def uneven_lengths(made: Draft) -> bytes:
    """One trace a sample longer, a later one a sample shorter: the size of the file gives nothing away."""
    whole = made.to_bytes()
    width = (len(whole) - 3600) // len(made)
    sample = (width - 240) // made.samples.shape[1]
    traces = [whole[3600 + t * width :][:width] for t in range(len(made))]
    traces[10] += traces[10][-sample:]
    traces[20] = traces[20][:-sample]
    return whole[:3600] + b"".join(traces)


def ebcdic_to_ascii(made: Draft) -> bytes:
    """The whole file through a code page, as ``dd conv=ascii`` does it."""
    return made.to_bytes().decode("cp037").encode("latin-1")


def ascii_transfer(made: Draft) -> bytes:
    """The whole file through a transfer in text mode."""
    return made.to_bytes().replace(b"\n", b"\r\n")


def tape_image(made: Draft) -> bytes:
    """TIF headers (type, previous, next; 12 bytes) before each tape record."""
    whole = made.to_bytes()
    width = (len(whole) - 3600) // len(made)
    bounds = [0, 3200, 3600, *range(3600 + width, len(whole) + 1, width)]
    out, last = b"", 0
    for start, stop in pairwise(bounds):
        here = len(out)
        out += struct.pack("<III", 0, last, here + 12 + stop - start) + whole[start:stop]
        last = here
    return out


def fortran_records(made: Draft) -> bytes:
    """Record lengths before and after each record, as Fortran writes unformatted files."""
    whole = made.to_bytes()
    width = (len(whole) - 3600) // len(made)
    bounds = [0, 3200, 3600, *range(3600 + width, len(whole) + 1, width)]
    length = [struct.pack(made.order + "I", stop - start) for start, stop in pairwise(bounds)]
    return b"".join(n + whole[a:b] + n for n, (a, b) in zip(length, pairwise(bounds), strict=True))


def without_text(made: Draft) -> bytes:
    return made.to_bytes()[3200:]


def text_with_line_ends(made: Draft) -> bytes:
    whole = made.to_bytes()
    lines = [whole[i : i + 80] for i in range(0, 3200, 80)]
    return b"\r\n".join(lines) + b"\r\n" + whole[3200:]


def unnormalised_ibm(made: Draft) -> bytes:
    """Integers written as IBM words of one exponent, as old conversions did."""
    made.code = 1
    whole_numbers = made.samples.round().astype(int)
    words = np.abs(whole_numbers).astype("u4") | np.uint32(0x46000000)
    made.samples = whole_numbers.astype(np.float32)
    return raw_samples(lambda _: np.where(whole_numbers < 0, words | np.uint32(0x80000000), words), "u4", 1)(made)


def ibm_word(trace: int, sample: int, word: int) -> Spoil:
    """One sample of an IBM file as it stands here."""

    def spoil(made: Draft) -> bytes:
        made.samples[trace, sample] = np.inf if word >> 24 & 0x7F > 0x60 else 0
        place = 3601 + trace * (240 + 4 * made.samples.shape[1]) + 240 + 4 * sample
        return patched(place, struct.pack(made.order + "I", word))(made)

    return spoil


def zipped(made: Draft) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("survey.sgy", made.to_bytes())
    return buffer.getvalue()


def tarred(made: Draft) -> bytes:
    data, buffer = made.to_bytes(), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("survey.sgy")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def gzipped(made: Draft) -> bytes:
    return gzip.compress(made.to_bytes(), mtime=0)


def junk(head: bytes, size: int = 20_000, seed: int = 3) -> Spoil:
    """Random bytes after the beginning of some other file format."""
    return lambda _made: head + np.random.default_rng(seed).integers(0, 256, size - len(head), np.uint8).tobytes()


def repeated(text: bytes, size: int = 20_000) -> Spoil:
    return lambda _made: (text * (size // len(text) + 1))[:size]


def cut_into(*rows: Any) -> Spoil:
    """Several files of one survey."""

    def spoil(made: Draft) -> list[bytes]:
        parts = []
        for chosen in rows:
            part = Draft(**(vars(made) | {"headers": dict(made.headers)})).take(chosen)
            parts.append(part.to_bytes())
        return parts

    return spoil
