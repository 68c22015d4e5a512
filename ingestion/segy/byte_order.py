"""In which byte order a SEG-Y file is written, and whether all of it is."""

from __future__ import annotations

import struct

from ingestion.segy.samples import Order
from ingestion.source import HeldError, hold
from ingestion.spec import SurveySpec


def file_order(binary: bytes, spec: SurveySpec, notes: list[str]) -> Order:
    """By the spec, else by the rev 2 byte order mark, else by the order in which the format code is one."""
    if spec.endianness is not None:
        return ">" if spec.endianness == "big" else "<"
    mark = binary[96:100]
    if mark in (b"\x01\x02\x03\x04", b"\x04\x03\x02\x01"):
        return ">" if mark[0] == 1 else "<"
    orders: tuple[Order, Order] = (">", "<")
    codes = {order: header_number(binary, 25, "H", order) for order in orders}
    known = [order for order, code in codes.items() if 1 <= code <= 16]
    if len(known) == 1:
        if known[0] == "<":
            notes.append("read as little endian, for only so is the format code one (bytes 3225-3226); no mark says it")
        return known[0]
    if codes[">"] == 0:
        raise HeldError(
            hold(
                "sample-format-unknown",
                "sample format code 0 (bytes 3225-3226), so neither format nor byte order can be read",
                "a format code of the SEG-Y standard",
                "write `sample_format` and `endianness` into the survey spec, or take the file away if it is no SEG-Y",
            )
        )
    raise HeldError(
        hold(
            "not-segy",
            f"sample format code {codes['>']} big endian, {codes['<']} little endian (bytes 3225-3226)",
            "a code from 1 to 16 in one of the two byte orders",
            "take the file away when it is no SEG-Y; else write `sample_format` and `endianness` into the survey spec",
        )
    )


def order_name(order: Order) -> str:
    """``big`` or ``little``."""
    return "big" if order == ">" else "little"


def header_number(data: bytes, byte: int, kind: str, order: Order) -> int:
    """The field that starts at ``byte`` (from 1) of ``data``; 0 where ``data`` ends before it."""
    offset = byte - 1
    if offset + struct.calcsize(kind) > len(data):
        return 0
    return int(struct.unpack_from(order + kind, data, offset)[0])


def headers_are_swapped(headers: list[bytes], order: Order, samples: int) -> bool:
    """Whether trace ``headers`` (240 bytes each) are of the other byte order than the file header.

    A sample count (bytes 115-116) that is the swapped one of the file header decides; else the numbers of traces and
    lines do, which are small in one order and beyond 2**24 in the other.
    """
    other = "<" if order == ">" else ">"
    for header in headers:
        count = struct.unpack_from(order + "H", header, 114)[0]
        if count not in (0, samples) and struct.unpack_from(other + "H", header, 114)[0] == samples:
            return True
    votes = [0, 0]
    for header in headers:
        for byte in (1, 5, 9, 13, 17, 21, 189, 193):
            here, there = (abs(struct.unpack_from(each + "i", header, byte - 1)[0]) for each in (order, other))
            votes[0] += here < 1 << 24 <= there
            votes[1] += there < 1 << 24 <= here
    return votes[0] == 0 and votes[1] >= 3
