"""What the options of ``survey`` are called: alike in all its commands."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from flows.survey_command import main
from ingestion.cli.common import DIGEST_HELP


def text(command: str) -> str:
    return " ".join(CliRunner().invoke(main, [command, "--help"]).stdout.split())


@pytest.mark.parametrize("command", ["verify", "export", "withdraw", "restore", "models"])
def test_a_digest_is_asked_for_in_the_same_words(command: str) -> None:
    assert f"--digest DIGEST {DIGEST_HELP}" in text(command)


@pytest.mark.parametrize("command", ["release", "withdraw", "restore"])
def test_who_and_why_are_asked_for_in_the_same_words(command: str) -> None:
    assert "--by NAME Who decides; kept on the lake." in text(command)
    assert "--reason TEXT Why; kept on the lake." in text(command)


def test_the_grace_period_says_its_units_and_default() -> None:
    assert "hours (12h), days (7d) or weeks (2w). Default: 7d, seven days; at least 1h." in text("sweep")
