"""Which models know a survey: runs whose frozen data set holds it, runs that began with the weights of such a run.

The lake tells of runs (``runs/*/config.json`` and the data sets these name), the MLflow registry of their versions and
aliases. Where no registry is named, what runs and decisions noted on the lake (``runs/*/outcome.json``, ``audit/``)
stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest, SafeName, Week
from ingestion.withdrawal import READERS
from seismic_model.config import RunConfig, run_folder
from seismic_model.data.dataset import Dataset, DatasetError, load_dataset
from seismic_model.registry import audit
from seismic_model.registry.versions import (
    CHALLENGER,
    CHAMPION,
    LAKE,
    PREVIOUS,
    RUN,
    STATUS,
    aliases,
    versions,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Registered(Contract):
    """One version in the registry."""

    version: str
    aliases: list[str]
    status: str

    @property
    def champion(self) -> bool:
        """Whether it is the one in use."""
        return CHAMPION in self.aliases


class Model(Contract):
    """One run that knows the survey."""

    run: SafeName
    week: Week | None  # of its data set
    digest: Digest | None  # of the survey in its data set; None when only its parent's data set holds it
    weight: float  # share of the crops that it trained on; 0: none, only scored on held-out places
    parent: SafeName | None  # the run whose weights it began with, when that one trained on the survey
    versions: list[Registered]  # champion first

    @property
    def trained(self) -> bool:
        """Whether its weights come from the survey, by itself or by its parent."""
        return self.weight > 0 or self.parent is not None

    @property
    def champion(self) -> bool:
        """Whether a version of it is the one in use."""
        return any(each.champion for each in self.versions)


class Lineage(Contract):
    """All models that know one survey, the champion first."""

    models: list[Model]
    registry_asked: bool  # else versions are what the lake notes of them
    unknown: list[str]  # what could not be read, so that nothing can be said of it


@dataclass
class _Runs:
    """What the lake says of all runs."""

    configs: dict[str, RunConfig] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)  # by key
    unknown: list[str] = field(default_factory=list)


def models_of(lake: Lake, survey: str, digest: str | None = None, client: MlflowClient | None = None) -> Lineage:
    """Every model that knows ``survey``, or that version of it.

    Args:
        lake: of the runs.
        survey: its identifier.
        digest: only this version; None: all.
        client: of the registry to ask (``versions.connect``); None: none, the lake's own notes are used.

    Raises ``MlflowException`` when the registry cannot be asked.
    """
    runs = _read_runs(lake)
    held = {run: entry for run in runs.configs if (entry := _entry(runs, run, survey, digest)) is not None}
    trained = {run for run, entry in held.items() if entry[1] > 0}
    parents = _descendants(runs.configs, trained)
    registered, unknown = _registered(lake, runs, client)
    found = [
        Model(
            run=run,
            week=_week(runs, run),
            digest=held[run][0] if run in held else None,
            weight=held[run][1] if run in held else 0.0,
            parent=parents.get(run),
            versions=registered.get(run, []),
        )
        for run in sorted(held.keys() | parents.keys())
    ]
    found.sort(key=lambda model: (not model.champion, not model.trained, not model.versions))
    return Lineage(models=found, registry_asked=client is not None, unknown=runs.unknown + unknown)


def _read_runs(lake: Lake) -> _Runs:
    found = _Runs()
    for run, config in _each(lambda name: _config(lake, name), lake.folders("runs")):
        if isinstance(config, RunConfig):
            found.configs[run] = config
        elif config:
            found.unknown.append(config)
    for key, dataset in _each(lambda key: _dataset(lake, key), sorted({c.dataset for c in found.configs.values()})):
        if isinstance(dataset, Dataset):
            found.datasets[key] = dataset
        else:
            users = ", ".join(run for run, config in found.configs.items() if config.dataset == key)
            found.unknown.append(f"{dataset} (data set of {users})")
    return found


def _each(act: Callable[[_In], _Out], items: Iterable[_In]) -> list[tuple[_In, _Out]]:
    listed = list(items)
    with ThreadPoolExecutor(READERS) as threads:
        return list(zip(listed, threads.map(act, listed), strict=True))


def _config(lake: Lake, run: str) -> RunConfig | str | None:
    """The config of a run; why it cannot be read; None for a folder that is no run."""
    key = f"{run_folder(run)}/config.json"
    try:
        return RunConfig.model_validate_json(lake.read(key))
    except FileNotFoundError:
        return None
    except ValidationError:
        return f"{lake.uri_of(key)} is no config that this version reads"


def _dataset(lake: Lake, key: str) -> Dataset | str:
    try:
        return load_dataset(lake, key)
    except DatasetError as error:
        return str(error)


def _entry(runs: _Runs, run: str, survey: str, digest: str | None) -> tuple[str, float] | None:
    """Digest and weight of the survey in the run's data set."""
    dataset = runs.datasets.get(runs.configs[run].dataset)
    for entry in dataset.surveys if dataset else []:
        if entry.survey == survey and digest in (None, entry.digest):
            return entry.digest, entry.weight
    return None


