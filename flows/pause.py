"""A paused lake starts no training; what runs goes on, and surveys are taken in as ever."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import ValidationError

from ingestion.lake import Lake
from ingestion.manifest import Contract, Who, Why
from ingestion.names import printable

_KEY = "control/paused.json"


class Pause(Contract):
    """``control/paused.json``: it is there as long as the lake is paused."""

    by: Who
    reason: Why
    at: datetime

    def __str__(self) -> str:
        return (
            f"training is paused by {printable(self.by)} since {self.at:%Y-%m-%d %H:%M} UTC: {printable(self.reason)}"
        )


def paused(lake: Lake) -> Pause | None:
    """Who paused the lake and why, or None; an object that cannot be read pauses as well."""
    try:
        return Pause.model_validate_json(lake.read(_KEY))
    except FileNotFoundError:
        return None
    except ValidationError:
        at = datetime.fromtimestamp(lake.head(_KEY).modified, UTC)
        return Pause(by="?", reason=f"{_KEY} is there, but not of this version", at=at)


def pause(lake: Lake, by: str, reason: str) -> Pause:
    """Start no training from now on; the first who says so stands."""
    said = Pause(by=by, reason=reason, at=datetime.now(UTC))
    lake.create(_KEY, said.to_bytes())
    return paused(lake) or said  # resumed in this moment


def resume(lake: Lake) -> Pause | None:
    """Start training again from the next week, or the next start, on; the pause that ended."""
    ended = paused(lake)
    lake.delete([_KEY])
    return ended
