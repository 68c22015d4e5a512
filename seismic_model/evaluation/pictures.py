"""Pictures of an evaluation for people: what was hidden, what the model made of it, and errors beside baselines."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ingestion.lake import Lake
from ingestion.manifest import Axis, Manifest
from seismic_model.config import RunConfig, Triple
from seismic_model.data.dataset import Dataset
from seismic_model.data.store import BoolArray
from seismic_model.evaluation.reconstruction import amplitudes, predict, trained_model
from seismic_model.evaluation.regions import open_volumes, plan_evaluation, read_regions
from seismic_model.evaluation.scores import METHODS, Evaluation
from seismic_model.training.checkpoint import CheckpointManifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Float64Array = npt.NDArray[np.float64]

_DPI = 90
_COLOURS = "seismic"
_UNKNOWN = "0.75"  # grey: hidden, or nothing was recorded
_BARS = {
    "model": "#1f4e9c",
    "zero": "#dddddd",
    "neighbours": "#bbbbbb",
    "interpolation": "#888888",
    "untrained": "#e3cfae",
}


def pictures(
    lake: Lake, config: RunConfig, dataset: Dataset, checkpoint: CheckpointManifest, evaluation: Evaluation
) -> dict[str, bytes]:
    """PNG bytes by caption: bars of all errors, then one test region of each survey, original to difference.

    Args and errors are those of ``evaluate``; ``evaluation`` is what it said of ``checkpoint``.
    """
    drawn = {"Errors beside the baselines": _png(_bars(evaluation))}
    scored = {survey.survey for survey in evaluation.surveys}
    with open_volumes(lake, dataset) as volumes:
        plan, _ = plan_evaluation(volumes, config, dataset, "test")
        model = trained_model(lake, plan, checkpoint)
        for planned in plan.surveys:
            if planned.survey in scored:
                volume = volumes[planned.survey]
                middle = planned.origins[len(planned.origins) // 2]
                batch = next(read_regions(volume, [middle], plan))
                made_IXZ = amplitudes(predict(model, batch, plan), volume.manifest.normalisation)[0]
                panels = _panels(batch.truth_BIXZ[0], made_IXZ, batch.known_BIXZ[0], batch.live_BIXZ[0])
                caption = f"{planned.survey}{' (unseen)' if planned.unseen else ''}: held-out region, filled in"
                drawn[caption] = _png(_sections(panels, volume.manifest, middle))
    return drawn


def _panels(
    true_IXZ: Float64Array, made_IXZ: Float64Array, known_IXZ: BoolArray, live_IXZ: BoolArray
) -> dict[str, Float64Array]:
    """Amplitudes by title, NaN where nothing is to be shown; visible voxels are the original's."""
    original = np.where(live_IXZ, true_IXZ, np.nan)
    filled = np.where(known_IXZ, original, np.where(live_IXZ, made_IXZ, np.nan))
    return {
        "original": original,
        "masked": np.where(known_IXZ, original, np.nan),
        "reconstructed": filled,
        "difference": original - filled,
    }


def _sections(panels: dict[str, Float64Array], manifest: Manifest, origin: Triple) -> Figure:
    """Above an inline section, below a time or depth slice, both through the middle, all on one colour scale."""
    from matplotlib.figure import Figure

    original = panels["original"]
    i, _, z = (size // 2 for size in original.shape)
    limit = float(np.nanpercentile(np.abs(original), 99)) or 1.0
    inlines, crosslines, samples = (
        _part(axis, first, size)
        for axis, first, size in zip(
            (manifest.inline, manifest.crossline, manifest.sample), origin, original.shape, strict=True
        )
    )
    figure = Figure(figsize=(13, 6.8), dpi=_DPI, layout="constrained")
    axes = figure.subplots(2, len(panels), sharex=True, sharey="row")
    for column, (title, values_IXZ) in enumerate(panels.items()):
        _image(axes[0, column], values_IXZ[i].T, crosslines, samples, limit)
        _image(axes[1, column], values_IXZ[:, :, z], crosslines, inlines, limit)
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel("crossline")
    unit = manifest.sample.unit
    axes[0, 0].set_ylabel(f"inline {_at(inlines, i)}\n{manifest.domain} ({unit})")
    axes[1, 0].set_ylabel(f"slice at {_at(samples, z)} {unit}\ninline")
    figure.colorbar(axes[0, 0].images[0], ax=axes, shrink=0.8, label="amplitude")
    figure.suptitle(f"{manifest.survey}; grey is hidden or not recorded")
    return figure


def _image(axes: Axes, values: Float64Array, across: Axis, down: Axis, limit: float) -> None:
    left, right, top, bottom = (
        edge
        for axis in (across, down)
        for edge in (axis.first - axis.step / 2, axis.first + axis.step * (axis.count - 0.5))
    )
    axes.set_facecolor(_UNKNOWN)
    axes.imshow(
        values,
        cmap=_COLOURS,
        vmin=-limit,
        vmax=limit,
        aspect="auto",
        extent=(left, right, bottom, top),
        interpolation="nearest",
    )
    axes.locator_params(axis="x", nbins=4)


def _bars(evaluation: Evaluation) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(7.0, 1.5 * len(evaluation.surveys) + 3), 4.6), dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    places_S, width = np.arange(len(evaluation.surveys)), 0.8 / len(METHODS)
    for number, method in enumerate(METHODS):
        scores = [survey.scores[method] for survey in evaluation.surveys]
        errors = np.array([score.error for score in scores])
        ends = np.array([(score.error_interval.low, score.error_interval.high) for score in scores])
        axes.bar(
            places_S + (number + 0.5) * width - 0.4,
            errors,
            width,
            yerr=np.abs(ends.T - errors),
            capsize=2,
            color=_BARS[method],
            label=method,
        )
    axes.set_xticks(
        places_S, [f"{each.survey}\n(unseen)" if each.unseen else each.survey for each in evaluation.surveys]
    )
    axes.tick_params(axis="x", rotation=15)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylabel("error of hidden voxels / their amplitude (RMS)")
    axes.set_title(f"{evaluation.run}, step {evaluation.step}: held-out reconstruction, lower is better")
    axes.legend(fontsize=8, ncols=len(METHODS), loc="lower center", bbox_to_anchor=(0.5, 1.08))
    return figure


def _part(axis: Axis, first: int, count: int) -> Axis:
    return axis.model_copy(update={"first": axis.first + axis.step * first, "count": count})


def _at(axis: Axis, index: int) -> str:
    return f"{axis.first + axis.step * index:g}"


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")  # without pyplot: no window system, no global state
    return buffer.getvalue()
