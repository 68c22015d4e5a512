"""What the week would do if it were started now, and what it would cost; nothing is launched and nothing written."""

from __future__ import annotations

import time
from dataclasses import dataclass

from flows.budget import BudgetError, Estimate, estimate
from flows.planning import draft_of
from flows.settings import Budget
from flows.steps import check_window, why_not_train
from flows.surveys import Work, find_work
from flows.training import committed_steps
from flows.week import Request, run_name
from ingestion.lake import Lake
from ingestion.names import printable
from seismic_model.config import RunConfig
from seismic_model.data.dataset import Dataset, dataset_key, dataset_label, load_dataset
from seismic_model.data.freeze import FreezeError, draft
from seismic_model.training.lease import Holder, holder

_GB = 1e9


@dataclass(frozen=True)
class DryRun:
    """Every answer that can be had before the surveys are taken in."""

    asked: Request
    work: list[Work]
    dataset: Dataset | None
    frozen: bool  # already
    run: str
    config: RunConfig
    why_not: str  # nothing would be trained
    estimated: Estimate | None
    not_estimated: str
    elsewhere: Holder | None  # another run that trains now

    def lines(self) -> list[tuple[str, str]]:
        """For people: what, and the answer."""
        recipe = self.asked.settings.recipe(self.asked.size)
        rows = [("week", self.asked.week), ("to take in", ", ".join(each.survey for each in self.work) or "nothing")]
        if self.dataset:
            change = self.dataset.difference
            parts = ("added", "superseded", "removed", "unchanged")
            said = [f"{part}: {', '.join(getattr(change, part))}" for part in parts if getattr(change, part)]
            state = "frozen" if self.frozen else "as it would be without what is still to be taken in"
            rows.append(("data set", f"{len(self.dataset.surveys)} surveys, {state}; {'; '.join(said)}"))
        rows.append(("run", self.run))
        first = "depends on what is still to be taken in; without it " if self.work and not self.dataset else ""
        rows.append(("would train", f"{first}no: {' '.join(self.why_not.split())}" if self.why_not else "yes"))
        rows.append(
            (
                "layout",
                f"{recipe.processes} processes, cp {self.config.cp} (ulysses {self.config.ulysses}), "
                f"{self.config.strategy}, {self.config.precision}, {self.config.steps} steps of "
                f"{self.config.batch} crops",
            )
        )
        if self.estimated:
            one = self.estimated.forecast
            rows += [
                (
                    "memory",
                    f"{one.memory_total / _GB:.1f} of {one.machine.memory / _GB:.1f} GB of a {one.machine.name}",
                ),
                ("hours", f"{self.estimated.hours:,.2f}, {self.estimated.gpu_hours:,.1f} GPU hours"),
                ("money", f"{self.estimated.money:,.2f} USD at {self.estimated.price_per_gpu_hour:g} a GPU and hour"),
            ]
        else:
            rows.append(("price", self.not_estimated))
        if self.elsewhere:
            rows.append(("waits for", str(self.elsewhere)))
        return [(name, printable(value)) for name, value in rows]


def dry_run(asked: Request) -> DryRun:
    """Plan and price the week."""
    lake = Lake(asked.lake)
    recipe = asked.settings.recipe(asked.size)
    chosen = asked.surveys or None
    key = dataset_key(dataset_label(asked.week, chosen))
    frozen = lake.exists(key)
    dataset, why_not = None, ""
    try:
        dataset = (
            load_dataset(lake, key) if frozen else draft(lake, asked.week, recipe.window, asked.settings.split, chosen)
        )
    except FreezeError as error:
        why_not = str(error)
    if dataset:
        check_window(asked, dataset)
    run = run_name(asked, lake)
    config = draft_of(asked, lake, run)
    estimated, not_estimated = None, ""
    try:
        estimated = estimate(config, recipe.processes, asked.settings.budget or Budget(), committed_steps(lake, run))
    except BudgetError as error:
        not_estimated = str(error)
    held = holder(lake)
    return DryRun(
        asked=asked,
        work=find_work(asked),
        dataset=dataset,
        frozen=frozen,
        run=run,
        config=config,
        why_not=why_not or (why_not_train(asked, lake, dataset, run) if dataset else ""),
        estimated=estimated,
        not_estimated=not_estimated,
        elsewhere=held if held and held.owner != run and held.holds(time.time()) else None,
    )
