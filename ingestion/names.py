"""Names from outside, made safe for keys and paths, and words from outside, made safe to show."""

from __future__ import annotations

import hashlib
import re
import unicodedata

LONGEST_NAME = 200  # characters of who decided something,
LONGEST_REASON = 2000  # and of why

_ADVICE = {  # by what a store or the system says, in small letters
    "no space left": "make room there, or name another place, and run it again",
    "read-only file system": "name a place that can be written to",
    "permission denied": "whoever runs this must be allowed to read and write there",
    "operation not permitted": "whoever runs this must be allowed to read and write there",
    "accessdenied": "the credentials must allow to read and write there",
}
_SAFE = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


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


def printable_lines(text: str) -> str:
    """``printable``, in lines as they are: for a message of our own that has several."""
    return "\n".join(map(printable, text.split("\n")))


def store_words(error: object) -> str:
    """What a store said of an ``error``, without the lines for programmers that obstore adds to it."""
    return re.sub(r"^Generic \w+ error: ", "", str(error).partition("\n\nDebug source")[0].strip())


def store_message(error: object) -> str:
    """``store_words``, and what to do about it where that is known."""
    said = store_words(error)
    return "; ".join([said, *(advice for sign, advice in _ADVICE.items() if sign in said.lower())][:2])
