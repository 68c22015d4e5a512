"""Small trained runs with made-up scores, ready to be registered."""

from __future__ import annotations

from dataclasses import dataclass

from planned import one_process, plan
from saved import save

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.data.dataset import Dataset, load_dataset
from seismic_model.evaluation.scores import METHODS, Comparison, Decision, Evaluation, Interval, Score, SurveyScore
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.parallel import strategies
from seismic_model.registry.register import register
from seismic_model.training import checkpoint
from seismic_model.training.checkpoint import CheckpointManifest

PNG = b"\x89PNG\r\n\x1a\n made up"
KEY = "e" * 64


@dataclass
class Candidate:
    """What ``register`` takes, in its order."""

    lake: Lake
    config: RunConfig
    checkpoint: CheckpointManifest
    dataset: Dataset
    evaluation: Evaluation
    decision: Decision
    pictures: dict[str, bytes]

    def register(self, tracking_uri: str) -> str:
        return register(**vars(self), tracking_uri=tracking_uri)


def candidate(lake: Lake, run: str = "first", seed: int = 1, champion_run: str | None = None) -> Candidate:
    """A run whose checkpoint at step 5 holds random weights, and won."""
    config = plan(lake, run, seed=seed)
    with one_process() as mesh:
        strategy = strategies.build(MaskedAutoencoder(config.model, seed), config, mesh)
        save(lake, config, strategy, 5)
    manifest = checkpoint.committed(lake, run)[-1]
    dataset = load_dataset(lake, config.dataset, config.dataset_sha256)
    evaluation = evaluation_of(manifest, dataset)
    return Candidate(
        lake, config, manifest, dataset, evaluation, decision_on(evaluation, champion_run), {"north section": PNG}
    )


def evaluation_of(manifest: CheckpointManifest, dataset: Dataset) -> Evaluation:
    score = Score(
        error=0.5,
        error_interval=Interval(low=0.45, high=0.55),
        correlation=0.875,
        correlation_interval=Interval(low=0.85, high=0.9),
    )
    region = {
        "origin": (0, 0, 0),
        "voxels": 10,
        "traces": 2,
        "energy": 1.0,
        "squared_error": dict.fromkeys(METHODS, 0.25),
        "correlation": dict.fromkeys(METHODS, 0.875),
    }
    surveys = [
        SurveyScore.model_validate(
            {
                "survey": entry.survey,
                "digest": entry.digest,
                "unseen": False,
                "scores": dict.fromkeys(METHODS, score),
                "regions": [region],
            }
        )
        for entry in dataset.surveys
    ]
    return Evaluation(
        run=manifest.run,
        step=manifest.step,
        weights_sha256=manifest.weights_sha256,
        dataset=manifest.config.dataset,
        dataset_sha256=manifest.config.dataset_sha256,
        evaluation_key=KEY,
        surveys=surveys,
        unscored=[],
    )


def decision_on(evaluation: Evaluation, champion_run: str | None = None, promote: bool = True) -> Decision:
    gain = Interval(low=0.1, high=0.3)
    return Decision(
        promote=promote,
        reasons=["beats it by 20.0 %, more than 5 %"],
        candidate_run=evaluation.run,
        candidate_step=evaluation.step,
        champion_run=champion_run,
        champion_step=5 if champion_run else None,
        evaluation_key=evaluation.evaluation_key,
        candidate=0.5,
        reference=0.625,
        gain=0.2,
        gain_interval=gain,
        surveys=[
            Comparison(
                survey=each.survey,
                unseen=each.unseen,
                candidate=0.5,
                reference=0.625,
                reference_name="champion" if champion_run else "interpolation",
                gain=0.2,
                gain_interval=gain,
            )
            for each in evaluation.surveys
        ],
    )
