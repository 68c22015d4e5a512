"""What a week is told besides its parameters: splits, gate, and how each model size is trained.

``weekly.yaml`` holds the scheduled week's settings, ``demo.yaml`` the demo's; any other file of the
same shape is given with ``--config settings FILE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from flows.launchers.pytorch_job import EksSettings
from flows.launchers.slurm_settings import SlurmSettings
from ingestion.manifest import Contract
from seismic_model.config import DECODE_SHARE, MODEL_SIZES, Checkpointing, StrategyName, Triple
from seismic_model.data.dataset import SplitPolicy


class Recipe(Contract):
    """How one model size is trained; the names are those of ``RunConfig``."""

    window: Triple
    keep_ratio: float
    decode_share: float = DECODE_SHARE
    steps: int
    batch: int
    accumulation: int = 1
    learning_rate: float
    warmup_steps: int
    weight_decay: float = 0.05
    strategy: StrategyName | Literal["auto"] = "zero2"  # auto: the fastest that `sfm strategies` measured for this
    precision: Literal["float32", "bfloat16"] = "float32"
    activation_checkpointing: Checkpointing = "none"
    compile: bool = False
    ema_decay: float | None = None
    cp: int
    ulysses: int = 1
    processes: int = Field(ge=1)  # world size
    checkpoint_every: int
    hours: float | None = Field(default=None, gt=0)  # that one job may take; the next goes on from its checkpoint


class Gate(Contract):
    """When a candidate wins."""

    margin: float  # relative improvement that a winner needs
    survey_tolerance: float  # relative loss that any single survey may show


class Budget(Contract):
    """What one run may use, and how its use is priced; without a limit it is only priced."""

    gpu: str = "h200"  # kind, of those that `sfm plan` knows
    price_per_gpu_hour: float | None = Field(default=None, gt=0)  # USD; default: the planner's
    gpu_hours: float | None = Field(default=None, gt=0)  # processes x hours of running
    money: float | None = Field(default=None, gt=0)  # USD


class Settings(Contract):
    """One settings file."""

    split: SplitPolicy
    gate: Gate
    start_from: Literal["champion", "scratch"] = "champion"  # weights; scratch when there is no champion yet
    hang_minutes: float = Field(default=10, gt=0, le=45)  # at least, without a sign of life, before a job is ended
    evaluate_on_gpu: bool = False  # the pod that scores asks for one GPU, which the image has to know
    budget: Budget | None = None
    recipes: dict[str, Recipe]
    slurm: SlurmSettings | None = None  # for --launcher slurm
    eks: EksSettings | None = None  # for --launcher eks

    def recipe(self, size: str) -> Recipe:
        """How ``size`` is trained. Raises ``SettingsError``."""
        if size not in self.recipes or size not in MODEL_SIZES:
            known = ", ".join(sorted(set(self.recipes) & set(MODEL_SIZES)))
            raise SettingsError(f"model size {size!r} has no recipe in the settings; expected one of: {known}")
        return self.recipes[size]


class SettingsError(Exception):
    """The settings are unusable; the message lists each fault with its place."""


def read_settings(raw: Mapping[str, Any]) -> Settings:
    """The settings in ``raw``. Raises ``SettingsError``."""
    if not isinstance(raw, Mapping):  # a file may hold anything
        raise SettingsError(f"the settings file holds {type(raw).__name__}; expected `split:`, `gate:`, `recipes:` …")
    try:
        return Settings.model_validate(dict(raw))
    except ValidationError as error:
        faults = "\n".join(f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise SettingsError(f"the settings file has {error.error_count()} fault(s):\n{faults}") from error