def _week(runs: _Runs, run: str) -> str | None:
    dataset = runs.datasets.get(runs.configs[run].dataset)
    return dataset.week if dataset else None


def _descendants(configs: Mapping[str, RunConfig], trained: set[str]) -> dict[str, str]:
    """Runs that began with weights of ``trained`` ones, or of their descendants: the parent of each."""
    found: dict[str, str] = {}
    tainted = set(trained)
    while new := {
        run: config.init.run
        for run, config in configs.items()
        if run not in found and config.init.run is not None and config.init.run in tainted
    }:
        found |= new
        tainted |= new.keys()
    return found


def _registered(lake: Lake, runs: _Runs, client: MlflowClient | None) -> tuple[dict[str, list[Registered]], list[str]]:
    """Versions by run, champion first; and versions whose run the lake does not hold."""
    rows = _noted(lake, runs) if client is None else _asked(lake, client)
    found: dict[str, list[Registered]] = {}
    for run, row in rows:
        found.setdefault(run, []).append(row)
    for each in found.values():
        each.sort(key=lambda row: (not row.champion, not row.aliases))
    lost = [
        f"version {row.version}{' (@' + ', @'.join(row.aliases) + ')' if row.aliases else ''} comes from run "
        f"{run}, which this lake does not hold"
        for run, each in found.items()
        if run not in runs.configs
        for row in each
    ]
    return found, lost


def _asked(lake: Lake, client: MlflowClient) -> list[tuple[str, Registered]]:
    now = aliases(client)
    return [
        (
            _origin(lake, each.tags),
            Registered(
                version=str(each.version),
                aliases=sorted(alias for alias, number in now.items() if number == str(each.version)),
                status=each.tags.get(STATUS, "not from a weekly run"),
            ),
        )
        for each in versions(client)
    ]


def _origin(lake: Lake, tags: Mapping[str, str]) -> str:
    """The run that a version comes from; on another lake runs of the same name are others."""
    run, where = tags.get(RUN, "(not said)"), tags.get(LAKE, lake.uri)
    return run if where == lake.uri else f"{run} on {where}"


def _noted(lake: Lake, runs: _Runs) -> list[tuple[str, Registered]]:
    """What outcomes and decisions on the lake say of versions."""
    log = audit.entries(lake)
    now = _aliases_after(log[-1]) if log else {}
    numbers = [(run, number) for run, number in _each(lambda run: _version(lake, run), runs.configs) if number]
    said = {entry.version: entry.action for entry in log}
    return [
        (
            run,
            Registered(
                version=number,
                aliases=sorted(alias for alias, version in now.items() if version == number),
                status=f"last: {said[number]}" if number in said else "not decided",
            ),
        )
        for run, number in numbers
    ]


def _version(lake: Lake, run: str) -> str | None:
    try:
        number = lake.read_json(f"{run_folder(run)}/outcome.json").get("version")
    except (FileNotFoundError, ValueError, AttributeError):
        return None
    return str(number) if number else None


def _aliases_after(entry: audit.AuditEntry) -> dict[str, str]:
    """What the aliases were after the last decision, as far as the log tells."""
    now = dict(entry.aliases_before)
    match entry.action:
        case "register":
            now[CHALLENGER] = entry.version
        case "approve":
            now |= {PREVIOUS: now[CHAMPION]} if CHAMPION in now else {}
            now[CHAMPION] = entry.version
            now.pop(CHALLENGER, None)
        case "reject":
            now.pop(CHALLENGER, None)
        case "rollback":
            now.pop(CHAMPION, None)
            if PREVIOUS in now:
                now[CHAMPION] = now.pop(PREVIOUS)
        case "retire":
            now.pop(CHAMPION, None)
            now.pop(PREVIOUS, None)
    return now
