"""One short training, and what it has learned: held-out reconstruction and a linear probe for faults.

The loop is the plain one of a single process; model, masks, crops, schedule and optimiser are the project's own.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.trials.surveys import TrainingCrops, cut, cut_faults, made_survey, tiles
from ingestion.synthetic import BASINS
from seismic_model.config import MODEL_SIZES, ModelConfig, RunConfig, Triple
from seismic_model.data.reader import MicroBatch
from seismic_model.data.sampling import CropSpec
from seismic_model.data.store import BoolArray, FloatArray
from seismic_model.evaluation.probes import fit_probe, patch_labels
from seismic_model.model.encoder import Encoder
from seismic_model.model.mae import MaskedAutoencoder, decoded
from seismic_model.model.masking import Masking, Shard, TokenLayout, patchify
from seismic_model.parallel.strategies.base import adamw
from seismic_model.training.loop import learning_rate
from seismic_model.training.tokens import TokenBatch, tokens_of

Float64Array = npt.NDArray[np.float64]
Survey = tuple[str, int]  # basin and seed

UNSEEN = "salt_flank"  # the basin that nothing is trained on
TRAINED: list[Survey] = [(basin, seed) for seed in (1, 3, 5) for basin in BASINS if basin != UNSEEN]
HELD_OUT: list[Survey] = [(basin, seed) for seed in (2, 4) for basin in BASINS]

_MASK_SEED = 2**32  # of the scoring; no training has it
_REGIONS, _PATCHES = 24, 7_000  # of one survey, at most
_PROBE_PATCHES = 40_000  # that a probe is fitted to


@dataclass(frozen=True)
class SurveyTrial:
    """What a trained model does on the regions of one held-out survey, each at another place."""

    squared_error_R: Float64Array  # summed over hidden live voxels
    energy_R: Float64Array
    logits_RL: Float64Array  # of the probe, for every patch


def trial_config(
    window: Triple,
    steps: int,
    batch: int,
    seed: int,
    model: ModelConfig = MODEL_SIZES["tiny"],
    decode_share: float = 1.0,
) -> RunConfig:
    """The demo's recipe for another window and number of steps; it lies on no lake."""
    return RunConfig(
        lake=Path("nowhere").absolute().as_uri(),
        run="trial",
        dataset="datasets/none.json",
        dataset_sha256="0" * 64,
        model=model,
        window=window,
        decode_share=decode_share,
        seed=seed,
        steps=steps,
        batch=batch,
        learning_rate=3e-3,
        warmup_steps=40,
    )


def shard_of(config: RunConfig) -> Shard:
    """All tokens of a crop."""
    layout = TokenLayout(config.window, config.model.patch)
    return Shard.of(layout, Masking(config.keep_ratio, config.seed, config.decode_share))


