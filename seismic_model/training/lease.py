"""Two weeks never train at once: one lease for a lake, with a fencing token.

    locks/training/000000000007.json       who took token 7, and for how long it lasts without being renewed
                   000000000007.renewed    overwritten by its holder
                   000000000007.released   when its holder has ended

The highest token holds. The next one is taken by a conditional PUT, which any S3 store and any file system decides
for one of those who try. It may be taken when the highest is released, expired, or of the same owner at the same
place: a run that is started again there is the successor of its own twin, which may be paused or cut off and not know
it. At another place, such as a laptop while the cluster trains, nobody knows that the twin is dead, so there it waits
like any other run. Whoever is no longer the highest is fenced: it finds so before it writes
(``fencing.FencedLake``). Whether it may be taken is told by the store's own clock, so no machine's clock matters; who
only looks (the flow, ``week status``) goes by its own.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import Field, ValidationError

from ingestion.lake import Entry, Lake
from ingestion.manifest import Contract, SafeName
from ingestion.names import printable

TTL_SECONDS = 1800.0
PLACE_VARIABLE = "SFM_PLACE"  # in a job's environment: where its launcher starts jobs

_FOLDER = "locks/training"
_NAME = re.compile(rf"{_FOLDER}/(\d{{12}})\.(json|renewed|released)")


class Claim(Contract):
    """``<token>.json``."""

    owner: SafeName  # a run
    place: str = ""  # where its launcher starts jobs
    by: str  # the process, for people
    ttl: float = Field(gt=0, le=1e9)  # seconds it lasts without being renewed
    nonce: str  # no two claims are alike


@dataclass(frozen=True)
class Holder:
    """The highest token and what is known of it; times are seconds since the epoch on the store's clock."""

    token: int
    owner: str
    place: str
    by: str
    since: float
    renewed: float
    expires: float
    released: bool

    def holds(self, now: float) -> bool:
        """Whether nobody else may take the lease at ``now``."""
        return not self.released and now <= self.expires

    def __str__(self) -> str:
        who = printable(f"{self.by}; {self.place}")
        return (
            f"run {self.owner} ({who}) since {_utc(self.since)}, last renewed {_utc(self.renewed)}, "
            f"expires {_utc(self.expires)} unless it is renewed"
        )


class HeldElsewhereError(Exception):
    """Another start trains on this lake; the message says which, since when, and until when it may."""

    def __init__(self, lake: Lake, holder: Holder) -> None:
        self.holder = holder
        super().__init__(
            f"training on {lake.uri} is held by {holder}. Two starts never train at once on one lake: "
            "wait until that one has ended, or stop it"
        )


class LeaseError(Exception):
    """What lies at the lease's place is none; the message says where."""


class FencedError(Exception):
    """Another start has taken over; this process must not write any more."""


@dataclass(frozen=True)
class Lease:
    """Token ``token`` of ``lake``, held until it is released, or taken over by a higher one."""

    lake: Lake
    token: int

    def check(self) -> None:
        """Raises ``FencedError`` when a higher token exists."""
        highest = max(_tokens(self.lake), default=0)
        if highest > self.token:
            raise FencedError(
                f"another start took over training on {self.lake.uri} (token {highest}, this one has {self.token}); "
                "this one ends and writes nothing more. Nothing is to be done"
            )

    def renew(self) -> None:
        """Have it last ``ttl`` seconds from now. Raises ``FencedError``."""
        self.check()
        self.lake.write(_key(self.token, "renewed"), b"")

    def release(self) -> None:
        """Let the next one take it at once; nothing when it was taken over."""
        try:
            self.check()
        except FencedError:
            return
        self.lake.write(_key(self.token, "released"), b"")


def acquire(lake: Lake, owner: str, place: str, by: str, ttl: float = TTL_SECONDS) -> Lease:
    """The lease for the run ``owner`` at ``place``. Raises ``HeldElsewhereError``."""
    while True:
        last = holder(lake)
        if last is not None and (last.owner, last.place) != (owner, place) and last.holds(_clock(lake)):
            raise HeldElsewhereError(lake, last)
        lease = Lease(lake, last.token + 1 if last else 1)
        claim = Claim(owner=owner, place=place, by=by, ttl=ttl, nonce=uuid.uuid4().hex)
        # a token may be free because it was pruned: then a higher one is there
        if lake.create(_key(lease.token, "json"), claim.to_bytes()) and max(_tokens(lake)) == lease.token:
            _prune(lake, lease.token)
            return lease


def holder(lake: Lake) -> Holder | None:
    """Who took the highest token, holding it still or not; None before the first. Raises ``LeaseError``."""
    while True:
        objects = _objects(lake)
        token = max(_claimed(objects), default=0)
        if token == 0:
            return None
        try:
            claim = Claim.model_validate_json(lake.read(_key(token, "json")))
        except FileNotFoundError:  # pruned by the next holder
            continue
        except ValidationError as error:
            raise LeaseError(
                f"{lake.uri_of(_key(token, 'json'))} is no claim of this version; look that nothing trains on "
                f"{lake.uri}, then delete it"
            ) from error
        since = objects[token, "json"].modified
        renewed = max(since, objects[token, "renewed"].modified) if (token, "renewed") in objects else since
        released = (token, "released") in objects
        return Holder(token, claim.owner, claim.place, claim.by, since, renewed, renewed + claim.ttl, released)


def _clock(lake: Lake) -> float:
    """The store's clock: when it says that an object was written just now."""
    key = f"{_FOLDER}/clock"
    lake.write(key, b"")
    return lake.head(key).modified


def _objects(lake: Lake) -> dict[tuple[int, str], Entry]:
    found = ((_NAME.fullmatch(entry.key), entry) for entry in lake.objects(_FOLDER))
    return {(int(match[1]), match[2]): entry for match, entry in found if match}


def _claimed(objects: dict[tuple[int, str], Entry]) -> list[int]:
    return [token for token, kind in objects if kind == "json"]


def _tokens(lake: Lake) -> list[int]:
    return _claimed(_objects(lake))


def _prune(lake: Lake, token: int) -> None:
    """Delete what is left of lower tokens."""
    lake.delete([entry.key for (number, _), entry in _objects(lake).items() if number < token])


def _key(token: int, kind: str) -> str:
    return f"{_FOLDER}/{token:012d}.{kind}"


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
