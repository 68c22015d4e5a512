"""Who decided about a survey, a model or the week, and why: kept whole, or refused; never cut."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from published import noise, publish

from flows.survey_command import main as survey
from flows.week_command import main as week
from ingestion.lake import Lake
from ingestion.withdrawal import events
from seismic_model.cli import main as sfm

COMMANDS: list[tuple[click.Group, list[str]]] = [
    (survey, ["release", "north"]),
    (survey, ["withdraw", "north"]),
    (survey, ["restore", "north"]),
    (week, ["pause"]),
    (sfm, ["review", "approve"]),
    (sfm, ["review", "reject"]),
    (sfm, ["review", "rollback"]),
    (sfm, ["review", "retire"]),
]


@pytest.mark.parametrize(("program", "command"), COMMANDS, ids=lambda value: value[-1] if type(value) is list else "")
@pytest.mark.parametrize(
    ("by", "reason", "said"),
    [
        ("a" * 201, "licence", "'--by': 201 characters; expected a few words, at most 200 characters"),
        ("ann", "w" * 2001, "'--reason': 2001 characters; expected a few words, at most 2000 characters"),
        ("\t ", "licence", "'--by': 0 characters; expected a few words, at most 200 characters"),
        ("\x07" * 51, "licence", "'--by': 204 characters; expected a few words, at most 200 characters"),
    ],
)
def test_words_that_are_too_long_are_refused_by_all_commands(
    tmp_path: Path, program: click.Group, command: list[str], by: str, reason: str, said: str
) -> None:
    lake = Lake(str(tmp_path))
    publish(lake, "north", noise((8, 8, 8)))
    before = {entry.key for entry in lake.objects()}
    result = CliRunner().invoke(program, [*command, "--lake", str(tmp_path), "--by", by, "--reason", reason])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert {entry.key for entry in lake.objects()} == before


def test_the_longest_words_are_kept_whole(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    publish(lake, "north", noise((8, 8, 8)))
    words = ["--by", "a" * 200, "--reason", "w" * 2000]
    assert CliRunner().invoke(survey, ["withdraw", "north", "--lake", str(tmp_path), *words]).exit_code == 0
    [event] = events(lake, "north")
    assert (len(event.by), len(event.reason)) == (200, 2000)


def test_a_model_may_be_approved_without_a_reason(tmp_path: Path) -> None:
    """As far as to the registry, which is not there."""
    uri = f"sqlite:///{tmp_path}/none.db"
    given = ["review", "--tracking-uri", uri, "approve", "--lake", str(tmp_path), "--by", "ann"]
    result = CliRunner().invoke(sfm, given)
    assert (result.exit_code, f"there is no registry at {uri}" in result.stderr) == (1, True)
