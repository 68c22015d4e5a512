"""What ``discover`` found under ``incoming/``, taken in with its spec, or held back for what it is called."""

from __future__ import annotations

from ingestion.discover import Arrival, remember, spec_text
from ingestion.ingest import IngestResult, hold_back, ingest, is_withdrawn
from ingestion.lake import Lake
from ingestion.names import printable
from ingestion.source import hold
from ingestion.spec_yaml import SpecError, parse_spec


def ingest_arrival(lake: Lake, arrival: Arrival) -> IngestResult:
    """``ingest`` for what ``discover`` found, with its spec; the outcome is remembered, so that it is found once."""
    if arrival.unusable:
        result = _hold_unusable(lake, arrival)
        remember(lake, arrival, result.status)
        return result
    uris = [lake.uri_of(key) for key in arrival.keys]
    try:
        text = spec_text(lake, lake.head(arrival.spec_key)) if arrival.spec_key else b""
        spec = parse_spec(text, arrival.spec_key or "")
    except SpecError as error:
        expected, release = "a readable survey spec", "mend the spec; the survey is taken in by the next run"
        finding = hold("spec-invalid", printable(str(error)), expected, release)
        result = hold_back(lake, arrival.survey, arrival.fingerprint, [finding], arrival.original_name, uris)
    else:
        if arrival.rivals:
            return _hold_rivals(lake, arrival, uris)  # not remembered: one of them may go
        result = ingest(uris, lake, spec, name=arrival.original_name)
    if result.status != "uploading" and not is_withdrawn(result):  # which may end
        remember(lake, arrival, result.status)
    return result


def _hold_unusable(lake: Lake, arrival: Arrival) -> IngestResult:
    finding = hold(
        "name-unusable",
        f"a file under incoming/ called {arrival.original_name}",
        "names in UTF-8 without control characters and without empty parts",
        "rename the file",
    )
    return hold_back(lake, arrival.survey, arrival.fingerprint, [finding], arrival.original_name, [])


def _hold_rivals(lake: Lake, arrival: Arrival, uris: list[str]) -> IngestResult:
    finding = hold(
        "name-given-twice",
        f"new files that would all be survey {arrival.survey}: {', '.join([*arrival.keys, *arrival.rivals])}",
        "one new version of a survey at a time",
        "give each its own `name` in its survey spec, or take away all but one",
    )
    return hold_back(lake, arrival.survey, arrival.fingerprint, [finding], arrival.original_name, uris)
