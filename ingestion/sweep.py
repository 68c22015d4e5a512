"""What killed ingests left on the lake: objects that no manifest names, older than a grace period.

Three kinds: the folder of a digest that was never published, objects inside a published volume that its manifest does
not list, and the folder of a quarantine report that was never finished. A folder is as old as its newest object, so
what an ingest still writes is left alone; the grace period must be longer than an ingest goes without writing (it reads
the whole volume again before it publishes). A digest with a manifest is never taken for unpublished, whatever the
manifest holds, and nothing outside ``surveys/`` and ``quarantine/`` is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timedelta
from typing import Literal

from ingestion.catalog import load_manifest
from ingestion.lake import Entry, Lake, LakeError
from ingestion.manifest import Contract, manifest_key, quarantine_folder, survey_folder, verdict_key
from ingestion.quarantine import report_key

GRACE = timedelta(days=7)

_DIGEST = re.compile(r"[0-9a-f]{64}")
_BATCH = 100  # objects deleted between two looks whether their folder was published
_READERS = 4  # folders at once: the list of a large volume's objects takes tens of megabytes


class Orphan(Contract):
    """A folder of which objects belong to nothing."""

    kind: Literal["never published", "not in the manifest", "unfinished report"]
    survey: str
    digest: str
    folder: str
    objects: int
    size: int  # bytes
    newest: float  # seconds since the epoch
    deleted: bool


def sweep(
    lake: Lake,
    now: datetime,
    grace: timedelta = GRACE,
    *,
    delete: bool = False,
    told: Callable[[int, int], None] | None = None,
) -> list[Orphan]:
    """All orphans older than ``grace`` at ``now``, by folder; with ``delete`` they are gone afterwards.

    Each folder is looked at once more right before its objects are deleted: one that was published or written to
    meanwhile stays. Of one that is published while it is deleted, the rest stays, and it is not ``deleted``. Killed and
    run again, it goes on. ``told`` hears how many folders are done, of how many.
    """
    before = (now - grace).timestamp()
    folders = [(_of_digest, survey, digest) for survey, digest in _digests(lake, "surveys")]
    folders += [(_of_report, survey, digest) for survey, digest in _digests(lake, "quarantine")]

    def one(look: Callable[[Lake, str, str], _Found], survey: str, digest: str) -> Orphan | None:
        orphan, _ = _judged(look(lake, survey, digest), survey, digest, before)
        if orphan is None or not delete:
            return orphan
        orphan, keys = _judged(look(lake, survey, digest), survey, digest, before)
        if orphan is None:
            return None
        return _deleted(lake, orphan, keys)

    with ThreadPoolExecutor(_READERS) as threads:
        waiting = [threads.submit(one, *folder) for folder in folders]
        for done, _ in enumerate(as_completed(waiting), 1):
            if told is not None:
                told(done, len(folders))
        return sorted((o for each in waiting if (o := each.result())), key=lambda orphan: orphan.folder)


_Kind = Literal["never published", "not in the manifest", "unfinished report"]
_Found = tuple[_Kind, str, list[Entry]]  # what is wrong, where, and the objects


def _digests(lake: Lake, prefix: str) -> Iterable[tuple[str, str]]:
    for survey in lake.folders(prefix):
        for digest in lake.folders(f"{prefix}/{survey}"):
            if _DIGEST.fullmatch(digest):  # else this system did not write it
                yield survey, digest


def _of_digest(lake: Lake, survey: str, digest: str) -> _Found:
    folder = survey_folder(survey, digest)
    there = list(lake.objects(folder))
    try:
        volume = load_manifest(lake, survey, digest).volume  # asked after the listing: it is written last
    except FileNotFoundError:
        judged = any(entry.key == verdict_key(survey, digest) for entry in there)  # then its manifest was lost
        return "never published", folder, [] if judged else there
    except LakeError:  # not readable, so nobody knows what it names
        return "not in the manifest", folder, []
    inside = f"{folder}/{volume.path}/"
    return (
        "not in the manifest",
        folder,
        [e for e in there if e.key.startswith(inside) and e.key.removeprefix(inside) not in volume.keys],
    )


def _of_report(lake: Lake, survey: str, digest: str) -> _Found:
    folder = quarantine_folder(survey, digest)
    there = list(lake.objects(folder))
    return "unfinished report", folder, [] if lake.exists(report_key(survey, digest)) else there


def _judged(found: _Found, survey: str, digest: str, before: float) -> tuple[Orphan | None, list[str]]:
    """The orphan when it is old enough, and the keys of its objects."""
    kind, folder, entries = found
    newest = max((entry.modified for entry in entries), default=before)
    if newest >= before:
        return None, []
    orphan = Orphan(
        kind=kind,
        survey=survey,
        digest=digest,
        folder=folder,
        objects=len(entries),
        size=sum(entry.size for entry in entries),
        newest=newest,
        deleted=False,
    )
    return orphan, [entry.key for entry in entries]


def _deleted(lake: Lake, orphan: Orphan, keys: list[str]) -> Orphan:
    """The orphan after its objects were deleted, or some, when what commits its folder came between."""
    commits = {"never published": manifest_key, "unfinished report": report_key}.get(orphan.kind)
    for start in range(0, len(keys), _BATCH):
        if commits is not None and lake.exists(commits(orphan.survey, orphan.digest)):
            return orphan
        lake.delete(keys[start : start + _BATCH])
    return orphan.model_copy(update={"deleted": True})
