"""The configuration that a request's recipe gives."""

from __future__ import annotations

from typing import Any

from flows.week import Request
from ingestion.lake import Lake
from seismic_model.comparison.table import measured_winner
from seismic_model.config import MODEL_SIZES, RunConfig, StrategyName

UNMEASURED: StrategyName = "zero2"  # for a recipe with `strategy: auto` where nothing was measured


def configured(asked: Request, **run: Any) -> RunConfig:
    """A run of the recipe; one that leaves the strategy open gets the usual one."""
    recipe = asked.settings.recipe(asked.size).model_dump(exclude={"processes", "hours"})
    if recipe["strategy"] == "auto":
        recipe["strategy"] = UNMEASURED
    return RunConfig.model_validate(
        {"lake": asked.lake, "model": MODEL_SIZES[asked.size], "seed": asked.seed} | recipe | run
    )


def resolved(asked: Request, lake: Lake, **run: Any) -> RunConfig:
    """The same with the fastest strategy that was measured, where the recipe leaves it open."""
    recipe, config = asked.settings.recipe(asked.size), configured(asked, lake=lake.uri, **run)
    if recipe.strategy == "auto" and (fastest := measured_winner(lake, config, recipe.processes)):
        return config.model_copy(update={"strategy": fastest})
    return config


def draft_of(asked: Request, lake: Lake, run: str) -> RunConfig:
    """What ``run`` would be trained with, before its data set is frozen: enough for what it takes, not to train it."""
    return resolved(asked, lake, run=run, dataset="not frozen", dataset_sha256="0" * 64)
