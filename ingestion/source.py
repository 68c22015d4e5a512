"""A SEG-Y file wherever it lies, read in ranges; what it was when reading began is kept, so that a swap is noticed."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from obstore.exceptions import BaseError

from ingestion.lake import Lake, split_uri
from ingestion.manifest import Finding

BLOCK_BYTES = 8 * 1024 * 1024  # of one sequential request
_HEAD_BYTES = 1024 * 1024  # of a file, asked for at once: its headers are looked at bit by bit
_AHEAD = 4  # such requests in flight


class HeldError(Exception):
    """The survey cannot be read any further; carries the findings that say why."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(f"{f.code}: {f.found}" for f in findings))
        self.findings = list(findings)


class SourceChangedError(Exception):
    """A file is not what it was when reading began: it is being uploaded or was replaced."""


def hold(code: str, found: str, expected: str, release: str, examples: list[str] | None = None) -> Finding:
    """A finding that holds the survey back."""
    return Finding(code=code, severity="hold", found=found, expected=expected, release=release, examples=examples or [])


class LocalCopy:
    """The bytes of a file as they were first read, from its start on, in the temporary folder (``TMPDIR``).

    It is filled by ``Source.blocks``, for one reader at a time, and vanishes with the process. Raises ``OSError`` when
    that folder has not twice the room.
    """

    def __init__(self, size: int) -> None:
        folder = tempfile.gettempdir()
        if shutil.disk_usage(folder).free < 2 * size:  # the table of traces needs some too
            raise OSError(f"{folder} has too little room for {size} bytes")
        self._file = tempfile.TemporaryFile(prefix="survey-")  # noqa: SIM115
        os.posix_fallocate(self._file.fileno(), 0, size)  # so that two at once do not fill the disk
        self.length = 0

    def append(self, start: int, data: memoryview) -> None:
        """Keep of ``data`` what comes next; a disk that fails ends the copy, not the reading."""
        new = data[self.length - start :] if start <= self.length else data[:0]
        with suppress(OSError):
            if os.pwrite(self._file.fileno(), new, self.length) == len(new):
                self.length += len(new)

    def read(self, start: int, length: int) -> memoryview | None:
        """These bytes; None when they are not all to be had here."""
        if start + length > self.length:
            return None
        with suppress(OSError):
            kept = os.pread(self._file.fileno(), length, start)
            return memoryview(kept) if len(kept) == length else None
        return None


@dataclass(frozen=True)
class Source:
    """One SEG-Y file."""

    lake: Lake
    key: str
    uri: str
    size: int
    etag: str | None
    modified: float
    local_copy: LocalCopy | None = None

    def with_local_copy(self) -> Source:
        """A source that asks a server for each byte once, where the temporary folder has room for a copy.

        Raises ``SourceChangedError``.
        """
        if not self.lake.remote:
            return self
        try:
            copy = LocalCopy(self.size)
        except OSError:
            return self
        copy.append(0, self.buffer(0, min(_HEAD_BYTES, self.size)))
        return replace(self, local_copy=copy)

    @property
    def name(self) -> str:
        """The file's name, as its owner wrote it."""
        return self.key.rpartition("/")[2]

    def read(self, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``. Raises ``SourceChangedError`` when the file is shorter now, or gone."""
        return bytes(self.buffer(start, length))

    def buffer(self, start: int, length: int) -> memoryview:
        """As ``read``, without a copy of what may be large."""
        if self.local_copy and (kept := self.local_copy.read(start, length)):
            return kept
        try:
            data = self.lake.buffer(self.key, start, length) if length else memoryview(b"")
        except (FileNotFoundError, BaseError):  # of a range beyond the end the stores say only that it is invalid
            self.check_unchanged()
            raise
        if len(data) != length:
            raise SourceChangedError(f"{self.uri}: {len(data)} bytes at {start}; expected {length}")
        return data

    def blocks(self, start: int, stop: int, block: int = BLOCK_BYTES) -> Iterator[memoryview]:
        """Bytes ``start`` to ``stop`` in order, ``block`` at a time, the next ones fetched meanwhile."""
        pending: deque[tuple[int, Future[memoryview]]] = deque()

        def first() -> memoryview:
            offset, read = pending.popleft()
            if self.local_copy:
                self.local_copy.append(offset, read.result())
            return read.result()

        with ThreadPoolExecutor(_AHEAD) as ahead:
            for offset in range(start, stop, block):
                pending.append((offset, ahead.submit(self.buffer, offset, min(block, stop - offset))))
                if len(pending) == _AHEAD:
                    yield first()
            while pending:
                yield first()

    def sha256(self) -> str:
        """Digest of the whole file. Raises ``SourceChangedError`` when it changes meanwhile."""
        digest = hashlib.sha256()
        for block in self.blocks(0, self.size):
            digest.update(block)
        self.check_unchanged()
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        """Raise ``SourceChangedError`` when size, ETag or age are no longer those at the start."""
        try:
            now = self.lake.head(self.key)
        except FileNotFoundError as error:
            raise SourceChangedError(f"{self.uri} has gone") from error
        if (now.size, now.etag, now.modified) != (self.size, self.etag, self.modified):
            raise SourceChangedError(f"{self.uri} was {self.size} bytes when reading began and is {now.size} now")


def open_source(uri: str) -> Source:
    """The file at ``uri`` (a path, ``file://`` or ``s3://``). Raises ``FileNotFoundError`` or ``LakeError``."""
    if "://" not in uri or uri.startswith("file://"):
        path = Path(unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri)
        if path.is_dir() or not path.parent.is_dir():
            raise FileNotFoundError(f"{uri} is no file")
        uri = uri if uri.startswith("file://") else str(path.absolute())  # said again from other folders
    lake, key = split_uri(uri)
    try:
        entry = lake.head(key)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{uri} does not exist") from error
    return Source(lake, key, uri, entry.size, entry.etag, entry.modified)
