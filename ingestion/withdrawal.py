"""Surveys that may no longer be used, e.g. because a licence ended: who said so, when and why.

    withdrawals/<survey>/20261130T081500.123456Z.json

An event is created once and never changed; what holds is what the last event about a version says, one that names no
digest being about all versions, later ones too. An event that cannot be read counts as a withdrawal of all, since
training on what was withdrawn is the worse mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Literal

from pydantic import AwareDatetime, ValidationError

from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest, Finding, SafeName, Who, Why
from ingestion.names import printable

FOLDER = "withdrawals"
READERS = 16  # requests at once
_TIME = "%Y%m%dT%H%M%S.%fZ"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")  # as SafeName
_TICK = timedelta(microseconds=1)


class Event(Contract):
    """One withdrawal, or the end of one."""

    schema_version: Literal[1] = 1
    action: Literal["withdraw", "restore"]
    survey: SafeName
    digest: Digest | None  # None: all versions
    by: Who
    reason: Why
    at: AwareDatetime

    def words(self) -> str:
        """``withdrawn on 2026-11-30 by ann: licence ended``."""
        verb = "withdrawn" if self.action == "withdraw" else "restored"
        return f"{verb} on {self.at:%Y-%m-%d} by {printable(self.by)}: {printable(self.reason)}"


def record(
    lake: Lake,
    action: Literal["withdraw", "restore"],
    survey: str,
    digest: str | None,
    *,
    by: str,
    reason: str,
    after: datetime | None = None,
) -> Event:
    """Write one event, later than all others of the survey and than ``after``; what was written."""
    while True:
        earlier = [event.at for event in events(lake, survey)] + ([after] if after else [])
        at = max([datetime.now(UTC), *(moment + _TICK for moment in earlier)])
        event = Event(action=action, survey=survey, digest=digest, by=by, reason=reason, at=at)
        if lake.create(f"{FOLDER}/{survey}/{at.astimezone(UTC).strftime(_TIME)}.json", event.to_bytes()):
            return event


def events(lake: Lake, survey: str) -> list[Event]:
    """All events of one survey, oldest first."""
    return _read(lake, [entry.key for entry in lake.objects(f"{FOLDER}/{survey}")])


def all_events(lake: Lake) -> dict[str, list[Event]]:
    """The events of every survey that has some, oldest first."""
    found: dict[str, list[Event]] = {}
    for event in _read(lake, [entry.key for entry in lake.objects(FOLDER)]):
        found.setdefault(event.survey, []).append(event)
    return found


def withdrawal(log: Iterable[Event], digest: str | None) -> Event | None:
    """The withdrawal that holds for ``digest`` (None: for a version that is not there yet), or None."""
    last = None
    for event in log:
        if event.digest in (None, digest):
            last = event
    return last if last is not None and last.action == "withdraw" else None


def withdrawn_finding(lake: Lake, survey: str, digest: str | None) -> Finding | None:
    """What holds a version back that is withdrawn (``digest`` None: any version), or None."""
    event = withdrawal(events(lake, survey), digest)
    if event is None:
        return None
    what = f"survey {survey}" if event.digest is None else f"version {event.digest[:12]} of survey {survey}"
    choice = "" if event.digest is None else f" --digest {event.digest[:12]}"
    return Finding(
        code="withdrawn",
        severity="hold",
        found=f"{what} was {event.words()}",
        expected="a survey that may be used",
        release=f"`survey restore {survey}{choice} --reason … --by …`, when it may be used again",
    )


def _read(lake: Lake, keys: Sequence[str]) -> list[Event]:
    with ThreadPoolExecutor(READERS) as threads:
        found = list(threads.map(lambda key: _event(lake, key), sorted(keys)))
    return sorted((event for event in found if event), key=lambda event: event.at)


def _event(lake: Lake, key: str) -> Event | None:
    path = PurePosixPath(key)
    if path.suffix != ".json" or str(path.parent.parent) != FOLDER or not _NAME.fullmatch(path.parent.name):
        return None  # nothing that this system wrote
    try:
        event = Event.model_validate_json(lake.read(key))
    except ValidationError:
        event = None
    if event is not None and event.survey == path.parent.name:
        return event
    try:
        at = datetime.strptime(path.stem, _TIME).replace(tzinfo=UTC)
    except ValueError:
        at = datetime.min.replace(tzinfo=UTC)
    return Event(
        action="withdraw",
        survey=path.parent.name,
        digest=None,
        by="nobody knows",
        reason=f"the record {lake.uri_of(key)} cannot be read; see what it was, then restore or withdraw the survey",
        at=at,
    )
