"""One survey through the flow: taken in, judged, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from flows.week import Request, week_folder
from ingestion.catalog import each_survey, load_manifest
from ingestion.discover import Arrival, Described, discover
from ingestion.lake import Lake
from ingestion.manifest import Contract, Digest, Finding, SafeName
from ingestion.names import store_message
from ingestion.quarantine import report_key

if TYPE_CHECKING:
    from ingestion.ingest import IngestResult


class Work(Contract):
    """One branch of the flow: an arrival to take in, or a published digest that waits for a verdict."""

    survey: SafeName
    arrival: Arrival | None
    digest: Digest | None


class SurveyOutcome(Contract):
    """What became of one survey; kept as ``weeks/<week>/surveys/<survey>.json``."""

    survey: SafeName
    status: Literal["passed", "held", "uploading", "failed"]
    digest: Digest | None
    findings: list[Finding]
    report: str | None  # key of the quarantine report


def find_work(request: Request) -> list[Work]:
    """What lies in ``incoming/``, then what was published and waits for a verdict, as ``_waits`` says."""
    lake = Lake(request.lake)
    arrivals = [Work(survey=arrival.survey, arrival=arrival, digest=None) for arrival in discover(lake)]
    waiting = [
        Work(survey=newest.survey, arrival=None, digest=newest.digest)
        for newest in each_survey(lake, lambda _survey, versions: versions[0])
        if newest.withdrawal is None and _waits(lake, newest.survey, newest.digest)
    ]
    found = {work.survey: work for work in [*waiting, *arrivals]}
    return [found[name] for name in sorted(found) if not request.surveys or name in request.surveys]


def _waits(lake: Lake, survey: str, digest: str) -> bool:
    """Without a verdict, e.g. of a run that was killed, or with one from before a person asked for its release."""
    from validation.releases import load_request
    from validation.verdict import load_verdict

    verdict, asked = load_verdict(lake, survey, digest), load_request(lake, survey, digest)
    return verdict is None or (asked is not None and asked.created > verdict.created)


def take_in(request: Request, work: Work) -> SurveyOutcome:
    """Ingest the branch's survey. The status is "passed" as far as ingestion can say."""
    from ingestion.arrivals import ingest_arrival  # zarr, which the other steps do not need

    lake = Lake(request.lake)
    if work.arrival is None:
        return SurveyOutcome(survey=work.survey, status="passed", digest=work.digest, findings=[], report=None)
    return _of_result(ingest_arrival(lake, work.arrival))


def take_in_file(lake_uri: str, file: Described) -> SurveyOutcome:
    """Ingest one SEG-Y file, or all that its spec lists beside it. Raises ``FileNotFoundError``."""
    from ingestion.ingest import ingest

    return _of_result(ingest(file.uris, Lake(lake_uri), file.spec, name=file.name))


def _of_result(result: IngestResult) -> SurveyOutcome:
    status: Literal["passed", "held", "uploading"] = "passed" if result.manifest else "held"
    if result.status == "uploading":
        status = "uploading"
    return SurveyOutcome(
        survey=result.survey,
        status=status,
        digest=result.digest,
        findings=result.findings,
        report=result.report_key,
    )


def publish_index(lake_uri: str) -> None:
    """Renew the list of all that was validated."""
    from validation.data_docs import publish_index as publish  # great_expectations

    publish(Lake(lake_uri))


def judge(lake_uri: str, outcome: SurveyOutcome) -> SurveyOutcome:
    """Validate what ingestion published; anything else stays as it is."""
    from validation.checks import validate  # pandas

    if outcome.status != "passed" or outcome.digest is None:
        return outcome
    lake = Lake(lake_uri)
    verdict = validate(lake, outcome.survey, outcome.digest)
    held = verdict.status == "held"
    return outcome.model_copy(
        update={
            "status": verdict.status,
            "findings": [*outcome.findings, *verdict.findings],
            "report": report_key(outcome.survey, outcome.digest) if held else None,
        }
    )


def failed(work: Work, error: object) -> SurveyOutcome:
    """A survey whose branch broke for a reason that is not the survey's; the next run tries it again."""
    finding = Finding(
        code="step-failed",
        severity="hold",
        found=(store_message(error).splitlines() or ["the step was killed"])[-1],
        expected="a step that runs to its end",
        release="look at the step's log and start the week again; nothing was half published",
    )
    return SurveyOutcome(survey=work.survey, status="failed", digest=work.digest, findings=[finding], report=None)


def remember(request: Request, outcome: SurveyOutcome) -> None:
    """Keep ``outcome`` for the week's report, also when the flow is started again."""
    Lake(request.lake).write(f"{week_folder(request.week)}/surveys/{outcome.survey}.json", outcome.to_bytes())


def outcomes_of(lake: Lake, week: str) -> list[SurveyOutcome]:
    """What became of each survey of the week so far, by name."""
    keys = sorted(entry.key for entry in lake.objects(f"{week_folder(week)}/surveys"))
    return [SurveyOutcome.model_validate_json(lake.read(key)) for key in keys]


def pictures_of(lake_uri: str, outcome: SurveyOutcome) -> dict[str, bytes]:
    """PNG bytes by caption of a published survey; none of one that is not."""
    from validation.pictures import survey_pictures

    if outcome.status in ("uploading", "failed") or outcome.digest is None:
        return {}
    lake = Lake(lake_uri)
    try:
        manifest = load_manifest(lake, outcome.survey, outcome.digest)
    except FileNotFoundError:
        return {}
    return survey_pictures(lake, manifest)
