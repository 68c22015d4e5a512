"""Makes SEG-Y bytes for tests, true to the standard or wrong in one chosen way."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

KINDS = {1: "u4", 2: "i4", 3: "i2", 5: "f4", 8: "i1"}  # format code: stored type
FIELDS = {  # first byte, type; by the SEG-Y rev 1 standard
    "sequence": (1, "i4"),
    "at_9": (9, "i4"),
    "at_13": (13, "i4"),
    "at_17": (17, "i4"),
    "at_21": (21, "i4"),
    "trace_id": (29, "i2"),
    "offset": (37, "i4"),
    "scalar": (71, "i2"),
    "source_x": (73, "i4"),
    "source_y": (77, "i4"),
    "coordinate_unit": (89, "i2"),
    "delay": (109, "i2"),
    "count": (115, "u2"),
    "interval": (117, "u2"),
    "x": (181, "i4"),
    "y": (185, "i4"),
    "inline": (189, "i4"),
    "crossline": (193, "i4"),
    "times_scalar": (215, "i2"),
    "at_221": (221, "i4"),
    "at_225": (225, "i4"),
}


def encode_ibm(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    """Normalised IBM words; exact for values of at most 21 significant bits."""
    mantissa, exponent = np.frexp(np.abs(np.where(np.isfinite(values), values, 0)))
    power = -(-exponent // 4)
    fraction = np.round(np.ldexp(mantissa, exponent - 4 * power + 24)).astype(np.uint64)
    words = (np.where(values < 0, 0x80, 0) + power + 64).astype(np.uint64) << np.uint64(24) | fraction
    return np.where(values == 0, 0, words).astype(np.uint32)


@dataclass
class Draft:
    """A SEG-Y file that a test can still spoil: change ``headers``, ``samples`` or a field, then take ``to_bytes``."""

    samples: npt.NDArray[Any]  # (traces, samples)
    headers: dict[str, npt.NDArray[Any]]
    order: str = ">"
    code: int = 5
    interval: int = 4000
    count: int | None = None  # default: that of the samples
    revision: bytes = b"\x01\x00"
    extended: int = 0
    extended_texts: list[str] = field(default_factory=list)
    text: str = "C 1 A MADE SURVEY"
    ascii_text: bool = False
    binary: dict[int, tuple[str, float]] = field(default_factory=dict)  # byte from 3201 as 1: (struct kind, value)
    trailer: bytes = b""
    header_order: str | None = None  # byte order of the trace headers, where it is not that of the file
    sample_order: str | None = None  # and of the samples

    def __len__(self) -> int:
        return len(self.samples)

    def take(self, order: Any) -> Draft:
        """The traces in another order, or some of them only."""
        self.samples = self.samples[order]
        self.headers = {name: values[order] for name, values in self.headers.items()}
        return self

    def to_bytes(self) -> bytes:
        text = _text(self.text, self.ascii_text)
        binary = bytearray(400)
        count = self.samples.shape[1] if self.count is None else self.count
        for byte, (kind, value) in {17: ("H", self.interval), 21: ("H", count), 25: ("H", self.code)}.items():
            struct.pack_into(self.order + kind, binary, byte - 1, value)
        binary[300:302] = self.revision
        struct.pack_into(self.order + "h", binary, 304, self.extended)
        for byte, (kind, value) in self.binary.items():
            struct.pack_into(self.order + kind, binary, byte - 1, value)
        more = b"".join(_text(extra, self.ascii_text) for extra in self.extended_texts)
        return text + bytes(binary) + more + self._traces() + self.trailer

    def _traces(self) -> bytes:
        header = np.dtype(
            {
                "names": list(FIELDS),
                "formats": [(self.header_order or self.order) + kind for _, kind in FIELDS.values()],
                "offsets": [byte - 1 for byte, _ in FIELDS.values()],
                "itemsize": 240,
            }
        )
        kind = np.dtype((self.sample_order or self.order) + KINDS.get(self.code, "f4"))
        traces = np.zeros(len(self), [("header", header), ("samples", kind, (self.samples.shape[1],))])
        for name, values in self.headers.items():
            traces["header"][name] = values
        traces["samples"] = encode_ibm(self.samples.astype(np.float64)) if self.code == 1 else self.samples
        return traces.tobytes()


def draft(
    shape: tuple[int, int, int] = (6, 7, 20),
    *,
    inlines: tuple[int, int] = (100, 1),
    crosslines: tuple[int, int] = (300, 1),
    scalar: int = -100,
    bins: tuple[float, float] = (25.0, 12.5),
    seed: int = 0,
    **fields: Any,
) -> Draft:
    """A clean survey of ``shape``, inline by inline; ``inlines`` and ``crosslines`` are (first, step).

    Samples are multiples of 1/8 within ±4096, so that all formats but the integers hold them exactly;
    ``integers(draft)`` rounds them. Coordinates are on a grid turned by the 3-4-5 triangle.
    """
    count_i, count_x, count_z = shape
    i, x = (axis.ravel() for axis in np.mgrid[:count_i, :count_x])
    generator = np.random.default_rng(seed)
    samples = np.round(generator.normal(0, 300, (len(i), count_z)) * 8).clip(-32768, 32767) / 8
    east = 450_000 + 0.8 * bins[0] * i + 0.6 * bins[1] * x
    north = 6_200_000 - 0.6 * bins[0] * i + 0.8 * bins[1] * x
    factor = -scalar if scalar < 0 else 1 / (scalar or 1)
    made = Draft(samples.astype(np.float32), {}, **fields)
    made.headers = {
        "sequence": np.arange(1, len(i) + 1),
        "trace_id": np.ones(len(i), int),
        "scalar": np.full(len(i), scalar),
        "count": np.full(len(i), count_z),
        "interval": np.full(len(i), made.interval),
        "delay": np.zeros(len(i), int),
        "offset": np.zeros(len(i), int),
        "x": np.round(east * factor).astype(int),
        "y": np.round(north * factor).astype(int),
        "inline": inlines[0] + inlines[1] * i,
        "crossline": crosslines[0] + crosslines[1] * x,
    }
    return made


def _text(text: str, ascii_text: bool) -> bytes:
    lines = "".join(line.ljust(80)[:80] for line in text.split("\n")).ljust(3200)[:3200]
    return lines.encode("latin-1" if ascii_text else "cp037", "replace")
