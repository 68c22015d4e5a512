"""What is published on a lake. A survey exists when its manifest does; of several digests the newest counts.

Newest is what was published last, or brought back last by ``survey restore``. Which that is stands in the first bytes
of the manifests, so those of old versions are not read whole. A manifest that cannot be read hides its own version and
no other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from obstore.exceptions import BaseError
from pydantic import AwareDatetime, TypeAdapter, ValidationError

from ingestion.lake import Lake, LakeError
from ingestion.manifest import Finding, Manifest, manifest_key, verdict_key
from ingestion.withdrawal import READERS, Event, all_events, events, withdrawal

logger = logging.getLogger(__name__)

_HEAD_BYTES = 2048  # of a manifest, in which `created` stands
_CREATED = re.compile(rb'"created"\s*:\s*"([^"]{1,40})"')
_TIME = TypeAdapter(AwareDatetime)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_TICK = timedelta(microseconds=1)

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Version:
    """One published digest of a survey."""

    survey: str
    digest: str
    since: datetime  # published, or brought back last
    withdrawal: Event | None  # that holds for it


def load_manifest(lake: Lake, survey: str, digest: str) -> Manifest:
    """The manifest of one published digest.

    Raises ``FileNotFoundError`` when it is not published and ``LakeError`` when the manifest is not readable.
    """
    key = manifest_key(survey, digest)
    advice = "use the version that wrote it; or restore the object; or take it away and ingest the survey again"
    try:
        manifest = Manifest.model_validate_json(lake.read(key))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "all of it"
        raise LakeError(
            f"{lake.uri_of(key)} is no manifest that this version reads ({error.error_count()} fault(s), "
            f"first: {place}: {first['msg']}); {advice}"
        ) from error
    if (manifest.survey, manifest.digest) != (survey, digest):
        raise LakeError(
            f"{lake.uri_of(key)} is the manifest of survey {manifest.survey}, digest {manifest.digest}; {advice}"
        )
    return manifest


def versions(lake: Lake, survey: str, log: Sequence[Event] | None = None) -> list[Version]:
    """All published versions of one survey, newest first, those with an unreadable manifest too.

    ``log`` is what ``withdrawal.events`` gives, for a caller who has it.
    """
    log = events(lake, survey) if log is None else log
    found = []
    for digest in lake.folders(f"surveys/{survey}"):
        created = _created(lake, survey, digest)
        if created is not None:
            restored = [event.at for event in log if event.action == "restore" and event.digest == digest]
            found.append(Version(survey, digest, max([created, *restored]), withdrawal(log, digest)))
    return sorted(found, key=lambda version: (version.since, version.digest), reverse=True)


def lost_manifests(lake: Lake, survey: str) -> list[str]:
    """Digests of ``survey`` that were published, as their verdict shows, whose manifest is gone, and not withdrawn.

    One that was never validated cannot be told from what a killed ingest left.
    """
    gone = [
        digest
        for digest in lake.folders(f"surveys/{survey}")
        if not lake.exists(manifest_key(survey, digest)) and lake.exists(verdict_key(survey, digest))
    ]
    log = events(lake, survey) if gone else []
    return [digest for digest in gone if withdrawal(log, digest) is None]


def each_survey(
    lake: Lake, act: Callable[[str, list[Version]], _Found], told: Callable[[int, int], None] | None = None
) -> list[_Found]:
    """What ``act`` makes of every published survey's name and versions (newest first), by name; many at once.

    ``told`` hears how many surveys are done, of how many.
    """
    logs = all_events(lake)

    def one(survey: str) -> list[_Found]:
        found = versions(lake, survey, logs.get(survey, []))
        return [act(survey, found)] if found else []

    names = lake.folders("surveys")
    with ThreadPoolExecutor(READERS) as threads:
        waiting = [threads.submit(one, name) for name in names]
        try:
            for done, _ in enumerate(as_completed(waiting), 1):
                if told is not None:
                    told(done, len(names))
            return [found for future in waiting for found in future.result()]
        finally:
            threads.shutdown(cancel_futures=True)


def newest_readable(lake: Lake, found: Sequence[Version]) -> tuple[Manifest | None, dict[str, str]]:
    """The first of ``found`` whose manifest can be read, and why those before it cannot, by digest."""
    faults: dict[str, str] = {}
    for version in found:
        try:
            return load_manifest(lake, version.survey, version.digest), faults
        except LakeError as error:
            faults[version.digest] = str(error)
        except FileNotFoundError:  # taken away since it was listed
            continue
    return None, faults


def digests(lake: Lake, survey: str) -> list[Manifest]:
    """All published versions of one survey that can be read, oldest first, withdrawn ones too; others are warned of."""
    found = []
    for version in reversed(versions(lake, survey)):
        manifest, faults = newest_readable(lake, [version])
        _warn(faults)
        found += [manifest] if manifest else []
    return found


def surveys(lake: Lake) -> list[Manifest]:
    """The newest version of every survey, by name, that can be read and is not withdrawn; others are warned of."""

    def newest(_survey: str, found: list[Version]) -> Manifest | None:
        manifest, faults = newest_readable(lake, [version for version in found if version.withdrawal is None])
        _warn(faults)
        return manifest

    return [manifest for manifest in each_survey(lake, newest) if manifest is not None]


def next_moment(lake: Lake, survey: str) -> datetime:
    """Now, or just after the survey's newest version where another machine's clock is ahead."""
    newest = versions(lake, survey)[:1]
    return max([datetime.now(UTC), *(version.since + _TICK for version in newest)])


def older_version(lake: Lake, manifest: Manifest) -> list[Finding]:
    """A warning when ``manifest`` is published but is not the version that counts."""
    newest = versions(lake, manifest.survey)[0]
    if newest.digest == manifest.digest:
        return []
    found = (
        f"this is version {manifest.digest[:12]} of survey {manifest.survey}, of {manifest.created:%Y-%m-%d}; "
        f"version {newest.digest[:12]} has superseded it and stays the one in use. "
        f"`survey restore {manifest.survey} --digest {manifest.digest[:12]} --reason … --by …` brings this one back"
    )
    return [Finding(code="older-version", severity="warn", found=found, expected="", release="")]


def _warn(faults: dict[str, str]) -> None:
    for fault in faults.values():
        logger.warning("left out: %s", fault)


def _created(lake: Lake, survey: str, digest: str) -> datetime | None:
    """When a digest was published; None when it is not, and long ago when its manifest does not say."""
    key = manifest_key(survey, digest)
    try:
        head = lake.read_range(key, 0, _HEAD_BYTES)
    except FileNotFoundError:  # a killed ingest left no manifest: the digest does not exist
        return None
    except BaseError:  # an empty object has no range
        if lake.head(key).size:
            raise
        return _LONG_AGO
    said = _CREATED.search(head)
    try:
        return _TIME.validate_python(said[1].decode()) if said else _LONG_AGO
    except ValidationError:
        return _LONG_AGO
