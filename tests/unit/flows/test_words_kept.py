"""Who decided about a survey, and why: kept whole, or refused; never cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from published import noise, publish

from flows.survey_command import main
from ingestion.lake import Lake
from ingestion.withdrawal import events

COMMANDS = ["release", "withdraw", "restore"]


@pytest.mark.parametrize("command", COMMANDS)
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
    tmp_path: Path, command: str, by: str, reason: str, said: str
) -> None:
    lake = Lake(str(tmp_path))
    publish(lake, "north", noise((8, 8, 8)))
    before = {entry.key for entry in lake.objects()}
    result = CliRunner().invoke(main, [command, "north", "--lake", str(tmp_path), "--by", by, "--reason", reason])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert {entry.key for entry in lake.objects()} == before


def test_the_longest_words_are_kept_whole(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    publish(lake, "north", noise((8, 8, 8)))
    words = ["--by", "a" * 200, "--reason", "w" * 2000]
    assert CliRunner().invoke(main, ["withdraw", "north", "--lake", str(tmp_path), *words]).exit_code == 0
    [event] = events(lake, "north")
    assert (len(event.by), len(event.reason)) == (200, 2000)
