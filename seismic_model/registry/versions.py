"""Versions of the model in the MLflow registry: their names, aliases and tags, and which one is champion.

Aliases move and tags are replaced; the audit log on the lake (``audit.py``) keeps what they were.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seismic_model.mlflow_client import open_mlflow

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

MODEL_NAME = "seismic-vit-mae"
CHALLENGER, CHAMPION, PREVIOUS = "challenger", "champion", "previous-champion"

STATUS, BY, REASON, AT = "review.status", "review.by", "review.reason", "review.at"
REPLACES = "review.replaces"  # the version that was champion before this one
PENDING, APPROVED, REJECTED = "pending", "approved", "rejected"
ROLLED_BACK, SUPERSEDED, RETIRED = "rolled-back", "superseded", "retired"

RUN, LAKE, STEP, WEIGHTS = "sfm.run", "sfm.lake", "sfm.step", "sfm.weights_sha256"


class RegistryError(Exception):
    """The registry cannot do what was asked; the message says what was found and what to do."""


@dataclass(frozen=True)
class Champion:
    """The version in use, and the checkpoint that its weights come from."""

    run: str
    step: int
    weights_sha256: str
    version: str


def connect(tracking_uri: str | None = None) -> MlflowClient:
    """A client of ``tracking_uri``, or of ``MLFLOW_TRACKING_URI``. Raises ``RegistryError`` when neither is given."""
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise RegistryError(
            "no MLflow registry is named; set MLFLOW_TRACKING_URI, e.g. http://HOST:5000 or sqlite:////DIR/mlflow.db"
        )
    return open_mlflow(uri)


def champion(tracking_uri: str | None = None) -> Champion | None:
    """The champion, or None before the first approval. Raises ``RegistryError`` when its tags do not say its origin."""
    client = connect(tracking_uri)
    number = aliases(client).get(CHAMPION)
    if number is None:
        return None
    tags = version(client, number).tags
    if missing := [tag for tag in (RUN, STEP, WEIGHTS) if tag not in tags]:
        raise RegistryError(
            f"{MODEL_NAME} version {number} is champion but has no tag {', '.join(missing)}: it was not registered "
            "by a weekly run; give the champion alias to one that was"
        )
    return Champion(tags[RUN], int(tags[STEP]), tags[WEIGHTS], number)


def aliases(client: MlflowClient) -> dict[str, str]:
    """Version number by alias; empty while nothing is registered."""
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_registered_model(MODEL_NAME).aliases
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return {}
    return {alias: str(number) for alias, number in found.items()}


def version(client: MlflowClient, number: str) -> ModelVersion:
    """Version ``number``. Raises ``RegistryError`` with the ones there are."""
    known = versions(client)
    for each in known:
        if str(each.version) == number:
            return each
    numbers = ", ".join(str(each.version) for each in known) or "none"
    raise RegistryError(f"{MODEL_NAME} has no version {number}; there are: {numbers}")


def versions(client: MlflowClient) -> list[ModelVersion]:
    """All versions, newest first."""
    found: list[ModelVersion] = []
    token = None
    while True:
        page = client.search_model_versions(f"name = '{MODEL_NAME}'", page_token=token)
        found += page
        token = page.token
        if not token:
            return sorted(found, key=lambda each: int(each.version), reverse=True)
