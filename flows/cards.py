"""What people see of a step in Metaflow's cards: pictures, findings, and training as it happens.

Words go into tables, labels and bars, which show them as they are: in ``Markdown`` a stranger's link would work.
"""

from __future__ import annotations

from typing import Any

from metaflow.cards import Image, ProgressBar, Table, VegaChart

from flows.surveys import SurveyOutcome
from seismic_model.training.metrics import describe


def survey(card: Any, outcome: SurveyOutcome, pictures: dict[str, bytes]) -> None:
    """What became of one survey."""
    card.append(Table([[outcome.survey, outcome.status]], headers=["survey", "verdict"]))
    if outcome.findings:
        rows = [[f.severity, f.code, f.found, f.expected, f.release] for f in outcome.findings]
        card.append(Table(rows, headers=["severity", "code", "found", "expected", "what would release it"]))
    for caption, picture in pictures.items():
        card.append(Image(picture, label=caption))


def survey_line(outcome: SurveyOutcome) -> str:
    """One survey's outcome in words."""
    line = f"{outcome.survey}: {outcome.status}"
    reasons = [finding for finding in outcome.findings if finding.severity == "hold"]
    if reasons:
        line += "".join(
            f"\n  {f.code}: found {f.found}; expected {f.expected}; to release it: {f.release}" for f in reasons
        )
    return line


class Training:
    """A loss curve and a progress bar that grow while the job runs."""

    def __init__(self, card: Any, steps: int) -> None:
        self._card = card
        self._step = 0
        self._progress = ProgressBar(max=steps, label="optimiser steps", metadata="waiting for the first step")
        self._curve = VegaChart(_loss_curve([]))
        for part in (self._progress, self._curve):
            card.append(part)
        card.refresh()

    def update(self, metrics: list[dict[str, Any]]) -> None:
        """Show ``metrics``, one entry a logged step."""
        last = metrics[-1]
        self._step = last["step"]
        self._progress.update(self._step, metadata=describe(last))
        self._curve.update(_loss_curve(metrics))
        self._card.refresh()

    def say(self, words: str) -> None:
        """Show what the job is doing besides its steps."""
        self._progress.update(self._step, metadata=words)
        self._card.refresh()


def _loss_curve(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    every = max(1, len(metrics) // 500)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 640,
        "height": 280,
        "data": {"values": [{"step": m["step"], "loss": m["loss"]} for m in metrics[::every] if "loss" in m]},
        "mark": {"type": "line"},
        "encoding": {
            "x": {"field": "step", "type": "quantitative", "title": "optimiser step"},
            "y": {"field": "loss", "type": "quantitative", "title": "training loss", "scale": {"zero": False}},
        },
    }
