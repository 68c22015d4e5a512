"""Which models know a survey: by their own data, by their parent's, and what the command says of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from lineages import NEW, OLD, frozen, run
from published import manifest_of

from flows.survey_command import main
from ingestion.lake import Lake
from ingestion.manifest import manifest_key
from seismic_model.data.dataset import dataset_key
from seismic_model.registry.audit import Action, AuditEntry, record
from seismic_model.registry.lineage import models_of


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    lake = Lake(str(tmp_path / "lake"))
    for version, digest in enumerate((OLD, NEW)):
        manifest = manifest_of("north", (4, 4, 4), digest=digest, version=version)
        lake.write(manifest_key("north", digest), manifest.to_bytes())
    return lake


def noted(lake: Lake, minute: int, action: Action, version: str, **before: str) -> None:
    record(
        lake,
        AuditEntry(
            at=datetime(2026, 11, 30, tzinfo=UTC) + timedelta(minutes=minute),
            action=action,
            model="m",
            version=version,
            by="ann",
            reason=None,
            weights_sha256=None,
            aliases_before={name.replace("_", "-"): number for name, number in before.items()},
        ),
    )


@pytest.fixture
def history(lake: Lake) -> Lake:
    with_old = frozen(lake, "2026-W47", north=(OLD, 0.25), south=(OLD, 0.75))
    with_new = frozen(lake, "2026-W48", north=(NEW, 0.5), south=(OLD, 0.5))
    scored = frozen(lake, "2026-W49", north=(NEW, 0.0), south=(OLD, 1.0))
    without = frozen(lake, "2026-W50", south=(OLD, 1.0))
    run(lake, "first", with_old, version="1")
    run(lake, "second", with_new)
    run(lake, "scored", scored, version="2")
    run(lake, "child-of-scored", without, parent="scored")
    run(lake, "clean", without)
    run(lake, "child", without, parent="first", version="3")
    run(lake, "grandchild", without, parent="child")
    return lake


def test_models_are_found_by_their_data_and_by_their_parents(history: Lake) -> None:
    found = models_of(history, "north")
    assert {m.run: (m.digest, m.weight, m.parent, m.trained) for m in found.models} == {
        "first": (OLD, 0.25, None, True),
        "second": (NEW, 0.5, None, True),
        "scored": (NEW, 0.0, None, False),
        "child": (None, 0.0, "first", True),
        "grandchild": (None, 0.0, "child", True),
    }
    assert {m.run: m.week for m in found.models}["second"] == "2026-W48"
    assert found.unknown == []
    assert {model.run for model in models_of(history, "north", NEW).models} == {"second", "scored"}
    assert models_of(history, "west").models == []


def test_what_cannot_be_read_is_never_taken_for_clean(history: Lake) -> None:
    history.write("runs/clean/config.json", b"{")
    history.write(dataset_key("2026-W48"), b"{")
    unknown = models_of(history, "north").unknown
    assert len(unknown) == 2
    assert "runs/clean/config.json" in unknown[0]
    assert "2026-W48.json" in unknown[1]
    assert "data set of second" in unknown[1]


def survey(lake: Lake, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--lake", lake.uri])


WHY = ("--reason", "licence ended", "--by", "ann")


def test_withdrawing_names_the_champion_first_and_every_other_model(history: Lake) -> None:
    noted(history, 1, "approve", "1", challenger="1")
    noted(history, 2, "approve", "3", challenger="3", champion="1")
    result = survey(history, "withdraw", "north", *WHY)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("survey north is withdrawn on ")
    assert lines[0].endswith("by ann: licence ended")
    assert lines[1].startswith("version 3 is @champion and was trained on it: the champion before (version 1) was too")
    assert "sfm review retire" in lines[1]
    assert lines[2].strip() == "run child; began with the weights of first; version 3 (@champion, last: approve)"
    assert (
        "run first; week 2026-W47, version 111111111111, 25.0% of the crops; version 1 (@previous-champion" in lines[3]
    )
    assert "run scored; week 2026-W49, version 222222222222, only scored on held-out places" in result.stdout
    assert "run clean" not in result.stdout
    assert "the registry was not asked" in lines[-1]
    again = survey(history, "withdraw", "north", *WHY)
    assert (again.exit_code, again.stdout.splitlines()[1:]) == (0, lines[1:])
    assert "it is so already" in again.stdout
    assert len(list(history.objects("withdrawals"))) == 1


def test_a_champion_whose_forerunner_is_clean_can_be_rolled_back(history: Lake) -> None:
    noted(history, 1, "approve", "3", challenger="3", champion="2")
    assert (
        "version 3 is @champion and was trained on it: `sfm review rollback"
        in survey(history, "models", "north").stdout
    )
    noted(history, 2, "rollback", "3", champion="3", previous_champion="2")
    said = survey(history, "models", "north").stdout
    assert said.startswith("version 2 is @champion; it was only scored on it")
    noted(history, 3, "retire", "2", champion="2")
    assert "@champion" not in survey(history, "models", "north").stdout


def test_restoring_an_older_version_makes_it_the_one_in_use(history: Lake) -> None:
    survey(history, "withdraw", "north", *WHY)
    assert json.loads(survey(history, "list", "--json").stdout)["published"][0]["withdrawn"]["by"] == "ann"
    assert "withdrawn on" in survey(history, "show", "north").stdout
    facts = json.loads(survey(history, "restore", "north", *WHY, "--digest", "11", "--json").stdout)
    assert (facts["digest"], facts["changed"], facts["event"]["action"]) == (OLD, True, "restore")
    [row] = json.loads(survey(history, "list", "--json").stdout)["published"]
    assert (row["digest"], row["withdrawn"], row["versions"], row["verdict"]) == (OLD, None, 2, "not validated")
    versions = json.loads(survey(history, "show", "north", "--json").stdout)["versions"]
    assert [(each["digest"], each["withdrawn"] is None) for each in versions] == [(OLD, True), (NEW, False)]
    assert "it is so already" in survey(history, "restore", "north", *WHY, "--digest", "11").stdout
    assert survey(history, "restore", "north", *WHY).stdout.startswith("survey north is restored on ")
    assert "it is so already" in survey(history, "restore", "north", *WHY).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["withdraw", "nroth", *WHY], "no survey 'nroth'"),
        (["withdraw", "north", *WHY, "--digest", "9"], "0 versions of survey north begin with '9'"),
        (["restore", "north", *WHY, "--digest", ""], "there are: 222222222222, 111111111111"),
        (["withdraw", "north", "--by", "ann"], "--reason"),
        (["withdraw", "north", "--by", " ", "--reason", "x"], "expected a few words"),
        (["withdraw", "north", *WHY, "--tracking-uri", "sqlite:////absent/mlflow.db"], "there is no registry"),
    ],
)
def test_what_cannot_be_is_said(history: Lake, arguments: list[str], said: str) -> None:
    result = survey(history, *arguments)
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert isinstance(result.exception, SystemExit)
