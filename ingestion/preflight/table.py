"""One value a trace and column, on disk, so that a survey of any number of traces fits into little memory."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


class Table:
    """Columns of equal length in files of the temporary folder (``TMPDIR``) that vanish with the process.

    Raises ``OSError`` when that has too little room: a mapping on a full disk would end the process without a word.
    """

    def __init__(self, rows: int, columns: Mapping[str, str]) -> None:
        self.rows = rows
        self._maps: list[mmap.mmap] = []
        self._columns: dict[str, npt.NDArray[Any]] = {}
        folder, size = tempfile.gettempdir(), rows * sum(np.dtype(kind).itemsize for kind in columns.values())
        if (free := shutil.disk_usage(folder).free) < size:
            raise OSError(f"{folder} has {free} bytes free, {rows} traces need {size}; let TMPDIR name another folder")
        for name, kind in columns.items():
            dtype = np.dtype(kind)
            with tempfile.TemporaryFile(prefix="survey-") as file:  # its mapping outlives its name
                os.posix_fallocate(file.fileno(), 0, rows * dtype.itemsize)  # others fill the disk meanwhile
                self._maps.append(mmap.mmap(file.fileno(), rows * dtype.itemsize))
            self._columns[name] = np.frombuffer(self._maps[-1], dtype)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]

    def forget(self) -> None:
        """Give the memory of what was read and written back; nothing is lost, it lies in the files."""
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)
