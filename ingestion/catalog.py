"""What is published on a lake. A survey exists when its manifest does; of several digests the newest counts."""

from __future__ import annotations

from pydantic import ValidationError

from ingestion.lake import Lake, LakeError
from ingestion.manifest import Manifest, manifest_key


def load_manifest(lake: Lake, survey: str, digest: str) -> Manifest:
    """The manifest of one published digest.

    Raises ``FileNotFoundError`` when it is not published and ``LakeError`` when the manifest is not readable.
    """
    key = manifest_key(survey, digest)
    try:
        return Manifest.model_validate_json(lake.read(key))
    except ValidationError as error:
        raise LakeError(
            f"{lake.uri_of(key)} is no manifest that this version reads ({error.error_count()} fields differ, "
            f"first: {error.errors()[0]['loc']}); use the version that wrote it, or ingest the survey again"
        ) from error


def digests(lake: Lake, survey: str) -> list[Manifest]:
    """All published versions of one survey, oldest first."""
    found = []
    for digest in lake.folders(f"surveys/{survey}"):
        try:
            found.append(load_manifest(lake, survey, digest))
        except FileNotFoundError:  # a killed ingest left no manifest: the digest does not exist
            continue
    return sorted(found, key=lambda manifest: (manifest.created, manifest.digest))


def surveys(lake: Lake) -> list[Manifest]:
    """The newest published version of every survey, by name."""
    newest = (digests(lake, survey) for survey in lake.folders("surveys"))
    return [versions[-1] for versions in newest if versions]
