"""A published survey back to SEG-Y: the bytes of the files that it came from, where the format allows.

Text, binary and trace headers, the order of the traces and what lies around them were kept. What no volume holds is
written otherwise: samples of dead traces and traces that the survey spec dropped as zeros, of averaged traces the
first as their mean and the others as zeros. Whether a file is the same as its source is told by its SHA-256, which is
in the manifest.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ingestion.lake import Lake, LakeError
from ingestion.manifest import Contract, Digest, Manifest, SourceFile
from ingestion.names import printable
from ingestion.preflight.scan import Raw
from ingestion.segy.samples import SAMPLE_BYTES, TRACE_HEADER_BYTES, Order, encode
from ingestion.spec import SampleFormat
from ingestion.volume.cell_arrays import stored_headers
from ingestion.volume.conversion import Progress
from ingestion.volume.mdio_layout import AFTER_TRACES, AMPLITUDE, BEFORE_TRACES, stored_array
from ingestion.volume.tiles import Tile, tiles
from ingestion.volume.verification import verify


class ExportedFile(Contract):
    """One SEG-Y file that was written."""

    path: str
    size: int  # bytes
    sha256: Digest
    same_as_source: bool


def export(lake: Lake, manifest: Manifest, folder: Path, progress: Progress) -> list[ExportedFile]:
    """Write the SEG-Y files of a published survey into ``folder``, under the names that they had.

    Raises ``FileExistsError`` when a file of that name is there, ``LakeError`` when objects of the volume are damaged
    or lost. Memory is bounded by two tiles; a file appears under its name when it is whole. What a killed export
    leaves is named ``export-….part`` and hinders no other.
    """
    folder.mkdir(parents=True, exist_ok=True)
    targets = [folder / name for name in _names(manifest)]
    for target in targets:
        _refuse_there(target)
    written: list[ExportedFile] = []
    try:
        kept = _kept_of_files(lake, manifest, _trace_bytes(manifest))
        for source, around, target in zip(manifest.sources, kept, targets, strict=True):
            written.append(_File(lake, manifest, source, around).write(target, progress))
    except (RuntimeError, ValueError):  # what is stored there no codec reads
        _refuse_damaged(lake, manifest, written, progress)
        raise
    if not all(file.same_as_source for file in written):
        _refuse_damaged(lake, manifest, written, progress)
    return written


def _refuse_there(target: Path) -> None:
    if target.exists():
        raise FileExistsError(f"{printable(str(target))} exists and is not overwritten; give another folder")


def _refuse_damaged(lake: Lake, manifest: Manifest, written: list[ExportedFile], progress: Progress) -> None:
    """Take away what was written of a volume that is not what was published: lost chunks were read as zeros."""
    condition = verify(lake, manifest, progress)
    if condition.whole:
        return
    for file in written:
        if not file.same_as_source:
            Path(file.path).unlink(missing_ok=True)
    count = len(condition.lost) + len(condition.changed) + len(condition.unlisted)
    raise LakeError(
        f"{manifest.folder} is damaged in {count} object(s), and no file is written from it; "
        f"`survey verify {manifest.survey}` names them"
    )


class _Kept(NamedTuple):
    """What was kept of one file beside its traces, and which these are."""

    before: npt.NDArray[np.uint8]
    after: npt.NDArray[np.uint8]
    first: int  # trace of the survey
    traces: int


def _kept_of_files(lake: Lake, manifest: Manifest, trace_bytes: int) -> list[_Kept]:
    """Of all files, in order. Raises ``LakeError`` when the bytes before the traces of one were not kept."""
    store, found, first = _store(manifest), [], 0
    for number, source in enumerate(manifest.sources):
        before, after = (
            np.asarray(_array(lake, store, name.format(number))[...]) for name in (BEFORE_TRACES, AFTER_TRACES)
        )
        if not len(before):  # then nothing tells where the traces begin
            raise LakeError(f"{store}: the bytes before the traces were too many to keep, so no SEG-Y can be written")
        traces = (source.size - len(before) - len(after)) // trace_bytes
        found.append(_Kept(before, after, first, traces))
        first += traces
    return found


def _store(manifest: Manifest) -> str:
    return f"{manifest.folder}/{manifest.volume.path}"


class _File:
    """One of the files of a survey."""

    def __init__(self, lake: Lake, manifest: Manifest, source: SourceFile, kept: _Kept) -> None:
        self.lake, self.manifest, self.source = lake, manifest, source
        self.store = _store(manifest)
        self.order, self.format = _described(manifest.source_format)
        self.trace_bytes = _trace_bytes(manifest)
        self.before, self.after, self.first, self.traces = kept

    def write(self, target: Path, progress: Progress) -> ExportedFile:
        """Write the file; its digest."""
        unfinished = target.with_name(f"export-{secrets.token_hex(8)}.part")  # its own: another may write the same file
        try:
            with unfinished.open("x+b") as file:
                os.posix_fallocate(file.fileno(), 0, self.source.size)  # a full disk says so here, else by SIGBUS
                self._write_mapped(file.fileno(), progress)
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            _refuse_there(target)
            unfinished.rename(target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return ExportedFile(
            path=str(target), size=self.source.size, sha256=digest, same_as_source=digest == self.source.sha256
        )

    def _write_mapped(self, descriptor: int, progress: Progress) -> None:
        mapped = mmap.mmap(descriptor, self.source.size)  # closed with its last view: no error hides another
        whole = np.frombuffer(mapped, np.uint8)
        whole[: len(self.before)] = self.before
        whole[len(whole) - len(self.after) :] = self.after
        body = whole[len(self.before) :][: self.traces * self.trace_bytes]
        for _ in self._fill(body.reshape(self.traces, self.trace_bytes), progress):
            mapped.madvise(mmap.MADV_DONTNEED)

    def _fill(self, traces_NB: Raw, progress: Progress) -> Iterator[None]:
        """Put every stored trace at its place, tile by tile."""
        amplitude, number = (_array(self.lake, self.store, name) for name in (AMPLITUDE, "trace_number"))
        parts = list(tiles(self.manifest.shape))
        for done, tile in enumerate(parts):
            progress("exporting", done, len(parts))
            row_C = np.asarray(number[tile.cells]).ravel() - 1 - self.first
            mine_C = (row_C >= 0) & (row_C < self.traces)
            if not mine_C.any():
                continue
            if tile.samples.start == 0:
                headers_CB = stored_headers(self.lake, self.store, tile, self.order)
                traces_NB[row_C[mine_C], :TRACE_HEADER_BYTES] = headers_CB[mine_C]
            samples_CZ = np.asarray(amplitude[tile.box]).reshape(len(row_C), -1)[mine_C]
            traces_NB[row_C[mine_C], self._columns(tile)] = encode(
                np.nan_to_num(samples_CZ, nan=0.0), self.format, self.order
            )
            yield

    def _columns(self, tile: Tile) -> slice:
        width = SAMPLE_BYTES[self.format]
        return slice(TRACE_HEADER_BYTES + tile.samples.start * width, TRACE_HEADER_BYTES + tile.samples.stop * width)


def _array(lake: Lake, store: str, name: str) -> npt.NDArray[np.generic]:
    try:
        return stored_array(lake, store, name)  # type: ignore[return-value]  # what it is used for is an array's
    except FileNotFoundError as error:
        raise LakeError(
            f"{store} holds no {name}: it was published by a version that kept too little to write SEG-Y; "
            "ingest the survey again"
        ) from error


def _trace_bytes(manifest: Manifest) -> int:
    _, sample_format = _described(manifest.source_format)
    return TRACE_HEADER_BYTES + manifest.sample.count * SAMPLE_BYTES[sample_format]


def _described(source_format: str) -> tuple[Order, SampleFormat]:
    """Byte order and sample format out of "big ibm"."""
    order, _, name = source_format.partition(" ")
    formats = {str(known): known for known in SAMPLE_BYTES}
    return (">" if order == "big" else "<"), formats[name]


def _names(manifest: Manifest) -> list[str]:
    """Of all files, as they were called; with a number before those that were called alike."""
    plain = [_plain(source.original_name) for source in manifest.sources]
    return [f"{n}-{name}" if plain.count(name) > 1 else name for n, name in enumerate(plain, 1)]


def _plain(name: str) -> str:
    return name if name not in ("", ".", "..") and not set("/\\\0") & set(name) else "survey.sgy"
