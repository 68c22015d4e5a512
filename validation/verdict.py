"""``verdict.json``: validation's word on one published digest, as it lies on the lake."""

from __future__ import annotations

from datetime import datetime

from pydantic import ValidationError

from ingestion.lake import Lake
from ingestion.manifest import Verdict, verdict_key


def load_verdict(lake: Lake, survey: str, digest: str) -> Verdict | None:
    """The verdict on one digest; None when there is none that this version reads."""
    try:
        return Verdict.model_validate_json(lake.read(verdict_key(survey, digest)))
    except (FileNotFoundError, ValidationError):
        return None


def record_verdict(lake: Lake, verdict: Verdict, asked: datetime | None = None) -> Verdict:
    """Write ``verdict``, unless the lake holds the same one from an earlier time; the one that is there now.

    A verdict from before somebody ``asked`` for a new one is written again, so that the request counts as answered.
    """
    earlier = load_verdict(lake, verdict.survey, verdict.digest)
    answered = earlier is not None and (asked is None or earlier.created >= asked)
    if answered and earlier is not None and earlier.model_copy(update={"created": verdict.created}) == verdict:
        return earlier
    lake.write(verdict_key(verdict.survey, verdict.digest), verdict.to_bytes())
    return verdict
