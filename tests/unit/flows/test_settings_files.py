"""Every shipped settings file can be used, and a wrong one says where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from flows import settings
from flows.settings import SettingsError, read_settings
from seismic_model.config import MODEL_SIZES, RunConfig
from seismic_model.planner.assumptions import read_machine
from seismic_model.planner.forecast import Task
from seismic_model.planner.layout import Choice
from seismic_model.planner.search import best

SHIPPED = sorted(Path(settings.__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_recipe_makes_a_run(path: Path) -> None:
    shipped = read_settings(yaml.safe_load(path.read_text()))
    for size, recipe in shipped.recipes.items():
        config = RunConfig(
            lake="file:///lake",
            run="run",
            dataset="datasets/2026-W49.json",
            dataset_sha256="0" * 64,
            model=MODEL_SIZES[size],
            **recipe.model_dump(exclude={"processes", "strategy", "hours"}),
        )
        groups, left_over = divmod(recipe.processes, config.cp)
        assert left_over == 0, "context-parallel groups must fill the processes"
        assert config.batch % (groups * config.accumulation) == 0, "every group needs whole crops in every micro-batch"


def test_every_recipe_for_gpus_is_forecast_to_fit_one_of_them() -> None:
    """With the zero2 that an unmeasured ``auto`` falls back to."""
    shipped = read_settings(yaml.safe_load((SHIPPED[0].parent / "cluster.yaml").read_text()))
    for size, recipe in shipped.recipes.items():
        task = Task(MODEL_SIZES[size], recipe.window, recipe.keep_ratio, recipe.decode_share)
        choice = Choice(recipe.cp, recipe.ulysses, "zero2", recipe.activation_checkpointing, "bfloat16", recipe.batch)
        best(task, recipe.processes, read_machine("h200"), choice)  # says what would fit if it does not


def test_the_scheduled_and_the_demo_settings_are_shipped() -> None:
    assert {"weekly.yaml", "demo.yaml"} <= {path.name for path in SHIPPED}


def test_a_wrong_settings_file_says_each_fault_and_its_place() -> None:
    raw = yaml.safe_load(SHIPPED[0].read_text())
    raw["gate"]["margin"] = "much"
    next(iter(raw["recipes"].values()))["stepz"] = 3
    with pytest.raises(SettingsError) as error:
        read_settings(raw)
    assert "gate.margin" in str(error.value)
    assert ".stepz" in str(error.value)


def test_an_unknown_size_names_those_there_are() -> None:
    shipped = read_settings(yaml.safe_load(SHIPPED[0].read_text()))
    with pytest.raises(SettingsError, match=r"'enormous' has no recipe .*base"):
        shipped.recipe("enormous")
