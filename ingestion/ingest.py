"""A SEG-Y survey onto the lake: inspect, convert, verify, publish; or hold back with the reasons.

The manifest is written last and only if nobody wrote it before. A killed ingest leaves objects that no manifest
names: they are invisible, and the same ingest run again writes the same bytes over them.

``index/sources/<sha256 of the files' digests>.json`` remembers under which survey some bytes were published.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Literal

import numpy as np

from ingestion.catalog import load_manifest, next_moment, older_version
from ingestion.lake import Lake
from ingestion.manifest import (
    Contract,
    Digest,
    Finding,
    Manifest,
    SafeName,
    SourceFile,
    Volume,
    manifest_key,
    survey_folder,
)
from ingestion.memory import share_arenas
from ingestion.names import printable, safe_identifier
from ingestion.preflight.inspection import Survey, inspect
from ingestion.quarantine import quarantine
from ingestion.source import Source, SourceChangedError, hold, open_source
from ingestion.spec import SurveySpec, survey_digest
from ingestion.volume.conversion import Progress, verify_volume, write_volume
from ingestion.volume.statistics import AmplitudeStatistics
from ingestion.withdrawal import withdrawn_finding

CLIPPED_SHARE = 0.001  # of the samples at the extreme values: said as a warning


class IngestResult(Contract):
    """What became of a survey."""

    status: Literal["published", "unchanged", "held", "uploading"]
    survey: SafeName
    digest: Digest | None  # None while it is uploading
    findings: list[Finding]
    manifest: Manifest | None  # of the published version, when there is one
    report_key: str | None  # of the quarantine report, when it is held


def _silent(_what: str, _done: int, _total: int) -> None:
    return


def ingest(
    source_uris: Sequence[str] | str,
    lake: Lake,
    spec: SurveySpec | None = None,
    *,
    name: str | None = None,
    progress: Progress = _silent,
) -> IngestResult:
    """Take in one survey from its SEG-Y files (paths, ``file://`` or ``s3://`` URIs).

    Files are read in the order of the spec when it lists them, else as given. The survey is named by its spec,
    else by ``name``, else by the first file. Whatever the files hold, the answer is a result. Raises
    ``FileNotFoundError``, ``LakeError`` (which includes a failed verification), and obstore's ``BaseError`` when the
    store does not answer after all retries.
    """
    share_arenas()
    spec = spec or SurveySpec()
    sources = [open_source(uri) for uri in ([source_uris] if isinstance(source_uris, str) else source_uris)]
    original = spec.name or name or sources[0].name.rpartition(".")[0] or sources[0].name
    survey = safe_identifier(original)
    if withdrawn := _withdrawn(lake, survey, None):  # before anything large is read
        return withdrawn
    read = _reading(sources, progress)
    try:
        if spec.files:
            by_name = {source.name: source for source in sources}
            missing = [file for file in spec.files if file not in by_name]
            if missing:
                return _uploading(survey, f"files of the spec that are not there: {', '.join(missing)}")
            sources = [by_name[file] for file in spec.files]
        inspection = inspect([source.with_local_copy() for source in sources], spec, read)
        digests = inspection.source_sha256()
        digest = survey_digest(digests, spec)
        known = _known(lake, survey, digest, digests)
        if known is not None and (known.status == "unchanged" or is_withdrawn(known)):
            return known
        findings = [*inspection.findings, *([] if known is None else known.findings)]
        if inspection.held or known is not None:
            uris = [source.uri for source in sources]
            return hold_back(lake, survey, digest, findings, original, uris, inspection.notes)
        manifest = _convert(lake, inspection.survey(), survey, digest, digests, progress)
    except SourceChangedError as error:
        return _uploading(survey, str(error))
    published = _publish(lake, manifest, digests)
    return IngestResult(
        status="published" if published else "unchanged",
        survey=survey,
        digest=digest,
        findings=[*findings, *_clipping(manifest)],
        manifest=manifest if published else load_manifest(lake, survey, digest),
        report_key=None,
    )


def is_withdrawn(result: IngestResult) -> bool:
    """Whether the survey was not taken in because it is withdrawn."""
    return any(finding.code == "withdrawn" for finding in result.findings)


def _reading(sources: list[Source], progress: Progress) -> _Reading:
    return _Reading(sum(source.size for source in sources), progress)


class _Reading:
    """Tells ``progress`` how much of all files is read."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def __call__(self, count: int) -> None:
        self.done += count
        self.progress("reading", self.done, self.total)


def _uploading(survey: str, found: str) -> IngestResult:
    finding = Finding(
        code="still-uploading",
        severity="warn",
        found=printable(found),
        expected="files that are whole and do not change while they are read",
        release="",
    )
    return IngestResult(
        status="uploading", survey=survey, digest=None, findings=[finding], manifest=None, report_key=None
    )


def hold_back(
    lake: Lake,
    survey: str,
    digest: str,
    findings: list[Finding],
    original: str,
    uris: list[str],
    notes: Sequence[str] = (),
) -> IngestResult:
    """Write the quarantine report of a survey; its result."""
    key = quarantine(lake, survey, digest, findings, original_name=original, sources=uris, notes=notes)
    return IngestResult(status="held", survey=survey, digest=digest, findings=findings, manifest=None, report_key=key)


def _known(lake: Lake, survey: str, digest: str, source_digests: list[str]) -> IngestResult | None:
    """An ``unchanged`` result when this is published already, a ``held`` one when it is so as something else."""
    try:
        manifest = load_manifest(lake, survey, digest)
    except FileNotFoundError:
        pass
    else:
        _remember(lake, manifest, source_digests)  # which a killed ingest may not have come to
        return _withdrawn(lake, survey, digest) or _unchanged(manifest, older_version(lake, manifest))
    if withdrawn := _withdrawn(lake, survey, digest):
        return withdrawn
    try:
        place = lake.read_json(_source_index_key(source_digests))
        manifest = load_manifest(lake, place["survey"], place["digest"])
    except FileNotFoundError:
        return None
    if manifest.survey == survey:
        return None
    if withdrawn := _withdrawn(lake, manifest.survey, manifest.digest):
        return withdrawn
    found = f"the same bytes are published as survey {manifest.survey}"
    if manifest.digest == digest:
        warning = Finding(code="known-under-another-name", severity="warn", found=found, expected="", release="")
        return _unchanged(manifest, [warning])
    finding = hold(
        "known-under-another-name",
        f"{found}, with another spec",
        "one name for one survey; twice in a data set it would count double",
        f"write `name: {manifest.spec.get('name') or manifest.survey}` into the spec to publish a new version of it",
    )
    return IngestResult(status="held", survey=survey, digest=digest, findings=[finding], manifest=None, report_key=None)


def _withdrawn(lake: Lake, survey: str, digest: str | None) -> IngestResult | None:
    """A ``held`` result, without a report of its own, when the survey or this version of it is withdrawn."""
    finding = withdrawn_finding(lake, survey, digest)
    if finding is None:
        return None
    return IngestResult(status="held", survey=survey, digest=digest, findings=[finding], manifest=None, report_key=None)


def _unchanged(manifest: Manifest, findings: list[Finding]) -> IngestResult:
    return IngestResult(
        status="unchanged",
        survey=manifest.survey,
        digest=manifest.digest,
        findings=findings,
        manifest=manifest,
        report_key=None,
    )


def _convert(
    lake: Lake, survey: Survey, name: str, digest: str, source_digests: list[str], progress: Progress
) -> Manifest:
    folder = f"{survey_folder(name, digest)}/volume.mdio"
    written = write_volume(survey, lake, folder, name, progress)
    for source in survey.sources:  # else a file replaced meanwhile would be taken for a failed verification
        source.check_unchanged()
    volume = verify_volume(survey, lake, folder, written, progress)
    for source in survey.sources:
        source.check_unchanged()
    return _manifest(survey, name, digest, source_digests, written.statistics, volume, created=next_moment(lake, name))


def _manifest(
    survey: Survey,
    name: str,
    digest: str,
    source_digests: list[str],
    statistics: AmplitudeStatistics,
    volume: Volume,
    created: datetime,
) -> Manifest:
    live = int(np.count_nonzero(survey.grid.live_IX))
    sources = [
        SourceFile(uri=s.uri, original_name=s.name, size=s.size, sha256=sha256, etag=s.etag)
        for s, sha256 in zip(survey.sources, source_digests, strict=True)
    ]
    return Manifest(
        survey=name,
        digest=digest,
        created=created,
        sources=sources,
        spec_sha256=survey.spec.sha256,
        spec=survey.spec.model_dump(mode="json"),
        domain=survey.domain,
        polarity=survey.spec.polarity,
        amplitude_unit=survey.spec.amplitude_unit,
        licence=survey.spec.licence,
        inline=survey.grid.inline,
        crossline=survey.grid.crossline,
        sample=survey.axis,
        geometry=survey.geometry,
        live_traces=live,
        live_share=live / survey.grid.live_IX.size,
        statistics=statistics.statistics(),
        normalisation=statistics.normalisation(),
        volume=volume,
        source_format=survey.layouts[0].source_format,
        notes=survey.notes,
        software={package: version(package) for package in ("seismic-retraining", "multidimio", "zarr", "numpy")},
    )


def _publish(lake: Lake, manifest: Manifest, source_digests: list[str]) -> bool:
    """Whether this call made the survey exist; another ingest of the same input may have been first."""
    published = lake.create(manifest_key(manifest.survey, manifest.digest), manifest.to_bytes())
    _remember(lake, manifest, source_digests)
    return published


def _remember(lake: Lake, manifest: Manifest, source_digests: list[str]) -> None:
    """Under which survey these bytes were published last."""
    place = {"survey": manifest.survey, "digest": manifest.digest}
    lake.write(_source_index_key(source_digests), json.dumps(place).encode())


def _source_index_key(source_digests: list[str]) -> str:
    return f"index/sources/{hashlib.sha256(' '.join(source_digests).encode()).hexdigest()}.json"


def _clipping(manifest: Manifest) -> list[Finding]:
    facts = manifest.statistics
    if facts.clipped_share <= CLIPPED_SHARE:
        return []
    return [
        Finding(
            code="clipped",
            severity="warn",
            found=f"{facts.clipped_share:.2%} of the samples lie at {facts.minimum:g} or {facts.maximum:g}",
            expected="extreme amplitudes that are rare",
            release="",
        )
    ]
