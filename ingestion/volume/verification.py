"""Looks at a published volume again: does every object still have the digest that it was verified with?

The manifest lists all objects of the volume with their SHA-256, taken from what was read back from the lake when
every sample was compared with the SEG-Y. So an object that has its digest still holds these samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest, Manifest, SafeName

_READERS = 8  # objects read at once


class Condition(Contract):
    """What a volume is like now. Keys are relative to the store."""

    survey: SafeName
    digest: Digest
    objects: int
    size: int  # bytes
    lost: list[str]
    changed: list[str]
    unlisted: list[str]  # that no manifest knows; a chunk among them would be read instead of empty space
    manifest_lost: bool = False  # then nothing tells what the volume should hold

    @property
    def whole(self) -> bool:
        """Whether the volume is what was published."""
        return not (self.lost or self.changed or self.unlisted or self.manifest_lost)


def verify(lake: Lake, manifest: Manifest, progress: Callable[[str, int, int], None]) -> Condition:
    """Read every object of a published volume. Memory is bounded by eight objects."""
    listed, others = manifest.volume.keys, unlisted(lake, manifest)
    lost, changed = [], []
    for done, (key, digest) in enumerate(stored_digests(lake, manifest)):
        progress(manifest.survey, done, len(listed))
        if digest is None:
            lost.append(key)
        elif digest != listed[key].sha256:
            changed.append(key)
    return Condition(
        survey=manifest.survey,
        digest=manifest.digest,
        objects=len(listed),
        size=sum(known.size for known in listed.values()),
        lost=lost,
        changed=changed,
        unlisted=others,
    )


def without_manifest(survey: str, digest: str) -> Condition:
    """The condition of a published volume whose manifest is gone."""
    return Condition(
        survey=survey, digest=digest, objects=0, size=0, lost=[], changed=[], unlisted=[], manifest_lost=True
    )


def unlisted(lake: Lake, manifest: Manifest) -> list[str]:
    """Keys, relative to the store, of objects that the manifest does not know."""
    folder = f"{manifest.folder}/{manifest.volume.path}/"
    return sorted({entry.key.removeprefix(folder) for entry in lake.objects(folder)} - manifest.volume.keys.keys())


def stored_digests(lake: Lake, manifest: Manifest) -> Iterator[tuple[str, str | None]]:
    """Each key of the manifest with the SHA-256 of what the lake holds now; None when the object is missing."""
    folder, listed = f"{manifest.folder}/{manifest.volume.path}", manifest.volume.keys
    with ThreadPoolExecutor(_READERS) as pool:  # waiting for the store and hashing both let go of the interpreter
        yield from zip(listed, pool.map(lambda key: _digest(lake, f"{folder}/{key}"), listed), strict=True)


def _digest(lake: Lake, key: str) -> str | None:
    try:
        return hashlib.sha256(lake.read(key)).hexdigest()
    except FileNotFoundError:
        return None
