"""What nobody needs any more: old checkpoints, what ended jobs left, old copies of the registry.

Surveys, data sets, figures, reports, configs and decisions are never touched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from pydantic import ValidationError

from flows import mlflow_backup
from flows.launchers import Launcher
from flows.launchers.remains import folder_of, forget, sizes
from flows.pause import paused
from flows.training import job_key, runs_now
from flows.week import begun_key, outcome, outcome_key
from ingestion.lake import Entry, Lake
from ingestion.manifest import Contract
from ingestion.names import safe_identifier
from seismic_model.config import run_folder
from seismic_model.registry.audit import AuditEntry
from seismic_model.train import ConfigError, read_config
from seismic_model.training.checkpoint import checkpoint_folder
from seismic_model.training.checkpoint import folders as checkpoint_folders
from seismic_model.training.lease import holder


class Old(Contract):
    """One thing that can go."""

    kind: Literal["checkpoint", "job", "backup"]
    folder: str  # key prefix on the lake; a job's: path where it ran
    note: str  # for people; may be empty
    size: int  # bytes
    run: str = ""  # of a checkpoint or job
    place: str = ""  # of a job


class Kept(Contract):
    """What stays of a run, and why."""

    run: str
    reason: str
    size: int  # bytes


class Found(Contract):
    """What can go, and what cannot."""

    old: list[Old]
    kept: list[Kept]


@dataclass(frozen=True)
class Rules:
    """What is old, and where jobs may be."""

    now: datetime
    older: timedelta  # since a run's end; of a copy of the registry
    abandoned: timedelta  # since anything of an unfinished run moved
    places: Mapping[str, Launcher]  # by name


def look(lake: Lake, rules: Rules) -> Found:
    """What can go by ``rules``; nothing is changed.

    Checkpoints and jobs of runs that ended long ago, and of unfinished ones that nothing was heard of for longer still;
    not checkpoints in use (``in-use`` beside the manifest: the registered ones), nor those that an unfinished run names
    as its start, nor anything of the champion's run, its challenger's and its predecessor's. Raises ``LauncherError``.
    """
    runs = [run for run in lake.folders("runs") if safe_identifier(run) == run]  # others are no runs of ours
    parents = {folder for run in runs if not lake.exists(outcome_key(run)) for folder in _parent(lake, run)}
    why = {run: _stays(lake, run, rules) for run in runs}
    old: list[Old] = []
    kept: list[Kept] = []
    for run in runs:
        known = checkpoint_folders(lake, run)
        for folder, entries in sorted(_checkpoints(lake, run).items()):
            names, step = {entry.key.rpartition("/")[2] for entry in entries}, folder.rpartition("/")[2]
            size = sum(entry.size for entry in entries)
            if why[run]:
                kept.append(Kept(run=run, reason=why[run], size=size))
            elif folder not in known:
                kept.append(Kept(run=run, reason=f"{step} is no checkpoint's folder", size=size))
            elif "in-use" in names:
                kept.append(Kept(run=run, reason=f"{step} is in use", size=size))
            elif folder in parents:
                kept.append(Kept(run=run, reason=f"an unfinished run began with {step}", size=size))
            else:
                note = "" if "manifest.json" in names else "left by a killed process"
                old.append(Old(kind="checkpoint", folder=folder, note=note, size=size, run=run))
    over = [run for run in runs if not why[run]]
    copies = mlflow_backup.superfluous(lake, rules.now, rules.older)
    old += _jobs(lake, over, rules)
    old += [Old(kind="backup", folder=folder, note=note, size=size) for folder, note, size in copies]
    return Found(old=old, kept=_joined(kept))


def delete(lake: Lake, old: Old, rules: Rules) -> bool:
    """Delete one that ``look`` found; False when it is needed again. May be killed and done again.

    What makes it whole goes first, so that half of it never looks whole. Raises ``LauncherError``.
    """
    if old.run and _stays(lake, old.run, rules):
        return False
    if old.kind == "job":
        return forget(rules.places[old.place], job_key(lake, old.run))
    keys = [entry.key for entry in lake.objects(old.folder)]
    if f"{old.folder}/in-use" in keys:
        return False
    lake.delete([f"{old.folder}/manifest.json", f"{old.folder}/backup.json"])
    lake.delete(keys)
    return True


def _stays(lake: Lake, run: str, rules: Rules) -> str:
    """Why nothing of ``run`` may go yet; empty when it may."""
    try:
        ended = _time(lake.head(outcome_key(run)))
    except FileNotFoundError:
        return _lives(lake, run, rules)
    return f"finished only on {ended:%Y-%m-%d}" if rules.now - ended < rules.older else _registered(lake, run)


def _lives(lake: Lake, run: str, rules: Rules) -> str:
    """Why an unfinished run may still be wanted; empty when it is abandoned."""
    held = holder(lake)
    if held and held.owner == run and held.holds(rules.now.timestamp()):
        return "it trains"
    moved = max(map(_time, lake.objects(run_folder(run))), default=rules.now)
    if week := re.match(r"\d{4}-w\d\d", run):
        moved = max([moved, *(_time(each) for each in _there(lake, begun_key(week[0].upper())))])
    if rules.now - moved < rules.abandoned:
        return f"not finished, moved last on {moved:%Y-%m-%d}: start its week again"
    if pause := paused(lake):
        return f"not finished, and {pause}"
    where = [name for name, place in rules.places.items() if runs_now(lake, run, place)]
    return f"not finished, and its job waits or runs ({where[0]})" if where else ""


def _registered(lake: Lake, run: str) -> str:
    """Says so when a version that has an alias, or lost it by the last decision, comes from ``run``."""
    try:
        ended = outcome(lake, run)
    except ValidationError:
        return "its outcome.json is none of this version"
    newest = max((entry.key for entry in lake.objects("audit")), default=None)
    if ended is None or ended.version is None or newest is None:
        return ""
    last = AuditEntry.model_validate_json(lake.read(newest))
    found = ended.version in (last.version, *last.aliases_before.values())
    return f"version {ended.version} of the registry comes from it" if found else ""


def _jobs(lake: Lake, runs: list[str], rules: Rules) -> list[Old]:
    keys = {job_key(lake, run): run for run in runs}
    return [
        Old(kind="job", folder=folder_of(place, key), note=f"job of {keys[key]}", size=size, run=keys[key], place=name)
        for name, place in rules.places.items()
        for key, size in sorted(sizes(place, list(keys)).items())
    ]


def _parent(lake: Lake, run: str) -> list[str]:
    """The checkpoint that ``run`` began with."""
    try:
        init = read_config(lake.uri_of(f"{run_folder(run)}/config.json")).init
    except ConfigError:
        return []
    return [checkpoint_folder(init.run, init.step)] if init.run and init.step is not None else []


def _checkpoints(lake: Lake, run: str) -> dict[str, list[Entry]]:
    """Objects of each folder below ``checkpoints/``."""
    found: dict[str, list[Entry]] = defaultdict(list)
    root = f"{run_folder(run)}/checkpoints"
    for entry in lake.objects(root):
        found[f"{root}/{entry.key.removeprefix(f'{root}/').partition('/')[0]}"].append(entry)
    return dict(found)


def _there(lake: Lake, key: str) -> list[Entry]:
    try:
        return [lake.head(key)]
    except FileNotFoundError:
        return []


def _time(entry: Entry) -> datetime:
    return datetime.fromtimestamp(entry.modified, UTC)


def _joined(kept: list[Kept]) -> list[Kept]:
    """One line for each run and reason."""
    by_reason: dict[tuple[str, str], int] = defaultdict(int)
    for each in kept:
        by_reason[each.run, each.reason] += each.size
    return [Kept(run=run, reason=reason, size=size) for (run, reason), size in by_reason.items()]
