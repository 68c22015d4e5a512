"""What was asked of the registry, by whom, and what the aliases were: one object each, never changed.

    audit/20261130T081500.123456Z-approve-v3.json

MLflow forgets where an alias pointed. An entry is written before anything moves, so a command that is
killed half-way and given again leaves two entries, and no move is without one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from ingestion.lake import Lake
from ingestion.manifest import Contract

Action = Literal["register", "approve", "reject", "rollback", "retire"]


class AuditEntry(Contract):
    """One request to move aliases."""

    schema_version: Literal[1] = 1
    at: datetime
    action: Action
    model: str
    version: str  # that the action is about
    by: str
    reason: str | None
    weights_sha256: str | None
    aliases_before: dict[str, str]  # version by alias


def record(lake: Lake, entry: AuditEntry) -> str:
    """Write ``entry`` and return its key. Raises ``FileExistsError`` rather than change an entry."""
    key = f"audit/{entry.at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{entry.action}-v{entry.version}.json"
    if not lake.create(key, entry.to_bytes()):
        raise FileExistsError(f"{lake.uri_of(key)} was written at the same microsecond; give the command again")
    return key


def entries(lake: Lake) -> list[AuditEntry]:
    """The whole log, oldest first."""
    keys = sorted(entry.key for entry in lake.objects("audit"))
    return [AuditEntry.model_validate_json(lake.read(key)) for key in keys]
