"""Freeze the data set of a week: which surveys, which places are held out, how often each survey is drawn.

A frozen week never changes: a second call gives what is stored. The split policy is decided with the first
frozen week and kept for ever, or places that one model trained on would score the next.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from pydantic import ValidationError

from ingestion import catalog
from ingestion.lake import Lake, LakeError
from ingestion.manifest import Manifest, Verdict, manifest_key, verdict_key
from seismic_model.config import Triple
from seismic_model.data.dataset import (
    SPLIT_KEY,
    Cell,
    Dataset,
    Difference,
    Excluded,
    SplitPolicy,
    SurveyEntry,
    dataset_key,
    dataset_label,
    load_dataset,
)
from seismic_model.data.splits import (
    MIN_LIVE_SHARE,
    coordinate_space,
    held_out_mask,
    held_out_regions,
    touched_cells,
    train_origins,
    untrained_mask,
)
from seismic_model.data.store import SurveyVolume, VolumeError

logger = logging.getLogger(__name__)


class FreezeError(Exception):
    """The data set cannot be frozen as asked; the message says what differs and what to do."""


class NothingTrainableError(FreezeError):
    """No survey has room for a crop that trains, or none for one that is scored; the message says what to do."""


def freeze(
    lake: Lake, week: str, window: Triple, policy: SplitPolicy, surveys: Collection[str] | None = None
) -> Dataset:
    """Freeze the data set of a week, or of chosen surveys in it, or return what is already frozen as that.

    Args:
        lake: holds the published surveys; the data set is stored there.
        week: ISO week, such as "2026-W49".
        window: crop in voxels (inline, crossline, sample).
        policy: must be the one that the lake's first week was frozen with.
        surveys: train on these only; all that passed validation when None. Held-out surveys hold out their places
            in either case.

    Raises ``NothingTrainableError``, ``FreezeError`` for another policy or an unknown survey, and ``VolumeError``
    when a held-out survey is damaged, since the places that it holds out are then unknown.
    """
    key = dataset_key(dataset_label(week, surveys))
    if lake.exists(key):
        return load_dataset(lake, key)
    dataset = draft(lake, week, window, policy, surveys)
    if not lake.create(SPLIT_KEY, policy.to_bytes()):
        _check_policy(lake, policy)
    lake.create(key, dataset.to_bytes())
    return load_dataset(lake, key)  # another freeze of this week may have been first


def draft(
    lake: Lake, week: str, window: Triple, policy: SplitPolicy, surveys: Collection[str] | None = None
) -> Dataset:
    """What ``freeze`` would freeze now; nothing is written. Arguments and errors are those of ``freeze``."""
    _check_policy(lake, policy)
    previous = _last_before(lake, week)
    newest, excluded = _passed_versions(lake)
    _warn_of_several_spaces(newest)
    chosen = _choose(newest, excluded, surveys)
    cells = _held_out_cells(lake, newest, policy, previous)
    measured = []
    for manifest in chosen:
        try:
            measured.append((manifest, _room(lake, manifest, window, policy, cells)))
        except _NoRoomError as reason:
            excluded.append(Excluded(survey=manifest.survey, digest=manifest.digest, reason=str(reason)))
    if not any(room.crops for _, room in measured):
        raise NothingTrainableError(_nothing_trainable(window, measured, excluded))
    if not any(room.regions for _, room in measured):
        raise NothingTrainableError(
            f"nothing to score: no held-out place has room for a crop of {window} voxels, so a candidate could not be "
            f"judged; cells of {policy.cell_size:g} must hold a crop, take smaller crops or more surveys, or hold out "
            "a survey"
        )
    entries = _entries(lake, measured)
    return Dataset(
        week=week,
        created=datetime.now(UTC),
        window=window,
        split=policy,
        held_out_cells=cells,
        surveys=entries,
        excluded=sorted(excluded, key=lambda left_out: (left_out.survey, left_out.digest)),
        difference=_difference(previous, entries),
    )


class _NoRoomError(Exception):
    """Why a survey is left out."""


def _check_policy(lake: Lake, policy: SplitPolicy) -> None:
    if not lake.exists(SPLIT_KEY):
        return
    stored = SplitPolicy.model_validate_json(lake.read(SPLIT_KEY))
    differing = [
        f"{field} is {getattr(policy, field)!r}, stored {getattr(stored, field)!r}"
        for field in SplitPolicy.model_fields
        if getattr(policy, field) != getattr(stored, field)
    ]
    if differing:
        raise FreezeError(
            f"the split policy differs from the one at {lake.uri_of(SPLIT_KEY)}: {'; '.join(differing)}. "
            "Places that were held out must stay held out: use the stored policy, or another lake"
        )


def _passed_versions(lake: Lake) -> tuple[list[Manifest], list[Excluded]]:
    """The newest version of each survey that can be trained on, and the newer ones that cannot."""
    found = catalog.each_survey(lake, lambda _survey, versions: _passed_version(lake, versions))
    passed = [manifest for manifest, _ in found if manifest is not None]
    return passed, [left_out for _, newer in found for left_out in newer]


def _passed_version(lake: Lake, versions: Sequence[catalog.Version]) -> tuple[Manifest | None, list[Excluded]]:
    """Of one survey, newest first."""
    excluded: list[Excluded] = []
    for version in versions:
        reason = version.withdrawal.words() if version.withdrawal else _not_passed(lake, version)
        if reason is None:
            try:
                return catalog.load_manifest(lake, version.survey, version.digest), excluded
            except LakeError as error:
                reason = str(error)
        excluded.append(Excluded(survey=version.survey, digest=version.digest, reason=reason))
    return None, excluded


def _warn_of_several_spaces(newest: Iterable[Manifest]) -> None:
    surveys_of: dict[str, list[str]] = {}
    for manifest in newest:
        surveys_of.setdefault(coordinate_space(manifest), []).append(manifest.survey)
    if len(surveys_of) > 1:
        listed = "; ".join(f"{space}: {', '.join(surveys)}" for space, surveys in sorted(surveys_of.items()))
        logger.warning(
            "the surveys lie in %d coordinate systems, and a place that two of them share is not recognised: one may "
            "train on what the other holds out. Deliver overlapping surveys in one CRS. %s",
            len(surveys_of),
            listed,
        )


def _not_passed(lake: Lake, version: catalog.Version) -> str | None:
    key = verdict_key(version.survey, version.digest)
    try:
        verdict = Verdict.model_validate_json(lake.read(key))
    except FileNotFoundError:
        return "not validated yet"
    except ValidationError:
        return f"{lake.uri_of(key)} is no verdict that this version reads; validate the survey again"
    if verdict.status == "passed":
        return None
    codes = sorted({finding.code for finding in verdict.findings if finding.severity == "hold"})
    return f"validation held it back: {', '.join(codes)}"


def _choose(newest: list[Manifest], excluded: list[Excluded], surveys: Collection[str] | None) -> list[Manifest]:
    if surveys is None:
        return newest
    known = [manifest.survey for manifest in newest]
    reasons = {left_out.survey: left_out.reason for left_out in excluded}
    if missing := sorted(set(surveys) - set(known)):
        listed = "; ".join(f"{survey} ({reasons.get(survey, 'not published')})" for survey in missing)
        raise FreezeError(f"cannot train on {listed}; surveys that passed are: {', '.join(known) or 'none'}")
    return [manifest for manifest in newest if manifest.survey in surveys]


def _held_out_cells(
    lake: Lake, newest: Iterable[Manifest], policy: SplitPolicy, previous: Dataset | None
) -> list[Cell]:
    """Cells of the held-out surveys; those of last week stay, also where a newer version no longer covers them."""
    cells = set(previous.held_out_cells if previous else [])
    for manifest in newest:
        if manifest.survey in policy.held_out_surveys:
            cells.update(touched_cells(manifest, SurveyVolume(lake, manifest).live_IX, policy))
    return sorted(cells)


@dataclass(frozen=True)
class _Room:
    """What a survey has room for."""

    crops: float  # that train, none over another: volume of places over volume of a crop
    regions: int  # that are scored


def _room(lake: Lake, manifest: Manifest, window: Triple, policy: SplitPolicy, cells: list[Cell]) -> _Room:
    """Raises ``_NoRoomError`` when the survey can neither train nor be scored."""
    if any(have < need for have, need in zip(manifest.shape, window, strict=True)):
        raise _NoRoomError(f"its shape {manifest.shape} is smaller than one crop {window}")
    try:
        live_IX = SurveyVolume(lake, manifest).live_IX
    except VolumeError as error:
        raise _NoRoomError(str(error)) from error
    held_out_IX = held_out_mask(manifest, policy, cells)
    regions = len(held_out_regions(held_out_IX, live_IX, manifest.shape[2], window))
    places = int(train_origins(untrained_mask(manifest, policy, cells), live_IX, window).sum()) * (
        manifest.shape[2] - window[2] + 1
    )
    if not places and not regions:
        raise _NoRoomError(
            f"no crop {window} with at least {MIN_LIVE_SHARE:.0%} live traces lies wholly outside or wholly inside "
            f"held-out places ({held_out_IX.mean():.0%} of its traces)"
        )
    return _Room(places / math.prod(window), regions)


def _entries(lake: Lake, measured: list[tuple[Manifest, _Room]]) -> list[SurveyEntry]:
    """Weights go by the square root of the independent crops, so that the largest survey does not drown the others."""
    total = sum(math.sqrt(room.crops) for _, room in measured)
    return [
        SurveyEntry(
            survey=manifest.survey,
            digest=manifest.digest,
            manifest_sha256=hashlib.sha256(lake.read(manifest_key(manifest.survey, manifest.digest))).hexdigest(),
            normalisation=manifest.normalisation,
            weight=math.sqrt(room.crops) / total,
            licence=manifest.licence,
        )
        for manifest, room in measured
    ]


def _last_before(lake: Lake, week: str) -> Dataset | None:
    names = (PurePosixPath(entry.key).stem for entry in lake.objects("datasets"))
    earlier = [name for name in names if re.fullmatch(r"\d{4}-W\d{2}", name) and name < week]
    return load_dataset(lake, dataset_key(max(earlier))) if earlier else None


def _difference(previous: Dataset | None, entries: list[SurveyEntry]) -> Difference:
    before = {entry.survey: entry.digest for entry in previous.surveys} if previous else {}
    now = {entry.survey: entry.digest for entry in entries}
    both = sorted(before.keys() & now.keys())
    return Difference(
        previous=previous.week if previous else None,
        added=sorted(now.keys() - before.keys()),
        removed=sorted(before.keys() - now.keys()),
        superseded=[survey for survey in both if before[survey] != now[survey]],
        unchanged=[survey for survey in both if before[survey] == now[survey]],
    )


def _nothing_trainable(window: Triple, measured: list[tuple[Manifest, _Room]], excluded: list[Excluded]) -> str:
    reasons = [f"{manifest.survey}: all of it is held out" for manifest, _ in measured]
    reasons += [f"{left_out.survey}: {left_out.reason}" for left_out in excluded]
    listed = "\n".join(f"  {reason}" for reason in sorted(reasons)) or "  there is no published survey"
    return f"nothing trainable for a crop of {window} voxels:\n{listed}"
