"""What a reviewer reads in the registry about one version, as Markdown."""

from __future__ import annotations

from seismic_model.data.dataset import Dataset
from seismic_model.evaluation.scores import Comparison, Decision, Evaluation, Interval
from seismic_model.training.checkpoint import CheckpointManifest

MAX_LENGTH = 5000  # characters that MLflow's database takes for a description or a tag
_LIST = 1000  # characters of a list that may have hundreds of surveys

_HEADER = """| survey | error | {reference} | gain, 95 % interval | correlation |
|---|---|---|---|---|
"""


def describe(
    checkpoint: CheckpointManifest, dataset: Dataset, evaluation: Evaluation, decision: Decision, artifacts: str
) -> str:
    """At most ``MAX_LENGTH`` characters; surveys that do not fit into the table are the ones that gained most."""
    reasons = "\n".join(f"- {_text(each)}" for each in decision.reasons)
    before = f"{_headline(checkpoint, dataset, decision)}\n\n{reasons}"
    after = "\n\n".join([_not_scored(evaluation), _origin(checkpoint, dataset), _where(artifacts)])
    room = MAX_LENGTH - len(before) - len(after) - len("\n\n\n\n")
    return f"{before}\n\n{_table(evaluation, decision, room)}\n\n{after}"[:MAX_LENGTH]


def licences(dataset: Dataset) -> str:
    """The licences of all data that the model was trained or scored on."""
    return ", ".join(sorted({entry.licence or "not said" for entry in dataset.surveys}))


def lineage(dataset: Dataset) -> str:
    """``survey@digest`` of everything in the data set; digests are cut to 12 digits."""
    return _shortened(" ".join(f"{entry.survey}@{entry.digest[:12]}" for entry in dataset.surveys))


def _headline(checkpoint: CheckpointManifest, dataset: Dataset, decision: Decision) -> str:
    rival = (
        f"champion {decision.champion_run}, step {decision.champion_step}"
        if decision.champion_run
        else "the best trivial baseline (there was no champion)"
    )
    return (
        f"**Week {dataset.week}**, run `{checkpoint.run}`, step {checkpoint.step}: mean error over surveys "
        f"**{decision.candidate:.4f}** against {decision.reference:.4f} of {rival}, "
        f"a gain of **{decision.gain:.1%}** ({_interval(decision.gain_interval)}). "
        "Error is the root of squared error over squared amplitude on hidden voxels of held-out places; 1 is no better "
        "than silence."
    )


def _table(evaluation: Evaluation, decision: Decision, room: int) -> str:
    """The surveys with the smallest gain first, as many as there is room for."""
    correlations = {survey.survey: survey.scores["model"].correlation for survey in evaluation.surveys}
    table = _HEADER.format(reference="champion" if decision.champion_run else "best baseline")
    rows = [_row(each, correlations) for each in sorted(decision.surveys, key=lambda each: each.gain)]
    left_out = "… and {} more in `evaluation.json`"
    for number, row in enumerate(rows):
        if len(table) + len(row) + len(left_out) + 5 > room:
            return table + left_out.format(len(rows) - number)
        table += row
    return table.rstrip("\n")


def _row(comparison: Comparison, correlations: dict[str, float]) -> str:
    name = comparison.survey + (" (unseen basin)" if comparison.unseen else "")
    return (
        f"| {name} | {comparison.candidate:.4f} | {comparison.reference:.4f} {comparison.reference_name} | "
        f"{comparison.gain:.1%} ({_interval(comparison.gain_interval)}) | {correlations[comparison.survey]:.3f} |\n"
    )


def _not_scored(evaluation: Evaluation) -> str:
    names = "; ".join(f"{each.survey} ({_text(each.reason)})" for each in evaluation.unscored)
    return f"Not scored: {_shortened(names)}." if names else "Every survey of the data set was scored."


def _origin(checkpoint: CheckpointManifest, dataset: Dataset) -> str:
    config, init = checkpoint.config, checkpoint.config.init
    start = f"weights of {init.run}, step {init.step}" if init.origin == "weights" else "scratch"
    return "\n".join(
        [
            f"- data set `{config.dataset}`, SHA-256 `{config.dataset_sha256[:12]}`: {lineage(dataset)}",
            f"- licence of the data: {_shortened(_text(licences(dataset)))}",
            f"- {config.steps} steps of {config.batch} crops of {config.window} voxels, "
            f"{config.keep_ratio:.0%} visible, seed {config.seed}, started from {start}",
            f"- weights `{checkpoint.weights_sha256}`",
        ]
    )


def _where(artifacts: str) -> str:
    return (
        f"Pictures, `evaluation.json`, `config.json` and `dataset.json` are artifacts of the source run, under "
        f"`{artifacts}`. Decide with `sfm review approve` or `sfm review reject`."
    )


def _interval(interval: Interval) -> str:
    return f"{interval.low:.1%} to {interval.high:.1%}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LIST else f"{text[:_LIST]} …"


def _text(value: str) -> str:
    """Strangers' words, as words and not as Markdown or HTML."""
    plain = "".join(c if c.isprintable() else " " for c in value)
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in plain)
