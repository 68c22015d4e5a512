"""What a reviewer decides: the challenger becomes champion or not, or the champion goes back, or goes.

Every decision is a few calls on MLflow, which has no transactions. Their order is such that a command killed
between any two of them and given again ends where the undisturbed one does:

* nominate (the weekly run does it): mark an undecided challenger as superseded, move ``challenger``;
* approve: note what is replaced, move ``champion``, move ``previous-champion``, mark as approved, drop ``challenger``;
* reject: mark as rejected, drop ``challenger``;
* rollback: mark as rolled back, move ``champion`` to what it replaced, move ``previous-champion`` one further back;
* retire: mark as retired, drop ``previous-champion``, drop ``champion``.

So a challenger is an undecided or half-decided version, and ``previous-champion`` equals ``champion`` only in the
middle of a rollback. Two people who decide in the same second are not kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ingestion.lake import Lake
from seismic_model.registry.audit import Action, AuditEntry, record
from seismic_model.registry.versions import (
    APPROVED,
    AT,
    BY,
    CHALLENGER,
    CHAMPION,
    LAKE,
    MODEL_NAME,
    PENDING,
    PREVIOUS,
    REASON,
    REJECTED,
    REPLACES,
    RETIRED,
    ROLLED_BACK,
    STATUS,
    SUPERSEDED,
    WEIGHTS,
    RegistryError,
    aliases,
    version,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion


@dataclass(frozen=True)
class Request:
    """Who asks, why, and on which lake it is noted (None: the lake of the run that made the version)."""

    by: str
    reason: str | None = None
    lake: str | None = None


def nominate(client: MlflowClient, new: ModelVersion, request: Request) -> None:
    """Make ``new`` the challenger, in place of one that nobody decided on."""
    now = aliases(client)
    number, old = str(new.version), now.get(CHALLENGER)
    if old == number:
        return
    _audit(request, "register", new, now)
    if old and old != now.get(CHAMPION) and version(client, old).tags.get(STATUS) == PENDING:
        _mark(client, old, SUPERSEDED, Request(request.by, f"version {number} came before a decision"))
    client.set_registered_model_alias(MODEL_NAME, CHALLENGER, number)


def approve(client: MlflowClient, request: Request, number: str | None = None) -> str:
    """Make the challenger champion; ``number`` guards against another one having come meanwhile. Its number.

    Raises ``RegistryError`` when it is not the challenger or is decided already.
    """
    now = aliases(client)
    chosen = _challenger(client, now, number)
    if chosen.tags.get(STATUS) == REJECTED:
        raise RegistryError(f"version {chosen.version} is being rejected; `sfm review reject` finishes that")
    new, old = str(chosen.version), now.get(CHAMPION)
    _audit(request, "approve", chosen, now)
    if old != new:
        _set_tag(client, new, REPLACES, old or "")
        client.set_registered_model_alias(MODEL_NAME, CHAMPION, new)
    else:
        old = chosen.tags.get(REPLACES)
    _point(client, PREVIOUS, old)
    _mark(client, new, APPROVED, request)
    client.delete_registered_model_alias(MODEL_NAME, CHALLENGER)
    return new


def reject(client: MlflowClient, request: Request, number: str | None = None) -> str:
    """Turn the challenger down; its number.

    Raises ``RegistryError`` when it is not the challenger or is champion already.
    """
    now = aliases(client)
    chosen = _challenger(client, now, number)
    if now.get(CHAMPION) == str(chosen.version):
        raise RegistryError(
            f"version {chosen.version} is champion already; `sfm review approve` finishes its approval, "
            "`sfm review rollback` then takes it back"
        )
    _audit(request, "reject", chosen, now)
    _mark(client, str(chosen.version), REJECTED, request)
    client.delete_registered_model_alias(MODEL_NAME, CHALLENGER)
    return str(chosen.version)


def rollback(client: MlflowClient, request: Request) -> str:
    """Make the version that the champion replaced champion again; its number.

    Raises ``RegistryError`` when there is none.
    """
    now = aliases(client)
    current = _champion(client, now, "roll back")
    if now.get(PREVIOUS) == now[CHAMPION]:
        _point(client, PREVIOUS, current.tags.get(REPLACES))
        return now[CHAMPION]
    target = current.tags.get(REPLACES)
    if not target:
        raise RegistryError(
            f"version {current.version} was the first champion, so there is nothing to roll back to; "
            "approve a challenger in its place"
        )
    earlier = version(client, target)
    _audit(request, "rollback", current, now)
    _mark(client, str(current.version), ROLLED_BACK, request)
    client.set_registered_model_alias(MODEL_NAME, CHAMPION, target)
    _point(client, PREVIOUS, earlier.tags.get(REPLACES))
    return target


def retire(client: MlflowClient, request: Request) -> str:
    """Leave the model without a champion, e.g. when nothing can be compared with it any more; the retired number.

    Raises ``RegistryError`` when there is none.
    """
    now = aliases(client)
    current = _champion(client, now, "retire")
    _audit(request, "retire", current, now)
    _mark(client, str(current.version), RETIRED, request)
    _point(client, PREVIOUS, None)
    _point(client, CHAMPION, None)
    return str(current.version)


def _champion(client: MlflowClient, now: Mapping[str, str], what: str) -> ModelVersion:
    """The version that is to be taken back; ``what`` is to happen to it."""
    if CHAMPION not in now:
        raise RegistryError(f"{MODEL_NAME} has no champion, so there is nothing to {what}; see `sfm review list`")
    if now.get(CHALLENGER) == now[CHAMPION]:
        raise RegistryError(f"version {now[CHAMPION]} is being approved; `sfm review approve` finishes that first")
    return version(client, now[CHAMPION])


def _challenger(client: MlflowClient, now: Mapping[str, str], number: str | None) -> ModelVersion:
    if number is not None:
        chosen = version(client, number)
        if now.get(CHALLENGER) != number:
            raise RegistryError(
                f"version {number} is {chosen.tags.get(STATUS, 'not from a weekly run')}, not up for review; "
                f"the challenger is {now.get(CHALLENGER, 'none')}"
            )
        return chosen
    if CHALLENGER not in now:
        raise RegistryError(f"{MODEL_NAME} has no challenger to decide on; `sfm review list` shows what there is")
    return version(client, now[CHALLENGER])


def _audit(request: Request, action: Action, chosen: ModelVersion, now: Mapping[str, str]) -> None:
    uri = request.lake or chosen.tags.get(LAKE)
    if uri is None:
        raise RegistryError(
            f"version {chosen.version} does not say which lake its run lies on, and the decision must be noted; "
            "give --lake URI"
        )
    if "://" not in uri and not Path(uri).is_dir():  # which would be made, and nobody would look there
        raise RegistryError(f"there is no folder {uri!r} to note the decision in; give the lake of the weekly runs")
    lake = Lake(uri)
    lake.check()  # in words, before anything is moved
    entry = AuditEntry(
        at=datetime.now(UTC),
        action=action,
        model=MODEL_NAME,
        version=str(chosen.version),
        by=request.by,
        reason=request.reason,
        weights_sha256=chosen.tags.get(WEIGHTS),
        aliases_before=dict(now),
    )
    record(lake, entry)


def _mark(client: MlflowClient, number: str, status: str, request: Request) -> None:
    _set_tag(client, number, BY, request.by)
    _set_tag(client, number, REASON, request.reason or "")
    _set_tag(client, number, AT, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    _set_tag(client, number, STATUS, status)


def _set_tag(client: MlflowClient, number: str, tag: str, value: str) -> None:
    client.set_model_version_tag(MODEL_NAME, number, tag, value)


def _point(client: MlflowClient, alias: str, number: str | None) -> None:
    """Let ``alias`` name version ``number``, or nothing."""
    if number:
        client.set_registered_model_alias(MODEL_NAME, alias, number)
    else:
        client.delete_registered_model_alias(MODEL_NAME, alias)
