"""A committed checkpoint is scored on held-out places of published surveys: honestly, and always on the same task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from planned import MODEL, one_process, plan
from published import noise, publish
from saved import save

from ingestion.lake import Lake
from ingestion.manifest import Normalisation
from seismic_model.config import ModelConfig, RunConfig
from seismic_model.data.dataset import Dataset, SplitPolicy
from seismic_model.data.freeze import freeze
from seismic_model.data.splits import held_out_mask
from seismic_model.evaluation.gate import gate
from seismic_model.evaluation.pictures import pictures
from seismic_model.evaluation.reconstruction import amplitudes, best_checkpoint, evaluate, predict, trained_model
from seismic_model.evaluation.regions import open_volumes, plan_evaluation, read_regions
from seismic_model.evaluation.scores import METHODS, Evaluation, EvaluationError
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.parallel import strategies
from seismic_model.parallel.mesh import Mesh
from seismic_model.training import checkpoint
from seismic_model.training.checkpoint import CheckpointManifest

WEEK = "2026-W48"
WINDOW = (8, 8, 16)
SPLIT = SplitPolicy(cell_size=400, held_out_share=0.4, salt="1", held_out_surveys=["far"])
SCALED = Normalisation(centre=3.0, scale=250.0, clip=4.0)
Change = Callable[[MaskedAutoencoder], object]


@pytest.fixture(scope="module")
def mesh() -> Iterator[Mesh]:
    with one_process() as mesh:
        yield mesh


@pytest.fixture
def local(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def frozen(lake: Lake) -> Dataset:
    """A week of a survey with dead traces, one in other units, and one that is held out wholly."""
    live = np.ones((64, 64), dtype=bool)
    live[::5, ::3] = False
    publish(lake, "north", noise((64, 64, 24)), live)
    publish(lake, "south", 250 * noise((48, 48, 24), seed=1) + 3, origin=(50_000.0, 0.0), normalisation=SCALED)
    publish(lake, "far", noise((24, 24, 24), seed=2), origin=(90_000.0, 0.0))
    return freeze(lake, WEEK, WINDOW, SPLIT)


def committed(
    lake: Lake, mesh: Mesh, config: RunConfig, step: int, change: Change = lambda model: None
) -> CheckpointManifest:
    model = MaskedAutoencoder(config.model, config.seed)
    with torch.no_grad():
        change(model)
    save(lake, config, strategies.build(model, config, mesh), step)
    found = checkpoint.latest(lake, config.run)
    assert found is not None
    return found


def silent(model: MaskedAutoencoder) -> None:
    """Predicts 0 everywhere."""
    for parameter in model.decoder.head.parameters():
        parameter.zero_()


def loud(model: MaskedAutoencoder) -> None:
    model.decoder.head.weight.mul_(50)


def broken(model: MaskedAutoencoder) -> None:
    model.decoder.head.bias.fill_(math.nan)


def test_figures_are_those_of_raw_amplitudes_at_hidden_live_voxels(lake: Lake, mesh: Mesh) -> None:
    dataset = frozen(lake)
    config = plan(lake)
    chosen = committed(lake, mesh, config, 3)
    scores = evaluate(lake, config, dataset, chosen)
    assert {survey.survey: survey.unseen for survey in scores.surveys} == {"far": True, "north": False, "south": False}
    assert Evaluation.model_validate_json(scores.to_bytes()) == scores
    with open_volumes(lake, dataset) as volumes:
        task, _ = plan_evaluation(volumes, config, dataset, "test")
        assert scores.evaluation_key == task.key
        model = trained_model(lake, task, chosen)
        for survey, planned in zip(scores.surveys, task.surveys, strict=True):
            squares = energy = 0.0
            volume = volumes[survey.survey]
            rule = volume.manifest.normalisation
            for region in survey.regions:
                batch = next(read_regions(volume, [region.origin], task))
                (i, x, z), (wi, wx, wz) = region.origin, WINDOW
                true = volume.read(i, i + wi, x, x + wx, z, z + wz).astype(float)
                counted = batch.scored_BIXZ[0]
                assert not (counted & ~volume.live_IX[i : i + wi, x : x + wx, None]).any()
                made = predict(model, batch, task)[0] * float(rule.scale) + rule.centre
                squares += ((made - true)[counted] ** 2).sum()
                energy += (true[counted] ** 2).sum()
            assert [region.origin for region in survey.regions] == planned.origins
            assert survey.scores["model"].error == pytest.approx(math.sqrt(squares / energy), rel=1e-6)
    north = next(survey for survey in scores.surveys if survey.survey == "north")
    assert north.scores["zero"].error == pytest.approx(1)
    assert 1 > north.scores["interpolation"].correlation > north.scores["zero"].correlation == 0
    assert all(survey.scores[method].error > 0.3 for survey in scores.surveys for method in METHODS)  # none is told


def test_only_held_out_places_are_scored_and_the_checkpoint_is_chosen_on_others(local: Lake) -> None:
    dataset = frozen(local)
    config = plan(local)
    with open_volumes(local, dataset) as volumes:
        reseeded = plan_evaluation(volumes, plan(local, "second", seed=9), dataset, "test")[0]
        assert reseeded == plan_evaluation(volumes, config, dataset, "test")[0]
        halves = {half: plan_evaluation(volumes, config, dataset, half)[0] for half in ("select", "test")}
        assert [survey.survey for survey in halves["select"].surveys] == ["north", "south"]  # not the unseen one
        held_out = {n: held_out_mask(v.manifest, dataset.split, dataset.held_out_cells) for n, v in volumes.items()}
    columns = {
        half: {(s.survey, *origin[:2]) for s in task.surveys for origin in s.origins} for half, task in halves.items()
    }
    for name, i, x in columns["select"] | columns["test"]:
        assert held_out[name][i : i + WINDOW[0], x : x + WINDOW[1]].all()
    for name, i, x in columns["select"]:
        assert not any(n == name and abs(i - a) < WINDOW[0] and abs(x - b) < WINDOW[1] for n, a, b in columns["test"])


def test_a_champion_of_another_seed_and_width_gets_the_same_regions_and_masks(local: Lake, mesh: Mesh) -> None:
    dataset = frozen(local)
    config = plan(local, "new")
    wider = plan(local, "old", seed=9, keep_ratio=0.5, model=MODEL.model_copy(update={"width": 36}))
    candidate = evaluate(local, config, dataset, committed(local, mesh, config, 3))
    champion = evaluate(local, config, dataset, committed(local, mesh, wider, 6))
    assert champion.evaluation_key == candidate.evaluation_key
    for ours, theirs in zip(candidate.surveys, champion.surveys, strict=True):
        assert [r.energy for r in ours.regions] == [r.energy for r in theirs.regions]
        assert ours.scores["interpolation"] == theirs.scores["interpolation"]
        assert ours.scores["model"] != theirs.scores["model"]
    assert gate(candidate, champion, 0.01, 0.02).champion_run == "old"
    assert evaluate(local, wider, dataset, committed(local, mesh, wider, 9)).evaluation_key != candidate.evaluation_key


def test_a_champion_with_patches_of_another_shape_cannot_get_the_same_task(local: Lake, mesh: Mesh) -> None:
    dataset = frozen(local)
    other = plan(local, "old", model=ModelConfig.model_validate(MODEL.model_dump() | {"patch": (2, 2, 4)}))
    with pytest.raises(
        EvaluationError, match=r"patches of \(2, 2, 4\) voxels, the evaluation hides patches of \(4, 4, 4\)"
    ):
        evaluate(local, plan(local, "new"), dataset, committed(local, mesh, other, 3))


def test_the_checkpoint_that_errs_least_is_chosen_not_the_newest(local: Lake, mesh: Mesh) -> None:
    dataset = frozen(local)
    config = plan(local)
    with pytest.raises(EvaluationError, match="no committed checkpoint"):
        best_checkpoint(local, config, dataset)
    committed(local, mesh, config, 3)
    best = committed(local, mesh, config, 6, silent)
    committed(local, mesh, config, 9, broken)
    assert best_checkpoint(local, config, dataset) == best
    committed(local, mesh, config, 12, loud)
    assert best_checkpoint(local, config, dataset) == best


def test_weights_that_predict_nothing_finite_are_refused(local: Lake, mesh: Mesh) -> None:
    dataset = frozen(local)
    config = plan(local)
    bad = [committed(local, mesh, config, step, broken) for step in (3, 6)][-1]
    with pytest.raises(EvaluationError, match="step 6 predicts amplitudes that are not finite"):
        evaluate(local, config, dataset, bad)
    with pytest.raises(EvaluationError, match="no checkpoint of run first predicts finite amplitudes"):
        best_checkpoint(local, config, dataset)


def test_surveys_without_a_held_out_region_or_without_a_signal_are_named(local: Lake, mesh: Mesh) -> None:
    publish(local, "mute", np.zeros((32, 32, 24), dtype=np.float32), origin=(70_000.0, 0.0))
    dataset = frozen(local).model_copy(update={"split": SPLIT.model_copy(update={"held_out_share": 1e-9})})
    config = plan(local)
    chosen = committed(local, mesh, config, 3)
    scores = evaluate(local, config, dataset, chosen)
    assert [survey.survey for survey in scores.surveys] == ["far"]
    assert {each.survey for each in scores.unscored} == {"mute", "north", "south"}
    nowhere = dataset.split.model_copy(update={"held_out_surveys": ["mute"]})
    with pytest.raises(EvaluationError, match=r"nothing to score(.|\n)*mute: the hidden voxels .* nothing but zeros"):
        evaluate(local, config, dataset.model_copy(update={"split": nowhere, "held_out_cells": []}), chosen)


def test_amplitudes_come_back_by_the_manifests_rule() -> None:
    assert amplitudes(np.float32([-1, 0, 2]), SCALED).tolist() == [-247, 3, 503]


def test_there_is_a_picture_of_every_scored_survey_and_of_the_errors(local: Lake, mesh: Mesh) -> None:
    dataset = frozen(local)
    config = plan(local)
    chosen = committed(local, mesh, config, 3)
    told: list[tuple[int, int]] = []
    scores = evaluate(local, config, dataset, chosen, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    drawn = pictures(local, config, dataset, chosen, scores)
    assert all(image.startswith(b"\x89PNG") for image in drawn.values())
    assert [caption.split(":")[0] for caption in drawn] == [
        "Errors beside the baselines",
        "far (unseen)",
        "north",
        "south",
    ]
    assert set(scores.surveys[0].scores) == set(METHODS)
