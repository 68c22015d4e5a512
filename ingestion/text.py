"""The text headers of SEG-Y: 3200 bytes in EBCDIC or ASCII."""

from __future__ import annotations

from itertools import chain

TEXT_BYTES = 3200
_ASCII_TEXT = frozenset(chain(b"\t\n\r", range(0x20, 0x7F)))
_EBCDIC_TEXT = frozenset(
    byte for byte in range(256) if bytes([byte]).decode("cp037") in map(chr, _ASCII_TEXT) or byte == 0x25
)
_TEXT_SHARE = 0.95  # of the bytes that are not zero; a name in other letters may stand among them


def decode_text(text: bytes) -> str:
    """A text header as 40 lines of 80 printable characters; EBCDIC or ASCII by which one its spaces are."""
    ebcdic = text.count(0x40) > text.count(0x20)
    characters = text.decode("cp037" if ebcdic else "latin-1").ljust(TEXT_BYTES)
    clean = "".join(c if c.isprintable() else " " for c in characters)
    return "\n".join(clean[i : i + 80] for i in range(0, TEXT_BYTES, 80))


def looks_like_text(data: bytes) -> bool:
    """Whether what is written in ``data`` is text in ASCII or EBCDIC, as trace headers and samples never are."""
    written = data.replace(b"\0", b"")
    letters = max(sum(byte in known for byte in written) for known in (_ASCII_TEXT, _EBCDIC_TEXT))
    return bool(written) and letters >= _TEXT_SHARE * len(written)
