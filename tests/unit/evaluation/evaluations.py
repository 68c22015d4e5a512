"""Evaluations as an evaluation would write them, with errors given by region."""

from __future__ import annotations

import hashlib

from seismic_model.evaluation import bootstrap
from seismic_model.evaluation.scores import BASELINES, METHODS, Evaluation, RegionScore, SurveyScore


def region(place: int, error: float, baseline: float = 1.0, energy: float = 100.0) -> RegionScore:
    """One region at a lateral place of its own; all baselines have the same error."""
    errors = {"model": error} | dict.fromkeys(BASELINES, baseline)
    return RegionScore(
        origin=(32 * place, 0, 0),
        voxels=10,
        traces=4,
        energy=energy,
        squared_error={method: energy * each**2 for method, each in errors.items()},
        correlation=dict.fromkeys(METHODS, 0.5),
    )


def survey(name: str, regions: list[RegionScore], unseen: bool = False) -> SurveyScore:
    return SurveyScore(
        survey=name,
        digest=hashlib.sha256(name.encode()).hexdigest(),
        unseen=unseen,
        scores={method: bootstrap.score(regions, method) for method in METHODS},
        regions=regions,
    )


def evaluation(run: str, *surveys: SurveyScore, key: str = "0") -> Evaluation:
    return Evaluation(
        run=run,
        step=100,
        weights_sha256="a" * 64,
        dataset="datasets/2026-W48.json",
        dataset_sha256="b" * 64,
        evaluation_key=key * 64,
        surveys=list(surveys),
        unscored=[],
    )


def uniform(run: str, *, key: str = "0", **errors: float) -> Evaluation:
    """Surveys by name with the same error in each of three regions; a name that ends in ``unseen`` is unseen."""
    return evaluation(
        run,
        *(
            survey(name, [region(place, error) for place in range(3)], name.endswith("unseen"))
            for name, error in errors.items()
        ),
        key=key,
    )
