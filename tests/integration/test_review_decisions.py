"""Reviewers' decisions on an SQLite registry: what moves, what is kept, and what a kill half-way leaves."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from ingestion.lake import Lake
from seismic_model.cli import main
from seismic_model.registry import review
from seismic_model.registry.audit import entries
from seismic_model.registry.review import Request
from seismic_model.registry.versions import MODEL_NAME, aliases, champion, version

ANN = Request("ann", "rings at faults")


class KilledError(Exception):
    pass


class Killable:
    """A client whose process is killed before its ``calls_left + 1``-th change."""

    def __init__(self, client: MlflowClient, calls_left: int) -> None:
        self._client = client
        self._calls_left = calls_left

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("set_", "delete_")):
            return getattr(self._client, name)
        if self._calls_left == 0:
            raise KilledError
        self._calls_left -= 1
        return getattr(self._client, name)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('registry') / 'mlflow.db'}"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def client(uri: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """An empty model in the registry that MLFLOW_TRACKING_URI names."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.delenv("SFM_LAKE", raising=False)
    client = MlflowClient(tracking_uri=uri)
    empty(client)
    return client


def empty(client: MlflowClient) -> None:
    with suppress(MlflowException):  # there is none yet
        client.delete_registered_model(MODEL_NAME)
    client.create_registered_model(MODEL_NAME)


def nominate(client: MlflowClient, lake: Lake) -> str:
    """The next weekly run's winner."""
    number = len(client.search_model_versions(f"name = '{MODEL_NAME}'")) + 1
    tags = {
        "review.status": "pending",
        "sfm.run": f"run-{number}",
        "sfm.step": "5",
        "sfm.weights_sha256": f"{number}" * 64,
        "sfm.lake": lake.uri,
        "sfm.week": "2026-W48",
        "sfm.error": "0.5",
    }
    made = client.create_model_version(MODEL_NAME, "file:///x", tags=tags, description="**week**\n\x1b[31mred")
    review.nominate(client, made, Request("flow", lake=lake.uri))
    return str(made.version)


def retired(client: Any) -> None:
    if champion() is not None:  # as the command says when it is given once more
        review.retire(client, ANN)


def state(client: MlflowClient) -> dict[str, Any]:
    """Aliases, and all that is said of each version but when."""
    said = {
        str(each.version): {name: value for name, value in each.tags.items() if name != "review.at"}
        for each in client.search_model_versions(f"name = '{MODEL_NAME}'")
    }
    return {"aliases": aliases(client), "said": said}


def sfm(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["review", *arguments])


def approved(client: MlflowClient, lake: Lake, count: int) -> None:
    for _ in range(count):
        nominate(client, lake)
        review.approve(client, ANN)


def test_champions_follow_one_another_and_come_back_in_turn(client: MlflowClient, lake: Lake) -> None:
    approved(client, lake, 3)
    assert aliases(client) == {"champion": "3", "previous-champion": "2"}
    current = champion()
    assert current is not None
    assert (current.run, current.step, current.weights_sha256) == ("run-3", 5, "3" * 64)
    assert sfm("rollback", "--by", "bob", "--reason", "too smooth").output == "version 2 is champion again\n"
    assert aliases(client) == {"champion": "2", "previous-champion": "1"}
    tags = version(client, "3").tags
    assert (tags["review.status"], tags["review.by"], tags["review.reason"]) == ("rolled-back", "bob", "too smooth")
    assert sfm("rollback", "--by", "bob", "--reason", "too smooth").exit_code == 0
    assert aliases(client) == {"champion": "1"}
    nothing = sfm("rollback", "--by", "bob", "--reason", "too smooth")
    assert nothing.exit_code == 1
    assert "version 1 was the first champion, so there is nothing to roll back to" in nothing.output
    approved(client, lake, 1)
    assert aliases(client) == {"champion": "4", "previous-champion": "1"}


def test_a_rejected_challenger_leaves_the_champion_alone(client: MlflowClient, lake: Lake) -> None:
    approved(client, lake, 1)
    nominate(client, lake)
    assert sfm("reject", "--by", "ann").exit_code == 2  # a reason is due
    assert sfm("reject", "--by", "ann", "--reason", "rings at faults").exit_code == 0
    assert aliases(client) == {"champion": "1"}
    assert version(client, "2").tags["review.status"] == "rejected"
    again = sfm("approve", "2", "--by", "ann")
    assert again.exit_code == 1
    assert "version 2 is rejected, not up for review; the challenger is none" in again.output


def test_a_retired_champion_leaves_its_place_empty(client: MlflowClient, lake: Lake) -> None:
    approved(client, lake, 2)
    nominate(client, lake)
    assert sfm("retire", "--by", "ann").exit_code == 2  # a reason is due
    said = sfm("retire", "--by", "ann", "--reason", "licence ended")
    assert said.output == "version 2 is retired; there is no champion until a challenger is approved\n"
    assert aliases(client) == {"challenger": "3"}
    assert champion() is None
    assert version(client, "2").tags["review.status"] == "retired"
    last = entries(lake)[-1]
    assert (last.action, last.version, last.reason) == ("retire", "2", "licence ended")
    review.approve(client, ANN)
    assert aliases(client) == {"champion": "3"}
    assert "nothing to roll back to" in sfm("rollback", "--by", "ann", "--reason", "x").output  # not to a retired one