def train(config: RunConfig) -> MaskedAutoencoder:
    """Train from new weights on ``TRAINED``."""
    shard, model = shard_of(config), MaskedAutoencoder(config.model, config.seed)
    optimiser = adamw(dict(model.named_parameters()), config)
    crops = TrainingCrops([made_survey(*each) for each in TRAINED], config.window, config.seed)
    for done in range(config.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(config, done)
        batch = tokens_of(crops.batch(done, config.batch), config, shard)
        train_step(model, optimiser, batch, shard, config.gradient_clip)
    return model


def train_step(
    model: MaskedAutoencoder, optimiser: torch.optim.Optimizer, batch: TokenBatch, shard: Shard, clip: float
) -> float:
    """Forward, backward and update; the loss."""
    made = model(batch.patches_BLP, batch.live_BLP, batch.masks, shard)
    loss = made.loss_sum / made.count.clamp(min=1)
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimiser.step()
    return float(loss.detach())


@torch.inference_mode()
def score(model: MaskedAutoencoder, config: RunConfig) -> dict[Survey, SurveyTrial]:
    """Fill in all hidden tokens of ``HELD_OUT``, and find faults there by a probe fitted on ``TRAINED``."""
    logits = probe(model.encoder, TokenLayout(config.window, config.model.patch))
    everything = config.model_copy(update={"decode_share": 1.0, "seed": _MASK_SEED})
    shard, scores = shard_of(everything), {}
    for survey in HELD_OUT:
        regions = _regions(survey, shard.layout)
        batch = tokens_of(regions, everything, shard)
        made = model(batch.patches_BLP, batch.live_BLP, batch.masks, shard)
        target_BMP, live_BMP = (decoded(each, batch.masks) for each in (batch.patches_BLP, batch.live_BLP))
        error_BMP = torch.where(live_BMP, made.prediction_BMP - target_BMP, 0)
        error_R, energy_R = (each.double().square().sum((1, 2)).numpy() for each in (error_BMP, target_BMP))
        scores[survey] = SurveyTrial(error_R, energy_R, logits[survey])
    return scores


@torch.inference_mode()
def probe(encoder: Encoder | None, layout: TokenLayout) -> dict[Survey, Float64Array]:
    """Logits (R, L) for the patches of ``HELD_OUT``; without an encoder the features are the voxels of a patch."""
    labels = [fault_labels(survey, layout) for survey in TRAINED]
    features_NF = np.concatenate(
        [_features(encoder, survey, layout)[live] for survey, (_, live) in zip(TRAINED, labels, strict=True)]
    )
    labels_N = np.concatenate([faults[live] for faults, live in labels])
    some = np.random.default_rng(0).permutation(len(labels_N))[:_PROBE_PATCHES]
    fitted = fit_probe(features_NF[some], labels_N[some])
    logits = {}
    for survey in HELD_OUT:
        features_RLF = _features(encoder, survey, layout)
        flat_NF = features_RLF.reshape(-1, features_RLF.shape[2])
        logits[survey] = fitted.logits(flat_NF).reshape(features_RLF.shape[:2])
    return logits


def fault_labels(survey: Survey, layout: TokenLayout) -> tuple[BoolArray, BoolArray]:
    """Whether a patch holds a fault, and whether it holds a live voxel (R, L): the others are not scored."""
    regions = _regions(survey, layout)
    faults_RIXZ = cut_faults(made_survey(*survey), [crop.origin for crop in regions.crops], layout.window)
    return patch_labels(faults_RIXZ, layout), patch_labels(regions.live_BIXZ, layout)


def _features(encoder: Encoder | None, survey: Survey, layout: TokenLayout) -> FloatArray:
    regions = _regions(survey, layout)
    values_BIXZ, live_BIXZ = torch.from_numpy(regions.values_BIXZ), torch.from_numpy(regions.live_BIXZ)
    if encoder is None:
        features_RLF = patchify(values_BIXZ, layout, range(layout.tokens))
    else:
        features_RLF = encoder.features(values_BIXZ, live_BIXZ, Shard.of(layout, Masking(keep_ratio=1, seed=0)))
    return features_RLF.numpy()


@functools.lru_cache(maxsize=64)
def _regions(survey: Survey, layout: TokenLayout) -> MicroBatch:
    """Tiles of a survey, one at a place, spread over places and depths."""
    made = made_survey(*survey)
    stacks: dict[tuple[int, int], list[Triple]] = {}
    for origin in tiles(made, layout.window):
        stacks.setdefault(origin[:2], []).append(origin)
    places = [stack[number % len(stack)] for number, stack in enumerate(stacks.values())]
    wanted = min(_REGIONS, _PATCHES // layout.tokens)
    spread = np.unique(np.linspace(0, len(places) - 1, wanted).round().astype(int))
    first_id = (TRAINED + HELD_OUT).index(survey) * _REGIONS
    crops = [CropSpec(0, places[at], first_id + number) for number, at in enumerate(spread)]
    return cut([made], crops, layout.window)
