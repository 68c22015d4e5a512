"""Which checkpoints of a run stay: the newest ``checkpoints_kept``, and those that are in use elsewhere."""

from __future__ import annotations

import logging

from obstore.exceptions import BaseError

from ingestion.lake import Lake
from seismic_model.training.checkpoint import CheckpointManifest, committed, folders

logger = logging.getLogger(__name__)

_IN_USE = "in-use"  # a file in the folder of a checkpoint that is not to go


def protect(lake: Lake, manifest: CheckpointManifest, why: str) -> None:
    """Keep a checkpoint for ever, whatever its run does later."""
    lake.write(f"{manifest.folder}/{_IN_USE}", why.encode())


def forget(lake: Lake, newest: CheckpointManifest) -> None:
    """Delete what the commit of ``newest`` makes superfluous: old checkpoints, and what killed processes left.

    Folders after ``newest`` are left alone: another process may be writing one. A lake that refuses is no fault of the
    checkpoint: the next commit tries again.
    """
    try:
        _forget(lake, newest)
    except BaseError as error:
        logger.warning("old checkpoints of %s could not be deleted: %s", newest.run, str(error).splitlines()[0])


def _forget(lake: Lake, newest: CheckpointManifest) -> None:
    kept = newest.config.checkpoints_kept
    unprotected = [old for old in committed(lake, newest.run)[:-kept] if not lake.exists(f"{old.folder}/{_IN_USE}")]
    for old in unprotected:
        lake.delete([f"{old.folder}/manifest.json"])  # first: half a checkpoint must not look like one
    named = {f"{newest.folder}/{name}" for name in ("manifest.json", _IN_USE, *newest.files)}
    for folder in folders(lake, newest.run):
        keys = {entry.key for entry in lake.objects(folder)}
        uncommitted = folder < newest.folder and f"{folder}/manifest.json" not in keys
        if uncommitted or folder == newest.folder:
            lake.delete(sorted(keys - named))
