"""Score a checkpoint on held-out regions: how well it fills in what is hidden, beside methods that learn nothing.

    error = sqrt( Σ (predicted - true)² / Σ true² )        over hidden live voxels, amplitudes as published

Predictions come in normalised amplitudes and are brought back by the manifest's centre and scale alone, so no
method is told anything of the voxels it has to fill in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from ingestion.lake import Lake
from ingestion.manifest import Normalisation
from seismic_model.config import RunConfig
from seismic_model.data.dataset import Dataset
from seismic_model.data.spacing import relative_spacing
from seismic_model.data.store import FloatArray, SurveyVolume
from seismic_model.evaluation import baselines, bootstrap
from seismic_model.evaluation.measures import Float64Array, squared_sums, trace_correlations
from seismic_model.evaluation.regions import (
    EvaluationPlan,
    PlannedSurvey,
    RegionBatch,
    open_volumes,
    plan_evaluation,
    read_regions,
)
from seismic_model.evaluation.scores import (
    METHODS,
    Evaluation,
    EvaluationError,
    Method,
    RegionScore,
    SurveyScore,
    Unscored,
)
from seismic_model.model.mae import MaskedAutoencoder, filled_in
from seismic_model.model.masking import patchify, unpatchify
from seismic_model.training.checkpoint import CheckpointManifest, committed, load_weights

Progress = Callable[[int, int], None]
"""Called with the number of surveys that are scored, and of all."""


def evaluate(
    lake: Lake,
    config: RunConfig,
    dataset: Dataset,
    checkpoint: CheckpointManifest,
    *,
    progress: Progress | None = None,
) -> Evaluation:
    """Score a checkpoint on the test half of the held-out regions.

    Args:
        lake: holds the surveys and the checkpoint.
        config: of the candidate; its patch and keep ratio decide the masks, also when a champion is scored.
        dataset: the one that ``config`` names.
        checkpoint: of the candidate or of a champion.
        progress: is told after each survey.

    Raises ``EvaluationError`` when there is no region to score, when the checkpoint cuts patches of another shape,
    or when it predicts amplitudes that are not finite; ``DatasetError``, ``VolumeError``, ``CheckpointError`` as their
    readers do.
    """
    with open_volumes(lake, dataset) as volumes:
        plan, unscored = plan_evaluation(volumes, config, dataset, "test")
        models = {
            "model": trained_model(lake, plan, checkpoint),
            "untrained": _ready(MaskedAutoencoder(checkpoint.config.model, checkpoint.config.seed)),
        }
        surveys = []
        for number, planned in enumerate(plan.surveys, start=1):
            outcome = _score_survey(volumes[planned.survey], planned, plan, models, checkpoint)
            if isinstance(outcome, SurveyScore):
                surveys.append(outcome)
            else:
                unscored.append(outcome)
            if progress:
                progress(number, len(plan.surveys))
    if not surveys:
        raise EvaluationError(_nothing_scored(config, unscored))
    return Evaluation(
        run=checkpoint.run,
        step=checkpoint.step,
        weights_sha256=checkpoint.weights_sha256,
        dataset=config.dataset,
        dataset_sha256=config.dataset_sha256,
        evaluation_key=plan.key,
        surveys=surveys,
        unscored=unscored,
    )


def best_checkpoint(lake: Lake, config: RunConfig, dataset: Dataset) -> CheckpointManifest:
    """The committed checkpoint of a run with the smallest mean error on the select half of the held-out regions.

    The test half stays out of it, so that the choice does not flatter the figures. The newest one is taken when
    the select half is empty. Raises ``EvaluationError`` when the run has no checkpoint or none that predicts
    finite amplitudes.
    """
    candidates = committed(lake, config.run)
    if not candidates:
        raise EvaluationError(f"run {config.run} has no committed checkpoint on {lake.uri}; train it first")
    with open_volumes(lake, dataset) as volumes:
        plan, _ = plan_evaluation(volumes, config, dataset, "select")
        if not plan.surveys or len(candidates) == 1:
            return candidates[-1]
        errors = [_selection_error(lake, volumes, plan, checkpoint) for checkpoint in candidates]
    if min(errors) == math.inf:
        raise EvaluationError(f"no checkpoint of run {config.run} predicts finite amplitudes; train it again")
    return min(zip(errors, candidates, strict=True), key=lambda each: (each[0], -each[1].step))[1]


def trained_model(lake: Lake, plan: EvaluationPlan, checkpoint: CheckpointManifest) -> MaskedAutoencoder:
    """The checkpoint's model, ready to predict. Raises ``EvaluationError`` when the plan's masks do not fit it."""
    if checkpoint.config.model.patch != plan.patch:
        raise EvaluationError(
            f"run {checkpoint.run} cuts patches of {checkpoint.config.model.patch} voxels, the evaluation hides "
            f"patches of {plan.patch}: the two cannot be given the same task; train a candidate with the champion's "
            "patch, or against a registry without that champion"
        )
    model = MaskedAutoencoder(checkpoint.config.model)
    model.load_state_dict(load_weights(lake, checkpoint.run, checkpoint.step))
    return _ready(model)


@torch.inference_mode()
def predict(model: MaskedAutoencoder, batch: RegionBatch, plan: EvaluationPlan) -> FloatArray:
    """Normalised amplitudes (B, I, X, Z): the model's where tokens are hidden, elsewhere the given ones."""
    shard, device = plan.shard, model.decoder.mask_token.device
    patches_BLP, live_BLP = (
        patchify(torch.from_numpy(each).to(device), shard.layout, shard.tokens)
        for each in (batch.values_BIXZ, batch.live_BIXZ)
    )
    masks = batch.masks.to(device)
    spacing_3 = relative_spacing(batch.manifest, model.config.reference_spacing)
    spacing_B3 = torch.tensor(spacing_3, dtype=torch.float64, device=device).expand(len(patches_BLP), 3)
    made = model(patches_BLP, live_BLP, masks, shard, spacing_B3=spacing_B3)
    filled_BLP = filled_in(patches_BLP, masks, made.prediction_BMP)
    predicted_BIXZ: FloatArray = unpatchify(filled_BLP, shard.layout, shard.tokens).cpu().numpy()
    return predicted_BIXZ


