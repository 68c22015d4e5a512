"""What a run may cost, what it would cost, and what it has cost so far.

The forecast is the planner's, before anything is launched. What is used is kept in ``runs/<run>/cost.json``: the time
that the job ran while someone followed it, or the steps' own seconds in ``metrics.jsonl`` where these say more, as
after a night in which the flow was dead and the job was not. It never falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError

from flows.settings import Budget
from ingestion.lake import Lake
from ingestion.manifest import Contract, SafeName
from seismic_model.config import RunConfig, run_folder
from seismic_model.planner.assumptions import AssumptionsError, read_machine
from seismic_model.planner.forecast import Forecast, Task
from seismic_model.planner.layout import Choice
from seismic_model.planner.search import PlanError, best
from seismic_model.training.metrics import MetricsError, read_metrics

_KEEP_SECONDS = 30.0  # between two writes of cost.json


class BudgetError(Exception):
    """A run would cost more than it may, or what it would cost cannot be said; the message says what to change."""


class Cost(Contract):
    """``cost.json``: what a run has used."""

    schema_version: Literal[1] = 1
    run: SafeName
    processes: int
    seconds: float  # that the job ran, all starts together; waiting for nodes is not in it
    gpu_hours: float
    money: float | None  # USD; None without a price
    gpu_hours_allowed: float | None  # None: no budget
    at: float  # seconds since the epoch: up to when time is counted


@dataclass(frozen=True)
class Estimate:
    """What a run takes, by ``sfm plan``'s arithmetic."""

    forecast: Forecast
    steps: int  # that are still to be done
    price_per_gpu_hour: float  # USD

    @property
    def hours(self) -> float:
        """Of running."""
        return self.forecast.hours(self.steps * self.forecast.batch)

    @property
    def gpu_hours(self) -> float:
        """Of all GPUs."""
        return self.hours * self.forecast.layout.gpus

    @property
    def money(self) -> float:
        """In USD."""
        return self.gpu_hours * self.price_per_gpu_hour


def estimate(config: RunConfig, processes: int, budget: Budget, done: int = 0) -> Estimate:
    """What ``config`` takes on ``processes`` GPUs of the budget's kind after ``done`` steps. Raises ``BudgetError``."""
    if config.precision == "float64":
        raise BudgetError("the planner knows no GPU for float64; expected float32 or bfloat16")
    task = Task(config.model, config.window, config.keep_ratio, config.decode_share, config.ema_decay is not None)
    choice = Choice(
        cp=config.cp,
        ulysses=config.ulysses,
        strategy=config.strategy,
        checkpointing=config.activation_checkpointing,
        precision=config.precision,
        batch=config.batch,
        accumulation=config.accumulation,
    )
    try:
        machine = read_machine(budget.gpu, price_per_hour=budget.price_per_gpu_hour)
        return Estimate(best(task, processes, machine, choice), config.steps - done, machine.price_per_hour)
    except (PlanError, AssumptionsError) as error:
        raise BudgetError(f"what run {config.run} takes cannot be forecast: {error}") from error


def check_budget(lake: Lake, config: RunConfig, processes: int, budget: Budget, done: int = 0) -> Estimate:
    """What is still to come of a run with ``done`` steps. Raises ``BudgetError`` when that is more than is left."""
    estimated = estimate(config, processes, budget, done)
    used = cost(lake, config.run)
    spent = used.gpu_hours if used else 0.0
    allowed = gpu_hours_allowed(budget)
    if spent + estimated.gpu_hours > allowed:
        before = f" beside {spent:,.1f} already used" if spent else ""
        price = estimated.price_per_gpu_hour
        raise BudgetError(
            f"run {config.run} would take {estimated.gpu_hours:,.1f} GPU hours ({estimated.money:,.0f} USD){before}; "
            f"its budget is {allowed:,.1f} ({allowed * price:,.0f} USD at {price:g} USD each). Raise `budget` in "
            "the settings, or take fewer steps or a smaller size; `week dry-run` prices it"
        )
    return estimated


def gpu_hours_allowed(budget: Budget) -> float:
    """By hours or by money, whichever ends first. Raises ``BudgetError``."""
    by_hours = math.inf if budget.gpu_hours is None else budget.gpu_hours
    by_money = math.inf if budget.money is None else budget.money / _price(budget)
    return min(by_hours, by_money)


def cost(lake: Lake, run: str) -> Cost | None:
    """What ``run`` has used, or None when nobody followed it yet."""
    try:
        return Cost.model_validate_json(lake.read(_key(run)))
    except (FileNotFoundError, ValidationError):
        return None


class Meter:
    """Counts what a run uses, for whoever follows its job; several followers count the same time once.

    ``add`` the seconds that the job ran since the last look, as often as you look; stop the job when ``left`` is
    less than it needs to save.
    """

    def __init__(self, lake: Lake, run: str, processes: int, budget: Budget | None) -> None:
        self._lake, self._run, self._processes = lake, run, processes
        self._price = _price(budget) if budget else None
        self._allowed = gpu_hours_allowed(budget) if budget else math.inf
        self._pending = 0.0
        self._written = _now()
        self.cost = self._with(0.0)

    def add(self, seconds: float) -> None:
        """The job ran ``seconds`` more."""
        self._pending += seconds
        if _now() - self._written >= _KEEP_SECONDS:
            self.keep()

    def left(self) -> float:
        """Seconds that the job may still run; infinite without a budget."""
        used = self.cost.gpu_hours + self._pending * self._processes / 3600
        return max(0.0, self._allowed - used) * 3600 / self._processes

    def keep(self) -> None:
        """Have all that was counted on the lake, as at the end of a job."""
        self.cost = self._with(self._pending)
        self._pending, self._written = 0.0, _now()
        self._lake.write(_key(self._run), self.cost.to_bytes())

    def _with(self, more: float) -> Cost:
        """What is on the lake by now, and ``more`` of the time since it was written there."""
        stored = cost(self._lake, self._run)
        known, now = stored.seconds if stored else 0.0, _now()
        uncounted = now - stored.at if stored else math.inf
        seconds = max(known + max(0.0, min(more, uncounted)), _measured_seconds(self._lake, self._run))
        hours = (stored.gpu_hours if stored else 0.0) + (seconds - known) * self._processes / 3600
        return Cost(
            run=self._run,
            processes=self._processes,
            seconds=seconds,
            gpu_hours=hours,
            money=None if self._price is None else hours * self._price,
            gpu_hours_allowed=None if math.isinf(self._allowed) else self._allowed,
            at=now,
        )


def _now() -> float:
    """Seconds since the epoch."""
    return datetime.now(UTC).timestamp()


def _measured_seconds(lake: Lake, run: str) -> float:
    try:
        return sum(float(entry["seconds"]) for entry in read_metrics(lake, run))
    except MetricsError:
        return 0.0


def _price(budget: Budget) -> float:
    """USD of a GPU and hour."""
    try:
        return read_machine(budget.gpu, price_per_hour=budget.price_per_gpu_hour).price_per_hour
    except AssumptionsError as error:
        raise BudgetError(f"the budget in the settings cannot be used: {error}") from error


def _key(run: str) -> str:
    return f"{run_folder(run)}/cost.json"
