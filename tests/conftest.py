"""What all tests share: a real S3 server, and a fresh prefix on it for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from ingestion.embedded_s3 import BUCKET, serve
from ingestion.lake import Lake

settings.register_profile("any machine", deadline=None)  # no test asserts on time
settings.load_profile("any machine")
os.environ.setdefault("METAFLOW_USER", "tests")
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast ones, then the longest file, so that two workers end together."""
    items.sort(key=lambda item: ("unit" not in item.path.parts) + (item.path.name != "test_weekly_flow.py"))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of a bucket on a real S3 server, with the AWS_* variables set for the whole session."""
    with serve(tmp_path_factory.mktemp("s3")):
        yield f"s3://{BUCKET}"


@pytest.fixture
def lake(s3: str) -> Lake:
    """An empty lake of this test's own."""
    return Lake(f"{s3}/{uuid.uuid4().hex[:12]}")
