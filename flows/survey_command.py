"""The ``survey`` command: what ``ingestion`` offers, and what reaches beyond it to verdicts and models."""

from __future__ import annotations

from flows.survey_release import release
from flows.survey_withdraw import models, restore, withdraw
from ingestion.cli import main
from ingestion.cli.sweep import sweep

for command in (release, withdraw, restore, models, sweep):
    main.add_command(command)

if __name__ == "__main__":
    main()
