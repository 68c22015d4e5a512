"""Old checkpoints that nobody needs any more; surveys, data sets, figures and reports are never touched."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta

from flows.week import outcome, outcome_key
from ingestion.lake import Entry, Lake
from ingestion.manifest import Contract, SafeName
from seismic_model.config import run_folder
from seismic_model.train import ConfigError, read_config
from seismic_model.training.checkpoint import folders as checkpoint_folders


class Old(Contract):
    """One checkpoint, or what a killed process left of one."""

    run: SafeName
    folder: str  # key prefix
    committed: bool
    objects: int
    size: int  # bytes


class Kept(Contract):
    """A run whose checkpoints stay, all or some, and why."""

    run: SafeName
    reason: str
    size: int  # bytes


class Found(Contract):
    """What can go, and what cannot."""

    old: list[Old]
    kept: list[Kept]


def look(lake: Lake, now: datetime, older: timedelta) -> Found:
    """Checkpoints of runs that ended ``older`` ago: not those in use, nor those that a living run began with.

    A registered checkpoint is in use (``in-use`` beside its manifest). Whatever its run's end, the checkpoint that a
    run without an outcome names as its start stays.
    """
    runs = lake.folders("runs")
    parents = {folder for run in runs if outcome(lake, run) is None for folder in _parent(lake, run)}
    old: list[Old] = []
    kept: list[Kept] = []
    for run in runs:
        folders, checkpoints = _checkpoints(lake, run), checkpoint_folders(lake, run)
        why = _stays(lake, run, now, older)
        for folder, entries in sorted(folders.items()):
            names = {entry.key.rpartition("/")[2] for entry in entries}
            size = sum(entry.size for entry in entries)
            step = folder.rpartition("/")[2]
            if why:
                kept.append(Kept(run=run, reason=why, size=size))
            elif folder not in checkpoints:
                kept.append(Kept(run=run, reason=f"{step} is no checkpoint's folder", size=size))
            elif "in-use" in names:
                kept.append(Kept(run=run, reason=f"{step} is in use", size=size))
            elif folder in parents:
                kept.append(Kept(run=run, reason=f"a living run began with {step}", size=size))
            else:
                committed = "manifest.json" in names
                old.append(Old(run=run, folder=folder, committed=committed, objects=len(entries), size=size))
    return Found(old=old, kept=_joined(kept))


def delete(lake: Lake, old: Old) -> None:
    """Delete one; its manifest first, so that half of it never looks whole. May be killed and done again."""
    lake.delete([f"{old.folder}/manifest.json"])
    lake.delete([entry.key for entry in lake.objects(old.folder)])


def _stays(lake: Lake, run: str, now: datetime, older: timedelta) -> str:
    if outcome(lake, run) is None:
        return "not finished: start its week again, or delete the run by hand"
    ended = datetime.fromtimestamp(lake.head(outcome_key(run)).modified, UTC)
    return f"finished only on {ended:%Y-%m-%d}" if now - ended < older else ""


def _parent(lake: Lake, run: str) -> list[str]:
    """The checkpoint that ``run`` began with."""
    try:
        init = read_config(lake.uri_of(f"{run_folder(run)}/config.json")).init
    except ConfigError:
        return []
    return [f"{run_folder(init.run)}/checkpoints/step-{init.step:08d}"] if init.run and init.step is not None else []


def _checkpoints(lake: Lake, run: str) -> dict[str, list[Entry]]:
    """Objects of each folder below ``checkpoints/``."""
    found: dict[str, list[Entry]] = defaultdict(list)
    root = f"{run_folder(run)}/checkpoints"
    for entry in lake.objects(root):
        found[f"{root}/{entry.key.removeprefix(f'{root}/').partition('/')[0]}"].append(entry)
    return dict(found)


def _joined(kept: list[Kept]) -> list[Kept]:
    """One line for each run and reason."""
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for each in kept:
        sizes[each.run, each.reason] += each.size
    return [Kept(run=run, reason=reason, size=size) for (run, reason), size in sizes.items()]
