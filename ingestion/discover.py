"""What was dropped under ``incoming/`` and is not taken in yet.

A survey ``NAME.sgy`` may have its spec beside it as ``NAME.yaml`` or ``NAME.yml``. A spec that lists ``files`` makes
one survey of them, which is found when all are there. Files whose names end otherwise (``.part``, ``.txt``) are left
alone. A name that can be no key (control characters, no UTF-8) is an arrival without files, which ingest holds back
with the reason.

``index/arrivals/<fingerprint>.json`` remembers each outcome. The fingerprint covers keys, sizes and ETags of the
files and the bytes of the spec, so that a repaired file or spec is found again, and nothing large is read.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from ingestion.lake import Entry, Lake, split_uri
from ingestion.manifest import FORMAT_VERSION, Contract, Digest, SafeName
from ingestion.names import printable, safe_identifier
from ingestion.source import Source, open_source
from ingestion.spec import SurveySpec
from ingestion.spec_yaml import MAX_SPEC_BYTES, SpecError, parse_spec
from ingestion.withdrawal import all_events, withdrawal

INCOMING = "incoming"
SEGY_SUFFIXES = (".sgy", ".segy", ".seg")
SPEC_SUFFIXES = (".yaml", ".yml")


class Arrival(Contract):
    """One survey that waits in ``incoming/``."""

    survey: SafeName
    original_name: str
    keys: list[str]  # SEG-Y files in order; empty when an unreadable spec stands alone
    spec_key: str | None
    fingerprint: Digest
    rivals: list[str] = []  # other new files that would be the same survey
    unusable: bool = False  # a name that can be no key; ``original_name`` is it, made printable


def discover(lake: Lake, *, include_known: bool = False) -> list[Arrival]:
    """New surveys by name, without withdrawn ones; with ``include_known`` also those whose outcome is remembered."""
    unusable: list[str] = []
    entries = {entry.key: entry for entry in lake.objects(INCOMING, unusable=unusable.append)}
    specs = _specs(lake, entries)
    found = [_arrival(entries, keys, spec_key, specs) for keys, spec_key in _groups(entries, specs)]
    found += [_unusable(name) for name in unusable if _suffix(name) in SEGY_SUFFIXES + SPEC_SUFFIXES]
    if not include_known:
        found = [arrival for arrival in found if not lake.exists(_memory_key(arrival))]
    logs = all_events(lake)
    found = [arrival for arrival in found if withdrawal(logs.get(arrival.survey, []), None) is None]
    return sorted(_with_rivals(found), key=lambda arrival: (arrival.survey, arrival.keys))


def remember(lake: Lake, arrival: Arrival, status: str) -> None:
    """Do not find ``arrival`` again unless a file or the spec changes."""
    lake.write(_memory_key(arrival), json.dumps({"survey": arrival.survey, "status": status}).encode())


def sibling_uris(uri: str, spec: SurveySpec) -> list[str]:
    """URIs of all files of a survey, of which ``uri`` is one: those that the spec lists, else itself."""
    folder = uri.rpartition("/")[0]
    names = [quote(name) for name in spec.files] if uri.startswith("file://") else spec.files
    return [f"{folder}/{name}" if folder else name for name in names] or [uri]


@dataclass(frozen=True)
class Described:
    """A SEG-Y file with what is said of it."""

    spec: SurveySpec
    uris: list[str]  # of all files of its survey, in order
    name: str | None  # of the survey, where the spec's file gives it
    spec_uri: str | None  # where the spec lies; None: there is none


def described(file: str, spec_uri: str | None) -> Described:
    """The SEG-Y file at ``file`` (a path, file:// or s3:// URI) with the spec at ``spec_uri``, else the one beside it.

    Raises ``SpecError``, ``FileNotFoundError`` or ``LakeError``.
    """
    if file.startswith("s3://"):
        folder, key = split_uri(file)
        folder.check(key)
    found = _beside(file) if spec_uri is None else open_source(spec_uri)
    if found is None:
        return Described(SurveySpec(), [file], None, None)
    spec = parse_spec(spec_text(found.lake, found.lake.head(found.key)), found.uri)
    if spec.files and split_uri(file)[1] not in spec.files:
        raise SpecError(f"{file} is not among the files of {found.uri}; give one of these")
    return Described(spec, sibling_uris(file, spec), PurePosixPath(found.name).stem if spec.files else None, found.uri)


def _beside(file: str) -> Source | None:
    """The spec beside a file. Raises ``SpecError`` when there are two."""
    open_source(file)  # a wrong name is said before anything else
    stem = file.removesuffix(PurePosixPath(file).suffix)
    found = []
    for suffix in SPEC_SUFFIXES:
        with suppress(FileNotFoundError):
            found.append(open_source(stem + suffix))
    if len(found) > 1:
        both = " and ".join(each.uri for each in found)
        raise SpecError(f"both {both} lie beside the file; take one away, or give one with --spec")
    return found[0] if found else None


def _specs(lake: Lake, entries: dict[str, Entry]) -> dict[str, bytes]:
    """Text of all specs by key."""
    found: dict[str, bytes] = {}
    for key, entry in entries.items():
        if _suffix(key) in SPEC_SUFFIXES:
            with suppress(FileNotFoundError):  # taken away since it was listed
                found[key] = spec_text(lake, entry)
    return found


def spec_text(lake: Lake, entry: Entry) -> bytes:
    """A survey spec as it lies on the lake; of one that is too long only so much that ``parse_spec`` sees it."""
    return lake.read_range(entry.key, 0, min(entry.size, MAX_SPEC_BYTES + 1)) if entry.size else b""


def _groups(entries: dict[str, Entry], specs: dict[str, bytes]) -> list[tuple[list[str], str | None]]:
    """Files that belong together, with the key of their spec."""
    segys = {key for key in entries if _suffix(key) in SEGY_SUFFIXES}
    groups: list[tuple[list[str], str | None]] = []
    waiting: set[str] = set()  # folders with an unreadable spec that may be about any file there
    claimed: set[str] = set()
    for spec_key, text in sorted(specs.items()):
        alone = sorted(key for key in segys if _stem(key) == _stem(spec_key))
        try:
            files = parse_spec(text, spec_key).files
        except SpecError:
            groups.append((alone, spec_key))
            claimed.update(alone)
            if not alone:
                waiting.add(_folder(spec_key))
            continue
        listed = [f"{_folder(spec_key)}/{name}" for name in files]
        claimed.update(listed or alone)
        if listed and all(key in entries for key in listed):
            groups.append((listed, spec_key))
        elif not listed:  # NAME.sgy and NAME.segy are rivals, not parts of one survey
            groups += [([key], spec_key) for key in alone]
    groups += [([key], None) for key in sorted(segys - claimed) if _folder(key) not in waiting]
    return groups


def _arrival(entries: dict[str, Entry], keys: list[str], spec_key: str | None, specs: dict[str, bytes]) -> Arrival:
    text = specs.get(spec_key or "", b"")
    original = PurePosixPath(spec_key or keys[0]).stem
    with suppress(SpecError):  # ingest_arrival holds it back with the reason
        original = parse_spec(text, spec_key or "").name or original
    files = [(key, entries[key].size, entries[key].etag or entries[key].modified) for key in keys]
    content = json.dumps([FORMAT_VERSION, files, spec_key, hashlib.sha256(text).hexdigest()])
    return Arrival(
        survey=safe_identifier(original),
        original_name=original,
        keys=keys,
        spec_key=spec_key,
        fingerprint=hashlib.sha256(content.encode()).hexdigest(),
    )


def _unusable(name: str) -> Arrival:
    shown = printable(name.removeprefix(f"{INCOMING}/"))
    return Arrival(
        survey=safe_identifier(PurePosixPath(shown).stem),
        original_name=shown,
        keys=[],
        spec_key=None,
        fingerprint=hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest(),
        unusable=True,
    )


def _with_rivals(arrivals: list[Arrival]) -> list[Arrival]:
    by_survey: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_survey[arrival.survey].append(arrival)
    return [
        arrival.model_copy(
            update={"rivals": [k for other in by_survey[arrival.survey] if other is not arrival for k in other.keys]}
        )
        for arrival in arrivals
    ]


def _memory_key(arrival: Arrival) -> str:
    return f"index/arrivals/{arrival.fingerprint}.json"


def _suffix(key: str) -> str:
    return PurePosixPath(key).suffix.lower()


def _stem(key: str) -> str:
    return str(PurePosixPath(key).with_suffix(""))


def _folder(key: str) -> str:
    return str(PurePosixPath(key).parent)
