"""Which registered models know a survey, asked of a real registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from lineages import OLD, frozen, run
from mlflow import MlflowClient
from published import manifest_of

from flows.survey_command import main
from ingestion.lake import Lake
from ingestion.manifest import manifest_key
from seismic_model.registry.lineage import models_of
from seismic_model.registry.versions import MODEL_NAME


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path / "lake"))
    lake.write(manifest_key("north", OLD), manifest_of("north", (4, 4, 4), digest=OLD).to_bytes())
    return lake


def test_the_registry_says_which_versions_and_what_it_cannot_know(lake: Lake, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    client.create_registered_model(MODEL_NAME)
    week = frozen(lake, "2026-W47", north=(OLD, 1.0))
    run(lake, "mine", week, version="77")  # the lake's own note, which the registry overrules
    run(lake, "silent", week)
    for name, where in (("mine", lake.uri), ("mine", lake.uri), ("mine", "s3://elsewhere"), ("gone", lake.uri)):
        client.create_model_version(
            MODEL_NAME, "file:///x", tags={"sfm.run": name, "sfm.lake": where, "review.status": "approved"}
        )
    client.set_registered_model_alias(MODEL_NAME, "champion", "2")
    client.set_registered_model_alias(MODEL_NAME, "previous-champion", "4")

    found = models_of(lake, "north", client=client)
    assert found.registry_asked
    assert {model.run: [(v.version, v.aliases) for v in model.versions] for model in found.models} == {
        "mine": [("2", ["champion"]), ("1", [])],
        "silent": [],
    }
    assert sorted(found.unknown) == [
        "version 3 comes from run mine on s3://elsewhere, which this lake does not hold",
        "version 4 (@previous-champion) comes from run gone, which this lake does not hold",
    ]
    said = CliRunner().invoke(
        main, ["withdraw", "north", "--lake", lake.uri, "--by", "ann", "--reason", "x", "--tracking-uri", uri]
    )
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines()[1].startswith("version 2 is @champion and was trained on it: `sfm review rollback")
    assert "the registry was not asked" not in said.stdout


def test_a_registry_that_does_not_answer_keeps_no_withdrawal_back(lake: Lake) -> None:
    said = CliRunner().invoke(
        main,
        ["withdraw", "north", "--lake", lake.uri, "--by", "a", "--reason", "x", "--tracking-uri", "http://127.0.0.1:9"],
    )
    assert said.exit_code == 1
    assert said.stdout.startswith("survey north is withdrawn on ")
    assert "the MLflow registry at http://127.0.0.1:9 cannot be used" in said.stderr
    assert len(list(lake.objects("withdrawals"))) == 1
