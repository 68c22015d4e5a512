"""The planner counts what the model has, multiplies and holds: a small part of ``benchmarks.planner``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmarks.crew import Crew
from benchmarks.planner import case, counted_flops, flop_row, held_bytes, memory_row, model
from seismic_model.config import ModelConfig
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.planner.parameters import parameters_of

SELF = model(64, 3, 4, (48, 2, 4), registers=3)
CROSS = model(64, 3, 4, (48, 2, 4), decoder="cross", patch_normalisation=True)


@pytest.fixture(scope="module")
def pair() -> Iterator[Crew]:
    with Crew(2) as crew:
        yield crew


@pytest.mark.parametrize("config", [SELF, CROSS])
def test_every_weight_is_counted(config: ModelConfig) -> None:
    with torch.device("meta"):
        counted = sum(p.numel() for p in MaskedAutoencoder(config).parameters())
    assert sum(parameters_of(config).values()) == counted


@pytest.mark.parametrize(
    ("config", "cp", "ulysses", "again"), [(SELF, 2, 1, "full"), (SELF, 1, 1, "selective"), (CROSS, 2, 2, "none")]
)
def test_every_multiplication_is_counted(config: ModelConfig, cp: int, ulysses: int, again: str, pair: Crew) -> None:
    spread = case(config, 5, 2, cp=cp, ulysses=ulysses, activation_checkpointing=again, decode_share=0.6)
    found = sum(pair.ask(counted_flops, spread))
    assert flop_row(spread, found * cp // 2)["error"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("decoder", "settings"),
    [
        ("self", {"cp": 2}),
        ("self", {"activation_checkpointing": "selective"}),
        ("cross", {"cp": 2, "ulysses": 2, "activation_checkpointing": "full"}),
        ("cross", {"precision": "bfloat16", "batch": 4}),
    ],
)
def test_memory_is_forecast_within_a_tenth(decoder: str, settings: dict[str, object], pair: Crew) -> None:
    """Of a model so narrow that most of its memory is what backward needs."""
    spread = case(model(32, 4, 4, (32, 2, 4), decoder=decoder), 11, 2, **settings)
    row = memory_row(spread, max(pair.ask(held_bytes, spread)))
    assert abs(row["error"]) < 0.10, row