def test_only_the_challenger_that_was_looked_at_is_approved(client: MlflowClient, lake: Lake) -> None:
    nominate(client, lake)
    nominate(client, lake)
    late = sfm("approve", "1", "--by", "ann")
    assert late.exit_code == 1
    assert "version 1 is superseded, not up for review; the challenger is 2" in late.output
    assert aliases(client) == {"challenger": "2"}
    assert sfm("approve", "2", "--by", "ann").exit_code == 0
    assert aliases(client) == {"champion": "2"}


@pytest.mark.parametrize(
    ("before", "decide"),
    [
        (lambda client, lake: nominate(client, lake), lambda client, lake: review.approve(client, ANN)),
        (
            lambda client, lake: (approved(client, lake, 2), nominate(client, lake)),
            lambda client, lake: review.approve(client, ANN),
        ),
        (
            lambda client, lake: (approved(client, lake, 2), nominate(client, lake)),
            lambda client, lake: review.reject(client, ANN),
        ),
        (lambda client, lake: approved(client, lake, 2), lambda client, lake: review.rollback(client, ANN)),
        (
            lambda client, lake: (approved(client, lake, 3), nominate(client, lake)),
            lambda client, lake: review.rollback(client, ANN),
        ),
        (lambda client, lake: approved(client, lake, 2), lambda client, lake: retired(client)),
        (
            lambda client, lake: nominate(client, lake),
            lambda client, lake: review.nominate(
                client,
                client.get_model_version(MODEL_NAME, "2")
                if len(client.search_model_versions(f"name = '{MODEL_NAME}'")) > 1
                else client.create_model_version(MODEL_NAME, "file:///x", tags={"review.status": "pending"}),
                Request("flow", lake=lake.uri),
            ),
        ),
    ],
    ids=["first approval", "approval", "rejection", "rollback to the first", "rollback", "retirement", "nomination"],
)
def test_killed_at_any_moment_and_given_again_ends_as_undisturbed(
    client: MlflowClient,
    lake: Lake,
    before: Callable[[MlflowClient, Lake], object],
    decide: Callable[[Any, Lake], object],
) -> None:
    before(client, lake)
    decide(client, lake)
    undisturbed = state(client)
    for calls in itertools.count():
        empty(client)
        before(client, lake)
        try:
            decide(Killable(client, calls), lake)
        except KilledError:
            decide(client, lake)
            assert state(client) == undisturbed, f"killed after {calls} calls"
        else:
            break
    assert calls >= 2


def test_nothing_moves_before_it_is_noted(client: MlflowClient, lake: Lake) -> None:
    approved(client, lake, 1)
    nominate(client, lake)
    before = state(client)
    with pytest.raises(KilledError):
        review.reject(Killable(client, 0), ANN)  # type: ignore[arg-type]
    assert state(client) == before
    last = entries(lake)[-1]
    assert (last.action, last.version, last.by, last.reason) == ("reject", "2", "ann", "rings at faults")
    assert last.aliases_before == {"champion": "1", "challenger": "2"}
    assert last.weights_sha256 == "2" * 64
    for unusable, message in (
        ("ftp://nowhere", "has scheme 'ftp'"),
        ("/absent/lake", "there is no folder '/absent/lake'"),
    ):
        refused = sfm("approve", "--by", "ann", "--lake", unusable)
        assert refused.exit_code == 1
        assert message in refused.output
    assert state(client) == before


def test_the_given_lake_gets_the_note(client: MlflowClient, lake: Lake, tmp_path: Path) -> None:
    nominate(client, lake)
    (tmp_path / "other").mkdir()
    assert sfm("approve", "--by", "ann", "--lake", str(tmp_path / "other")).exit_code == 0
    assert [entry.action for entry in entries(Lake(str(tmp_path / "other")))] == ["approve"]
    assert [entry.action for entry in entries(lake)] == ["register"]


def test_list_and_show_tell_people_and_programs(client: MlflowClient, lake: Lake) -> None:
    assert "nothing is registered yet" in sfm("list").output
    approved(client, lake, 1)
    nominate(client, lake)
    rows = json.loads(sfm("list", "--json").output)
    assert [(row["version"], row["status"], row["aliases"]) for row in rows] == [
        ("2", "pending", ["challenger"]),
        ("1", "approved", ["champion"]),
    ]
    assert json.loads(sfm("show", "--json").output)["version"] == "2"
    text = sfm("show", "1").output
    assert "rings at faults" in text
    assert "**week**\n\\x1b[31mred" in text  # what strangers write does not reach the terminal


def test_what_is_not_there_is_said(client: MlflowClient) -> None:
    for arguments, message in (
        (("show", "7"), "has no version 7; there are: none"),
        (("show",), "neither a challenger nor a champion"),
        (("approve", "--by", "ann"), "has no challenger to decide on"),
        (("rollback", "--by", "ann", "--reason", "x"), "has no champion, so there is nothing to roll back"),
        (("retire", "--by", "ann", "--reason", "x"), "has no champion, so there is nothing to retire"),
    ):
        found = sfm(*arguments)
        assert found.exit_code == 1
        assert message in found.output
    client.delete_registered_model(MODEL_NAME)
    assert sfm("list").exit_code == 0
    assert champion() is None


def test_a_registry_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for uri, message in (
        (None, "no MLflow registry is named; set MLFLOW_TRACKING_URI"),
        (f"sqlite:///{tmp_path / 'absent.db'}", "there is no registry at sqlite:///"),
        ("http://127.0.0.1:9", "the MLflow registry at http://127.0.0.1:9 cannot be used"),
    ):
        found = CliRunner().invoke(main, ["review", *(["--tracking-uri", uri] if uri else []), "list"])
        assert found.exit_code == 1
        assert message in found.output
    assert not (tmp_path / "absent.db").exists()
