"""What a person decided about a survey that was held back: ``releases/<survey>/<digest>.json``, read by validation.

A request judges nothing by itself: the next validation takes the accepted findings as warnings, names who and why
in the verdict, and holds the survey back for whatever else it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError

from ingestion.lake import Lake, LakeError
from ingestion.manifest import Contract, Digest, Finding, SafeName, Who, Why
from ingestion.names import printable
from validation.rules import Suites


class Acceptance(Contract):
    """One code that a person takes responsibility for."""

    code: str
    by: Who
    reason: Why
    created: datetime


class ReleaseRequest(Contract):
    """Asks for one digest to be validated again; the object that commits ``survey release``."""

    schema_version: Literal[1] = 1
    survey: SafeName
    digest: Digest
    accept: list[Acceptance]  # of this request and earlier ones
    by: Who
    reason: Why
    created: datetime


def request_key(survey: str, digest: str) -> str:
    """Where the request on one digest lies."""
    return f"releases/{survey}/{digest}.json"


def load_request(lake: Lake, survey: str, digest: str) -> ReleaseRequest | None:
    """The newest request on one digest; None when there is none. Raises ``LakeError`` when it is not readable."""
    key = request_key(survey, digest)
    try:
        return ReleaseRequest.model_validate_json(lake.read(key))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise LakeError(
            f"{lake.uri_of(key)} is no release request that this version reads ({error.error_count()} fields differ); "
            "delete it and give `survey release` again"
        ) from error


def record_request(lake: Lake, survey: str, digest: str, codes: Sequence[str], by: str, reason: str) -> ReleaseRequest:
    """Ask for ``digest`` to be validated again with ``codes`` accepted, beside those accepted earlier."""
    earlier = load_request(lake, survey, digest)
    now = datetime.now(UTC)
    kept = [one for one in earlier.accept if one.code not in codes] if earlier else []
    accepted = [Acceptance(code=code, by=by, reason=reason, created=now) for code in dict.fromkeys(codes)]
    request = ReleaseRequest(survey=survey, digest=digest, accept=[*kept, *accepted], by=by, reason=reason, created=now)
    lake.write(request_key(survey, digest), request.to_bytes())
    return request


def acceptable(suites: Suites, code: str) -> bool:
    """Whether a person may release a survey in spite of findings of this code."""
    rule = suites.rule(code)
    return rule is not None and rule.severity == "hold" and rule.acceptable


def after_acceptance(findings: Sequence[Finding], request: ReleaseRequest | None, suites: Suites) -> list[Finding]:
    """``findings``, of which those that a person accepted, and may accept, are warnings that name who and why."""
    accepted = {one.code: one for one in request.accept} if request else {}
    return [
        _accepted(finding, accepted[finding.code])
        if finding.severity == "hold" and finding.code in accepted and acceptable(suites, finding.code)
        else finding
        for finding in findings
    ]


def _accepted(finding: Finding, acceptance: Acceptance) -> Finding:
    who, why = printable(acceptance.by), printable(acceptance.reason)
    note = f"accepted by {who} on {acceptance.created:%Y-%m-%d}: {why}"
    return finding.model_copy(update={"severity": "warn", "found": f"{finding.found} ({note})", "release": ""})
