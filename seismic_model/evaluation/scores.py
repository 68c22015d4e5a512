"""What an evaluation and a decision say, as they are stored: the contract with registry, reports and reviewers."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from ingestion.manifest import Contract, Digest, SafeName
from seismic_model.config import Triple, run_folder

Baseline = Literal["zero", "neighbours", "interpolation", "untrained"]
Method = Literal["model", "zero", "neighbours", "interpolation", "untrained"]
Reference = Literal["champion", "zero", "neighbours", "interpolation", "untrained"]

BASELINES: tuple[Baseline, ...] = get_args(Baseline)
METHODS: tuple[Method, ...] = get_args(Method)


class EvaluationError(Exception):
    """Nothing can be scored or compared as asked; the message says what was found and what to do."""


class Interval(Contract):
    """95 % bootstrap interval over lateral places; over regions where there is one place, a point for one region."""

    low: float
    high: float


class Score(Contract):
    """How well one method fills in hidden voxels, in amplitude space."""

    error: float = Field(ge=0)  # root of (sum of squared errors / sum of squared amplitudes); 0 is perfect
    error_interval: Interval
    correlation: float = Field(ge=-1, le=1)  # mean over traces of Pearson's r over the trace's hidden samples
    correlation_interval: Interval


class RegionScore(Contract):
    """Sums over the hidden live voxels of one held-out region."""

    origin: Triple  # inline, crossline and sample index
    voxels: int = Field(gt=0)
    traces: int = Field(ge=0)  # whose hidden samples vary, so that they can be correlated
    energy: float = Field(gt=0)  # sum of squared amplitudes
    squared_error: dict[Method, float]
    correlation: dict[Method, float]  # mean over the region's traces


class SurveyScore(Contract):
    """One survey: every method on the same regions and the same masks."""

    survey: SafeName
    digest: Digest
    unseen: bool  # the whole survey is held out, so its basin is new to the model
    scores: dict[Method, Score]
    regions: list[RegionScore] = Field(min_length=1)

    @property
    def best_baseline(self) -> Baseline:
        """The baseline with the smallest error here."""
        return min(BASELINES, key=lambda baseline: self.scores[baseline].error)


class Unscored(Contract):
    """A survey of the data set that has nothing to score, and why."""

    survey: SafeName
    reason: str


class Evaluation(Contract):
    """``runs/<run>/evaluation.json``: one checkpoint on the held-out regions of one data set."""

    schema_version: Literal[1] = 1
    run: SafeName
    step: int = Field(ge=0)
    weights_sha256: Digest
    dataset: str  # key of the frozen data set on the lake
    dataset_sha256: Digest
    evaluation_key: Digest  # of regions, masks and evaluation version; equal keys may be compared
    surveys: list[SurveyScore] = Field(min_length=1)
    unscored: list[Unscored]

    @property
    def judged(self) -> list[SurveyScore]:
        """Surveys whose mean counts: those that are not unseen, or all when there are no others."""
        return [survey for survey in self.surveys if not survey.unseen] or self.surveys

    def mean_error(self, method: Method = "model") -> float:
        """Mean over the judged surveys, each counting once."""
        return sum(survey.scores[method].error for survey in self.judged) / len(self.judged)


class Comparison(Contract):
    """Candidate against what it has to beat, on one survey."""

    survey: SafeName
    unseen: bool
    candidate: float  # error
    reference: float  # error
    reference_name: Reference
    gain: float  # 1 - candidate / reference; negative when the candidate is worse
    gain_interval: Interval  # both resampled over the same places


class Decision(Contract):
    """Whether a candidate goes up for review, and why."""

    promote: bool
    reasons: list[str] = Field(min_length=1)  # sentences for people; all that failed, or what was met
    candidate_run: SafeName
    candidate_step: int
    champion_run: SafeName | None  # None: the best baseline of each survey was the reference
    champion_step: int | None
    evaluation_key: Digest
    candidate: float  # mean error over the judged surveys
    reference: float
    gain: float
    gain_interval: Interval
    surveys: list[Comparison]


def evaluation_path(run: str) -> str:
    """``runs/<run>/evaluation.json``."""
    return f"{run_folder(run)}/evaluation.json"
