"""What a job leaves when it has ended: a folder with its script, log and result. On EKS it goes by itself."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from flows.launchers import Launcher, lives
from flows.launchers.local import LocalLauncher
from flows.launchers.slurm import SlurmLauncher, state_folder

_SIZE = re.compile(r"^(\d+)\s+(?:\./)?([0-9a-f]{32})$", re.MULTILINE)  # a line of du; a login shell may say more


def folder_of(place: Launcher, key: str) -> str:
    """Where the job under ``key`` left what it left; empty where such folders are nobody's care."""
    match place:
        case LocalLauncher():
            return str(place.folder(key))
        case SlurmLauncher():
            return state_folder(key, place.settings)
    return ""


def sizes(place: Launcher, keys: Sequence[str]) -> dict[str, int]:
    """Bytes in the folder of each of ``keys`` that has one. Raises ``LauncherError``."""
    folders = {key: Path(folder) for key in keys if (folder := folder_of(place, key))}
    if not isinstance(place, SlurmLauncher):
        return {key: _size(folder) for key, folder in folders.items() if folder.is_dir()}
    names = {folder.name: key for key, folder in folders.items()}
    answer = place.ask(
        f"cd {shlex.quote(place.settings.folder)} 2>/dev/null || exit 0; du -sk {' '.join(names)} 2>/dev/null || true",
        "the folder of jobs cannot be read",
    )
    return {names[name]: int(kib) * 1024 for kib, name in _SIZE.findall(answer) if name in names}


def forget(place: Launcher, key: str) -> bool:
    """Delete the folder of a job; False when that waits or runs. May be killed and done again.

    Raises ``LauncherError``.
    """
    match place:
        case LocalLauncher():
            return place.forget(key)
        case SlurmLauncher():
            if lives(place, key):
                return False
            folder = state_folder(key, place.settings)
            place.ask(f"rm -rf {shlex.quote(folder)}", f"{folder} cannot be deleted")
    return True


def _size(folder: Path) -> int:
    return sum(os.lstat(Path(where) / name).st_size for where, _, names in os.walk(folder) for name in names)
