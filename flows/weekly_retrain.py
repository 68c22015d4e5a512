"""The week: new SEG-Y surveys to a candidate under review.

    python flows/weekly_retrain.py run --lake s3://LAKE
    python flows/weekly_retrain.py run --lake s3://LAKE --week 2026-W49 --surveys north-shelf,rift --force

Every step can be killed and the same command run again: what is published, frozen, committed or
registered is found and used as it is, and a training job that still runs is attached to.
"""

from __future__ import annotations

import yaml
from metaflow import Config, FlowSpec, Parameter, card, catch, current, retry, step

import ingestion
import seismic_model
import validation
from flows import cards, steps

_TRAVEL_WITH_THE_FLOW = (ingestion, seismic_model, validation)


class WeeklyRetrain(FlowSpec):
    """discover → ingest → validate → freeze → plan → train → evaluate → gate → register → report."""

    settings = Config("settings", default=str(steps.DEFAULT_SETTINGS), parser=yaml.safe_load)
    lake = Parameter("lake", help="where everything lies: s3://BUCKET/PREFIX or file:///DIR", required=True)
    week = Parameter("week", help="ISO week, e.g. 2026-W49; default: this week", default="")
    surveys = Parameter("surveys", help="comma-separated names: train on these only; default: all", default="")
    size = Parameter("size", help="model size, one of the settings' recipes", default="tiny")
    launcher = Parameter("launcher", help="where training runs: local", default="local")
    seed = Parameter("seed", help="seed of masks, crops and new weights", default=0)
    force = Parameter("force", help="train even when nothing is new or the week is done", default=False, is_flag=True)

    @step
    def start(self):
        """Check the request, then find what lies in incoming/ or waits for its verdict."""
        self.request = steps.request(self)
        self.arrivals = steps.discover(self.request)
        self.found = "some" if self.arrivals else "none"
        print(f"week {self.request['week']}: {len(self.arrivals)} survey(s) to take in")
        self.next({"some": self.each_survey, "none": self.freeze}, condition="found")

    @step
    def each_survey(self):
        """One branch a survey, so that a bad one stops no other."""
        self.next(self.ingest, foreach="arrivals")

    @catch(var="ingest_failure")
    @retry(times=2, minutes_between_retries=0)
    @card(type="blank", id="survey")
    @step
    def ingest(self):
        """SEG-Y to a published MDIO volume, or to quarantine with the reasons."""
        self.outcome = steps.ingest(self.request, self.input)
        cards.survey(current.card["survey"], self.request, self.outcome)
        self.next(self.validate)

    @catch(var="validation_failure")
    @retry(times=2, minutes_between_retries=0)
    @card(type="blank", id="verdict")
    @step
    def validate(self):
        """Great Expectations over headers, geometry and amplitudes: a verdict."""
        self.outcome = steps.validate(self.request, self.input, getattr(self, "outcome", None), self.ingest_failure)
        cards.verdict(current.card["verdict"], self.request, self.outcome)
        self.next(self.collect)

    @step
    def collect(self, inputs):
        """What became of each survey."""
        self.outcomes = [steps.final_outcome(each) for each in inputs]
        self.request = inputs[0].request
        self.next(self.freeze)

    @retry(times=2, minutes_between_retries=0)
    @step
    def freeze(self):
        """The week's data set: passing surveys, held-out places, difference to last week."""
        self.outcomes = getattr(self, "outcomes", [])
        self.dataset, self.why_not = steps.freeze(self.request)
        self.next(self.decide)

    @step
    def decide(self):
        """Train, or end the week because nothing is new, done or trainable."""
        self.run_name, self.why_not = steps.decide(self.request, self.dataset, self.why_not)
        self.action = "train" if self.run_name else "nothing"
        print(f"train {self.run_name}" if self.run_name else f"nothing to train: {self.why_not}")
        self.next({"train": self.plan, "nothing": self.report}, condition="action")

    @retry(times=2, minutes_between_retries=0)
    @step
    def plan(self):
        """The run's configuration, resolved and frozen on the lake before anything is launched."""
        self.config_uri = steps.plan(self.request, self.dataset, self.run_name)
        self.next(self.train)

    @retry(times=3, minutes_between_retries=0)
    @card(type="blank", id="training", refresh_interval=5)
    @step
    def train(self):
        """Launch or attach, then follow to the end; a retry resumes from the last checkpoint."""
        steps.train(self.request, self.config_uri, cards.Training(current.card["training"]))
        self.next(self.evaluate)

    @retry(times=2, minutes_between_retries=0)
    @step
    def evaluate(self):
        """Candidate and champion on the same held-out regions."""
        self.scores = steps.evaluate(self.request, self.config_uri)
        self.next(self.gate)

    @step
    def gate(self):
        """Whether the candidate wins, and why."""
        self.decision = steps.gate(self.request, self.scores)
        self.next(self.register)

    @retry(times=2, minutes_between_retries=0)
    @step
    def register(self):
        """A winner becomes the challenger in MLflow; a loser is only reported."""
        self.version = steps.register(self.request, self.config_uri, self.scores, self.decision)
        self.next(self.report)

    @retry(times=2, minutes_between_retries=0)
    @card(type="html", id="report")
    @step
    def report(self):
        """The week on one page, on the lake and in the card."""
        self.summary, self.html = steps.report(self)
        self.next(self.end)

    @step
    def end(self):
        """Say where to look."""
        print(self.summary["text"])


if __name__ == "__main__":
    WeeklyRetrain()
