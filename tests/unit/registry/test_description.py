"""A description fits into the registry whatever a week holds, and shows strangers' words as words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import plan
from registered import decision_on, evaluation_of

from ingestion.lake import Lake
from ingestion.manifest import StoredKey
from seismic_model.data.dataset import Dataset, load_dataset
from seismic_model.registry.description import MAX_LENGTH, describe, licences
from seismic_model.training.checkpoint import CheckpointManifest

Week = tuple[CheckpointManifest, Dataset]


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Week:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    config = plan(lake)
    manifest = CheckpointManifest(
        run="first",
        step=5,
        samples=20,
        applied_steps=5,
        weights_sha256="a" * 64,
        config=config,
        files={
            f"{kind}-00001-of-00001-{'b' * 16}.safetensors": StoredKey(size=1, sha256="b" * 64)
            for kind in ("model", "optimizer")
        },
        processes=1,
        created=datetime(2026, 11, 30, tzinfo=UTC),
    )
    return manifest, load_dataset(lake, config.dataset)


def many(dataset: Dataset, count: int, licence: str | None) -> Dataset:
    entry = dataset.surveys[0]
    surveys = [
        entry.model_copy(update={"survey": f"survey-{n:03d}-{'x' * (n % 100)}", "licence": licence})
        for n in range(count)
    ]
    return dataset.model_copy(update={"surveys": surveys})


@given(st.integers(1, 300), st.integers(0, 3), st.text(max_size=2000))
def test_any_week_fits_with_the_worst_surveys_shown(week: Week, count: int, reasons: int, licence: str) -> None:
    manifest, dataset = week[0], many(week[1], count, licence)
    evaluation = evaluation_of(manifest, dataset)
    decision = decision_on(evaluation)
    worst = count // 2
    surveys = [
        each.model_copy(update={"gain": -0.4321 if n == worst else 0.2}) for n, each in enumerate(decision.surveys)
    ]
    decision = decision.model_copy(update={"surveys": surveys, "reasons": ["a reason"] * (reasons + 1)})
    text = describe(manifest, dataset, evaluation, decision, "review/first")
    assert len(text) <= MAX_LENGTH
    assert f"| {dataset.surveys[worst].survey} | 0.5000 | 0.6250 interpolation | -43.2%" in text
    assert manifest.weights_sha256 in text
    shown = text.count("| survey-")
    assert shown == count or f"… and {count - shown} more in `evaluation.json`" in text


def test_a_licence_cannot_write_markdown(week: Week) -> None:
    manifest, dataset = week[0], many(week[1], 1, "![x](http://evil/x.png)<b>\n# free")
    evaluation = evaluation_of(manifest, dataset)
    text = describe(manifest, dataset, evaluation, decision_on(evaluation), "review/first")
    assert r"\!\[x\](http://evil/x.png)\<b\> \# free" in text


def test_a_licence_that_is_not_said_is_said(week: Week) -> None:
    assert licences(many(week[1], 2, None)) == "not said"
