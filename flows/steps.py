"""What the steps of the weekly flow do with a data set and a run; surveys are in ``flows.surveys``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.budget import BudgetError, check_budget, cost
from flows.cards import Training
from flows.launchers import LauncherError, launcher
from flows.notify import notices, notify
from flows.pause import paused
from flows.planning import configured, draft_of, resolved
from flows.report import Summary, WeekResult, kept, publish
from flows.settings import SettingsError, read_settings
from flows.surveys import outcomes_of, publish_index
from flows.training import Patience, TrainingFailedError, committed_steps, runs_now
from flows.training import train as follow
from flows.week import Outcome, Request, begun_at, outcome, outcome_key, run_name, this_week
from ingestion.lake import Lake
from seismic_model.comparison.table import measured_winner
from seismic_model.config import MODEL_SIZES, Init, RunConfig, run_folder
from seismic_model.data.dataset import (
    Dataset,
    WithdrawnError,
    dataset_key,
    dataset_label,
    load_dataset,
    refuse_withdrawn,
)
from seismic_model.data.sampling import check_processes
from seismic_model.evaluation.scores import Decision, Evaluation, evaluation_path
from seismic_model.train import read_config
from seismic_model.training.lease import LeaseError
from seismic_model.training.metrics import MetricsError, describe, read_metrics

DEFAULT_SETTINGS = Path(__file__).with_name("weekly.yaml")


@dataclass(frozen=True)
class Scores:
    """Candidate and champion on the same regions; no champion before the first approval."""

    candidate: Evaluation
    champion: Evaluation | None
    pictures: dict[str, bytes]  # PNG by caption: bars beside baselines, held-out sections as the candidate fills them


@dataclass(frozen=True)
class Trained:
    """What a week that trained has to show."""

    config_uri: str
    scores: Scores
    decision: Decision
    version: str | None


class WeekFailedError(Exception):
    """Training failed for good; the message says why and what to do."""


class RequestError(Exception):
    """The flow was asked for something that cannot be; the message says what to change."""


def request(parameters: Mapping[str, Any], settings: Mapping[str, Any]) -> Request:
    """The flow's parameters, checked and resolved. Raises ``RequestError``, ``SettingsError`` or ``LakeError``."""
    given = dict(parameters)
    given["surveys"] = [name.strip() for name in given["surveys"].split(",") if name.strip()]
    given["week"] = given["week"] or this_week()
    try:
        asked = Request(settings=read_settings(settings), **given)
        launcher(asked.launcher, asked.settings)
    except ValidationError as error:
        faults = "; ".join(f"--{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise RequestError(f"the week cannot be run as asked: {faults}") from error
    except LauncherError as error:
        raise RequestError(f"the week cannot be run as asked: --launcher: {error}") from error
    _check_recipe(asked)
    Lake(asked.lake).check()
    return asked


def _check_recipe(asked: Request) -> None:
    """Raises ``SettingsError`` now for what would keep training from starting, after the surveys are taken in."""
    recipe = asked.settings.recipe(asked.size)
    try:
        check_processes(configured(asked, run="run", dataset="dataset", dataset_sha256="0" * 64), recipe.processes)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'all'}: {e['msg']}" for e in error.errors())
        raise SettingsError(f"the recipe of {asked.size!r} cannot be trained: {faults}") from error
    except ValueError as error:
        raise SettingsError(f"the recipe of {asked.size!r} cannot be trained: {error}") from error


def freeze_week(asked: Request) -> tuple[str | None, str]:
    """The key of the week's frozen data set, or None and why there is none."""
    from seismic_model.data.freeze import NothingTrainableError, freeze  # zarr, which most steps do not need

    recipe = asked.settings.recipe(asked.size)
    chosen = asked.surveys or None
    try:
        dataset = freeze(Lake(asked.lake), asked.week, recipe.window, asked.settings.split, chosen)
    except NothingTrainableError as error:
        return None, str(error)
    check_window(asked, dataset)
    return dataset_key(dataset_label(asked.week, chosen)), ""


def check_window(asked: Request, frozen: Dataset) -> None:
    """Raises ``RequestError`` when the week was frozen for crops of another size."""
    window = asked.settings.recipe(asked.size).window
    if frozen.window != window:
        raise RequestError(
            f"week {asked.week} is frozen for crops of {frozen.window} voxels, size {asked.size} trains on "
            f"{window}; give --week another week, or the size it was frozen for"
        )


