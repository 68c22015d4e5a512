"""One survey by hand: take it in, judge it, and say whether it is released for training.

    python flows/ingest_survey.py run --lake s3://LAKE --file /data/north.sgy
    python flows/ingest_survey.py run --lake s3://LAKE --file s3://DROP/north.sgy --spec north.yaml

Ends with an error when the survey is held back; the report on the lake says what would release it.
"""

from __future__ import annotations

from metaflow import FlowSpec, Parameter, card, current, retry, step

import flows
import ingestion
import validation
from flows import cards, surveys
from ingestion.discover import described
from ingestion.lake import Lake

_TRAVEL_WITH_THE_FLOW = (flows, ingestion, validation)


class SurveyHeldBackError(Exception):
    """The survey is not released; the message gives the findings."""


class IngestSurvey(FlowSpec):
    """ingest → validate → released, or held back with the reasons."""

    lake = Parameter("lake", help="where everything lies: s3://BUCKET/PREFIX or file:///DIR", required=True)
    file = Parameter("file", help="the SEG-Y file: a path, file:// or s3:// URI", required=True)
    spec = Parameter("spec", help="survey spec (YAML); default: NAME.yaml beside NAME.sgy", default="")

    @step
    def start(self):
        """Ask the lake, and read the spec that is given or lies beside the file."""
        Lake(self.lake).check()
        self.described = described(self.file, self.spec or None)
        print(f"survey spec: {self.described.spec_uri or 'none'}")
        self.next(self.ingest)

    @retry(times=2, minutes_between_retries=0)
    @card(type="blank", id="survey")
    @step
    def ingest(self):
        """SEG-Y to a published MDIO volume, or to quarantine with the reasons."""
        self.outcome = surveys.take_in_file(self.lake, self.described)
        cards.survey(current.card["survey"], self.outcome, surveys.pictures_of(self.lake, self.outcome))
        self.next(self.validate)

    @retry(times=2, minutes_between_retries=0)
    @card(type="blank", id="verdict")
    @step
    def validate(self):
        """Great Expectations over headers, geometry and amplitudes: a verdict."""
        self.outcome = surveys.judge(self.lake, self.outcome)
        cards.survey(current.card["verdict"], self.outcome, surveys.pictures_of(self.lake, self.outcome))
        self.next(self.end)

    @step
    def end(self):
        """Say what became of it, and renew the list of all that was validated."""
        surveys.publish_index(self.lake)
        line = cards.survey_line(self.outcome)
        if self.outcome.report:
            line += f"\n  report: {self.lake}/{self.outcome.report.removesuffix('.json')}.html"
        print(line)
        if self.outcome.status != "passed":
            raise SurveyHeldBackError(line)


if __name__ == "__main__":
    IngestSurvey()
