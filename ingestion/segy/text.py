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
    ascii_spaces, ebcdic_spaces = _spaces(text)
    characters = text.decode("cp037" if ebcdic_spaces > ascii_spaces else "latin-1").ljust(TEXT_BYTES)
    clean = "".join(c if c.isprintable() else " " for c in characters)
    return "\n".join(clean[i : i + 80] for i in range(0, TEXT_BYTES, 80))


def text_notes(text: bytes) -> list[str]:
    """What to say where the encoding that ``decode_text`` takes is hardly likelier than the other one."""
    ascii_spaces, ebcdic_spaces = _spaces(text)
    if not any(text) or max(ascii_spaces, ebcdic_spaces) > 2 * min(ascii_spaces, ebcdic_spaces):
        return []
    read, other = ("EBCDIC", "ASCII") if ebcdic_spaces > ascii_spaces else ("ASCII", "EBCDIC")
    most, least = max(ascii_spaces, ebcdic_spaces), min(ascii_spaces, ebcdic_spaces)
    return [f"text header read as {read}; it may be {other} ({most} spaces against {least})"]


def _spaces(text: bytes) -> tuple[int, int]:
    """Spaces in ASCII and in EBCDIC; whichever there are more of gives the encoding away."""
    return text.count(0x20), text.count(0x40)


def looks_like_text(data: bytes) -> bool:
    """Whether what is written in ``data`` is text in ASCII or EBCDIC, as trace headers and samples never are."""
    written = data.replace(b"\0", b"")
    letters = max(sum(byte in known for byte in written) for known in (_ASCII_TEXT, _EBCDIC_TEXT))
    return bool(written) and letters >= _TEXT_SHARE * len(written)