def decide(asked: Request, dataset: str | None, why_not: str) -> tuple[str | None, str]:
    """The run that the week trains, or None and why nothing is to be trained."""
    if dataset is None:
        return None, why_not
    lake = Lake(asked.lake)
    run = run_name(asked, lake)
    why_not = why_not_train(asked, lake, load_dataset(lake, dataset), run)
    return (None, why_not) if why_not else (run, "")


def why_not_train(asked: Request, lake: Lake, frozen: Dataset, run: str) -> str:
    """Why ``run`` is not to be trained on ``frozen``; empty when it is."""
    if outcome(lake, run) is not None:
        return f"run {run} is done; --force trains again"
    try:
        refuse_withdrawn(lake, frozen)
    except WithdrawnError as error:
        return str(error)
    difference = frozen.difference
    changed = difference.added or difference.removed or difference.superseded
    if difference.previous and not changed and not asked.force:
        before = run_name(asked.model_copy(update={"week": difference.previous}), lake)
        if outcome(lake, before) is not None:
            return f"no survey is new since {difference.previous}; --force trains all the same"
    pause = paused(lake)
    stopped = f"{pause}; `week resume` ends that, then start the week again" if pause else over_budget(asked, lake, run)
    if stopped and runs_now(lake, run, launcher(asked.launcher, asked.settings)):
        return ""  # what runs goes on
    return stopped


def over_budget(asked: Request, lake: Lake, run: str) -> str:
    """Why the settings' budget has no room for ``run``; empty when it has, or when there is none."""
    budget, processes = asked.settings.budget, asked.settings.recipe(asked.size).processes
    if budget is None:
        return ""
    config, done = draft_of(asked, lake, run), committed_steps(lake, run)
    if done >= config.steps:
        return ""  # scoring it costs none of it
    try:
        check_budget(lake, config, processes, budget, done)
    except BudgetError as error:
        return f"`budget` in the settings: {error}"  # by that word a notice goes out
    return ""


def plan(asked: Request, dataset: str, run: str) -> str:
    """The URI of the run's configuration; the first plan of a run is kept, whatever is asked later.

    Raises ``WithdrawnError`` when its data set holds a survey that is withdrawn.
    """
    lake = Lake(asked.lake)
    refuse_withdrawn(lake, load_dataset(lake, dataset))
    config = resolved(
        asked,
        lake,
        run=run,
        dataset=dataset,
        dataset_sha256=hashlib.sha256(lake.read(dataset)).hexdigest(),
        init=_init(asked, lake),
    )
    lake.create(config.key, config.to_bytes())
    return lake.uri_of(config.key)


def _init(asked: Request, lake: Lake) -> Init:
    """The champion's weights where the settings say so and they have the same shape; else none."""
    from seismic_model.registry.versions import champion
    from seismic_model.training.checkpoint import committed_at  # torch, which most steps do not need

    parent = champion() if asked.settings.start_from == "champion" else None
    if parent is None or committed_at(lake, parent.run, parent.step).config.model != MODEL_SIZES[asked.size]:
        return Init()
    return Init(origin="weights", run=parent.run, step=parent.step, weights_sha256=parent.weights_sha256)


def train(asked: Request, config_uri: str, card: Any) -> str:
    """Launch or attach, and follow to the end; why it failed for good, or "". Raises ``WithdrawnError``."""
    from seismic_model.training.checkpoint import CheckpointError

    config, lake, dataset = _run(config_uri)
    refuse_withdrawn(lake, dataset)
    if committed_steps(lake, config.run) >= config.steps:
        return ""  # the flow was killed afterwards; nodes are not asked for to find that out
    recipe = asked.settings.recipe(asked.size)
    patience = Patience(hang=60 * asked.settings.hang_minutes)
    place = launcher(asked.launcher, asked.settings)
    try:
        follow(
            config,
            recipe.processes,
            place,
            _View(card, config.steps),
            recipe.hours,
            patience,
            asked.settings.budget,
        )
    except (TrainingFailedError, LauncherError, MetricsError, CheckpointError, LeaseError) as error:
        return str(error)
    return ""


class _View:
    """The card and the step's log."""

    def __init__(self, card: Any, steps: int) -> None:
        self._card, self._said = Training(card, steps), ""

    def update(self, metrics: list[dict[str, Any]]) -> None:
        print(f"step {metrics[-1]['step']}: {describe(metrics[-1])}", flush=True)
        self._card.update(metrics)

    def say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            print(words, flush=True)
            self._card.say(words)


