"""Decoders are compared on equal terms: same encoder, crops, visible tokens, and draws of seeds and places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import decoder
from benchmarks.decoder import CHOSEN, USUAL, VARIANTS, Scale, config_of, goals, rows_of, tabulate
from benchmarks.trials.surveys import TrainingCrops, made_survey, tiles
from benchmarks.trials.trial import HELD_OUT, TRAINED, UNSEEN, Survey, SurveyTrial, shard_of, train_step
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.parallel.strategies.base import adamw
from seismic_model.training.tokens import tokens_of

SCALE = Scale((16, 16, 32), steps=2, batch=2)
COSTS = {"step_flops": 1e9, "step_seconds": 0.1, "step_bytes": 2.0**20}
SURVEYS = HELD_OUT[:2]
REGIONS = 6


def learned(seed: int, squared: float = 1.0) -> dict[Survey, SurveyTrial]:
    """Random figures of two surveys, which the seed decides; ``squared`` multiplies the squared errors."""
    random = np.random.default_rng(seed)
    shape = (REGIONS, SCALE.layout.tokens)
    return {
        survey: SurveyTrial(squared * random.random(REGIONS), np.ones(REGIONS), random.standard_normal(shape))
        for survey in SURVEYS
    }


def logits_of(trial: dict[Survey, SurveyTrial]) -> dict[Survey, Any]:
    return {survey: each.logits_RL for survey, each in trial.items()}


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Three seeds; the chosen decoder has 1.1 times the error of the others on every place."""
    faults_RL = np.random.default_rng(0).random((REGIONS, SCALE.layout.tokens)) < 0.2
    monkeypatch.setattr(decoder, "HELD_OUT", SURVEYS)
    monkeypatch.setattr(decoder, "UNSEEN", SURVEYS[1][0])
    monkeypatch.setattr(decoder, "fault_labels", lambda *_: (faults_RL, np.ones_like(faults_RL)))
    monkeypatch.setattr(decoder, "probe", lambda *_: logits_of(learned(0)))
    trials = {each: [learned(seed, 1.21 if each == CHOSEN else 1.0) for seed in (1, 2, 3)] for each in VARIANTS}
    paid = {each: COSTS | {"step_seconds": 0.04 if each == CHOSEN else 0.1} for each in VARIANTS}
    return rows_of(SCALE, trials, [logits_of(learned(seed)) for seed in (4, 5, 6)], paid)


def test_what_differs_by_a_constant_factor_has_no_interval_beside_the_usual_decoder(rows: list[dict[str, Any]]) -> None:
    chosen = rows[VARIANTS.index(CHOSEN)]
    assert chosen["error_ratio"] == pytest.approx(1.1)
    assert chosen["error_ratio_interval"] == pytest.approx([1.1, 1.1]), "draws have to be the same for both"
    assert chosen["probe_ap_gain_interval"] == pytest.approx([0, 0])
    low, high = chosen["error_interval"]
    assert low < chosen["error"] < high
    assert chosen["error"] == pytest.approx(np.mean(chosen["seed_errors"]))


def test_an_encoder_that_learned_nothing_is_not_the_usual_one(rows: list[dict[str, Any]]) -> None:
    untrained = rows[len(VARIANTS)]
    low, high = untrained["probe_ap_gain_interval"]
    assert untrained["decoder"] == "untrained encoder"
    assert low < untrained["probe_ap_gain"] < high


def test_the_upper_end_of_the_interval_decides(rows: list[dict[str, Any]]) -> None:
    error, gain, faster, _ = goals(rows)
    assert (error.value, error.met) == (pytest.approx(1.1), False)
    assert (gain.value, gain.met) == (pytest.approx(0), True)
    assert (faster.value, faster.met) == (pytest.approx(2.5), True)


def test_the_table_has_a_line_for_each_row(rows: list[dict[str, Any]]) -> None:
    assert tabulate(rows).row_count == len(VARIANTS) + 2


def test_decoders_of_a_seed_start_from_one_encoder_and_see_the_same_tokens() -> None:
    configs = [config_of(SCALE, each, seed=5) for each in VARIANTS]
    models = [MaskedAutoencoder(config.model, config.seed) for config in configs]
    usual, *others = (shard_of(config).draw(0, [3, 4]) for config in configs)
    for model, masks in zip(models[1:], others, strict=True):
        torch.testing.assert_close(model.encoder.state_dict(), models[0].encoder.state_dict(), rtol=0, atol=0)
        torch.testing.assert_close(masks.visible_BK, usual.visible_BK)
    half = others[VARIANTS.index(CHOSEN) - 1].decoded_BM
    assert half.shape[1] == usual.decoded_BM.shape[1] // 2
    assert USUAL.decode_share == 1


def test_no_survey_that_is_scored_is_trained_on_and_one_basin_is_new() -> None:
    assert not set(HELD_OUT) & set(TRAINED)
    assert UNSEEN in {basin for basin, _ in HELD_OUT}
    assert UNSEEN not in {basin for basin, _ in TRAINED}


def test_a_made_survey_trains() -> None:
    """Amplitudes are of unit scale and 0 where not live; some steps on one batch lower the loss."""
    survey = made_survey("deltaic", 1)
    assert not survey.values_IXZ[~survey.live_IX].any()
    assert 0.7 < survey.values_IXZ[survey.live_IX].std() < 1.4
    assert len(set(tiles(survey, SCALE.window))) > 100
    config = config_of(SCALE, CHOSEN, seed=0)
    model, shard = MaskedAutoencoder(config.model), shard_of(config)
    optimiser = adamw(dict(model.named_parameters()), config)
    crops = TrainingCrops([survey], SCALE.window, seed=0)
    batch = tokens_of(crops.batch(0, 2), config, shard)
    losses = [train_step(model, optimiser, batch, shard, config.gradient_clip) for _ in range(4)]
    assert losses[-1] < losses[0]
    assert crops.batch(1, 2).crops[0] == TrainingCrops([survey], SCALE.window, seed=0).batch(1, 2).crops[0]