def _ready(model: MaskedAutoencoder) -> MaskedAutoencoder:
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def _nothing_scored(config: RunConfig, unscored: list[Unscored]) -> str:
    reasons = "\n".join(f"  {each.survey}: {each.reason}" for each in unscored)
    return (
        f"{config.dataset} has nothing to score:\n{reasons}\n"
        "take in larger surveys, hold one out wholly, or freeze with a smaller window or smaller cells"
    )


def _selection_error(
    lake: Lake, volumes: Mapping[str, SurveyVolume], plan: EvaluationPlan, checkpoint: CheckpointManifest
) -> float:
    """Mean over surveys of the model's error; infinite when it predicts amplitudes that are not finite."""
    model = trained_model(lake, plan, checkpoint)
    errors = []
    for planned in plan.surveys:
        squared_error = energy = 0.0
        for batch in read_regions(volumes[planned.survey], planned.origins, plan):
            made_BIXZ = amplitudes(predict(model, batch, plan), volumes[planned.survey].manifest.normalisation)
            squared_error += float(squared_sums(made_BIXZ - batch.truth_BIXZ, batch.scored_BIXZ).sum())
            energy += float(squared_sums(batch.truth_BIXZ, batch.scored_BIXZ).sum())
        if energy:
            errors.append(math.sqrt(squared_error / energy))
    mean = sum(errors) / max(len(errors), 1)
    return mean if math.isfinite(mean) else math.inf


def _score_survey(
    volume: SurveyVolume,
    planned: PlannedSurvey,
    plan: EvaluationPlan,
    models: Mapping[str, MaskedAutoencoder],
    checkpoint: CheckpointManifest,
) -> SurveyScore | Unscored:
    regions: list[RegionScore] = []
    for batch in read_regions(volume, planned.origins, plan):
        predictions = dict(_predictions(batch, plan, models))
        if not np.isfinite(predictions["model"]).all():
            raise EvaluationError(
                f"run {checkpoint.run}, step {checkpoint.step} predicts amplitudes that are not finite in "
                f"survey {planned.survey}; take an earlier checkpoint or train it again"
            )
        regions += _score_regions(batch, predictions, volume.manifest.normalisation)
    if not regions:
        return Unscored(survey=planned.survey, reason="the hidden voxels of its regions hold nothing but zeros")
    return SurveyScore(
        survey=planned.survey,
        digest=planned.digest,
        unseen=planned.unseen,
        scores={method: bootstrap.score(regions, method) for method in METHODS},
        regions=regions,
    )


def _score_regions(
    batch: RegionBatch, predictions: Mapping[Method, FloatArray], rule: Normalisation
) -> list[RegionScore]:
    """The scores of the regions that have any amplitude to predict."""
    energy_B = squared_sums(batch.truth_BIXZ, batch.scored_BIXZ)
    voxels_B = batch.scored_BIXZ.sum(axis=(1, 2, 3))
    squared_error, correlation = {}, {}
    for method, values_BIXZ in predictions.items():
        amplitudes_BIXZ = amplitudes(values_BIXZ, rule)
        squared_error[method] = squared_sums(amplitudes_BIXZ - batch.truth_BIXZ, batch.scored_BIXZ)
        correlation[method], traces_B = trace_correlations(amplitudes_BIXZ, batch.truth_BIXZ, batch.scored_BIXZ)
    return [
        RegionScore(
            origin=origin,
            voxels=int(voxels_B[b]),
            traces=int(traces_B[b]),
            energy=energy_B[b],
            squared_error={method: sums_B[b] for method, sums_B in squared_error.items()},
            correlation={method: means_B[b] for method, means_B in correlation.items()},
        )
        for b, origin in enumerate(batch.origins)
        if energy_B[b] > 0
    ]


def amplitudes(values_BIXZ: FloatArray, rule: Normalisation) -> Float64Array:
    """From normalised amplitudes to those of the survey."""
    return values_BIXZ.astype(np.float64) * rule.scale + rule.centre


def _predictions(
    batch: RegionBatch, plan: EvaluationPlan, models: Mapping[str, MaskedAutoencoder]
) -> Iterator[tuple[Method, FloatArray]]:
    """Normalised amplitudes (B, I, X, Z) by every method."""
    yield "model", predict(models["model"], batch, plan)
    yield "zero", np.zeros_like(batch.values_BIXZ)
    yield "neighbours", baselines.neighbours(batch.values_BIXZ, batch.known_BIXZ, plan.patch)
    yield "interpolation", baselines.interpolation(batch.values_BIXZ, batch.known_BIXZ, plan.patch)
    yield "untrained", predict(models["untrained"], batch, plan)