def evaluate(config_uri: str) -> Scores:
    """The run's best checkpoint and the champion on the same held-out regions; both stay with the run."""
    from seismic_model.evaluation.pictures import pictures
    from seismic_model.evaluation.reconstruction import best_checkpoint, evaluate
    from seismic_model.registry.versions import champion
    from seismic_model.training.checkpoint import committed_at

    config, lake, dataset = _run(config_uri)
    chosen = best_checkpoint(lake, config, dataset)
    candidate = evaluate(lake, config, dataset, chosen)
    lake.write(evaluation_path(config.run), candidate.to_bytes())
    drawn = pictures(lake, config, dataset, chosen, candidate)
    reigning = champion()
    if reigning is None or reigning.run == config.run:
        return Scores(candidate, None, drawn)
    theirs = evaluate(lake, config, dataset, committed_at(lake, reigning.run, reigning.step))
    lake.write(f"{run_folder(config.run)}/champion-evaluation.json", theirs.to_bytes())
    return Scores(candidate, theirs, drawn)


def judge(asked: Request, scores: Scores) -> Decision:
    """Whether the candidate wins, by the settings' margins."""
    from seismic_model.evaluation.gate import gate

    rule = asked.settings.gate
    return gate(scores.candidate, scores.champion, rule.margin, rule.survey_tolerance)


def register(config_uri: str, scores: Scores, decision: Decision) -> str | None:
    """The winner's version in the registry, where it waits for a person; None for a loser."""
    from seismic_model.registry.register import register
    from seismic_model.training.checkpoint import committed_at

    if not decision.promote:
        return None
    config, lake, dataset = _run(config_uri)
    chosen = committed_at(lake, config.run, scores.candidate.step)
    return register(lake, config, chosen, dataset, scores.candidate, decision, scores.pictures)


def report(asked: Request, result: WeekResult) -> tuple[Summary, str]:
    """Publish the week's page and close the run: a run with an outcome is done, and its page stays."""
    lake = Lake(asked.lake)
    publish_index(lake.uri)
    done = not result.config and not result.failed and outcome(lake, run_name(asked, lake)) is not None
    summary, page = (kept(lake, asked.week) if done else None) or publish(lake, result)
    for notice in notices(result, lake.uri_of(summary.report), begun_at(lake, asked.week)):
        notify(lake, notice)
    if result.config and result.decision:
        closing = Outcome(
            run=result.config.run,
            week=asked.week,
            dataset=result.config.dataset,
            promote=result.decision.promote,
            reasons=result.decision.reasons,
            version=result.version,
        )
        lake.write(outcome_key(result.config.run), closing.to_bytes())
    return summary, page


def week_result(
    asked: Request, dataset: str | None, why_not: str, trained: Trained | None, failed_run: str | None
) -> WeekResult:
    """All that the week's page shows; ``failed_run`` is the URI of the config whose training failed."""
    lake = Lake(asked.lake)
    outcomes = outcomes_of(lake, asked.week)
    frozen = load_dataset(lake, dataset) if dataset else None
    if failed_run:
        run = read_config(failed_run).run
        metrics, used = read_metrics(lake, run), cost(lake, run)
        return WeekResult(asked.week, outcomes, frozen, why_not, failed=True, metrics=metrics, cost=used)
    if trained is None:
        return WeekResult(asked.week, outcomes, frozen, why_not)
    config = read_config(trained.config_uri)
    return WeekResult(
        asked.week,
        outcomes,
        frozen,
        config=config,
        strategy_note=strategy_note(asked, config, lake),
        metrics=read_metrics(lake, config.run),
        candidate=trained.scores.candidate,
        champion=trained.scores.champion,
        decision=trained.decision,
        version=trained.version,
        pictures=trained.scores.pictures,
        cost=cost(lake, config.run),
    )


def strategy_note(asked: Request, config: RunConfig, lake: Lake) -> str:
    """Why a recipe that leaves the strategy open got this one."""
    recipe = asked.settings.recipe(asked.size)
    if recipe.strategy != "auto":
        return ""
    fastest = measured_winner(lake, config, recipe.processes)
    if fastest == config.strategy:
        return "the fastest that was measured"
    if fastest:
        return f"planned before {fastest} was measured as the fastest"
    command = f"sfm strategies --config {lake.uri_of(config.key)} --processes …"
    return f"none was measured for this model, window and {recipe.processes} processes; `{command}` on them does"


def _run(config_uri: str) -> tuple[RunConfig, Lake, Dataset]:
    config = read_config(config_uri)
    lake = Lake(config.lake)
    return config, lake, load_dataset(lake, config.dataset, config.dataset_sha256)
