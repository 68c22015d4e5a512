"""The week: new SEG-Y surveys to a candidate under review.

    python flows/weekly_retrain.py run --lake s3://LAKE
    python flows/weekly_retrain.py run --lake s3://LAKE --week 2026-W49 --surveys north-shelf,rift --force

Every step can be killed and the same command run again: what is published, frozen, committed or
registered is found and used as it is, and a training job that still runs is attached to.
"""

from __future__ import annotations

import yaml
from metaflow import Config, FlowSpec, Parameter, card, catch, config_expr, current, resources, retry, step, timeout

import flows
import ingestion
import seismic_model
import validation
from flows import cards, steps, surveys
from flows.week import begin

_TRAVEL_WITH_THE_FLOW = (flows, ingestion, seismic_model, validation)


class WeeklyRetrain(FlowSpec):
    """discover → ingest → validate → freeze → plan → train → evaluate → gate → register → report."""

    settings = Config("settings", default=str(steps.DEFAULT_SETTINGS), parser=yaml.safe_load)
    lake = Parameter("lake", help="where everything lies: s3://BUCKET/PREFIX or file:///DIR", required=True)
    week = Parameter("week", help="ISO week, e.g. 2026-W49; default: this week", default="")
    surveys = Parameter("surveys", help="comma-separated names: train on these only; default: all", default="")
    size = Parameter("size", help="model size, one of the settings' recipes", default="tiny")
    launcher = Parameter("launcher", help="where training runs: local, slurm or eks", default="local")
    seed = Parameter("seed", help="seed of masks, crops and new weights", default=0)
    force = Parameter("force", help="train even when nothing is new or the week is done", default=False, is_flag=True)

    @timeout(hours=4)
    @step
    def start(self):
        """Check the request, then find what lies in incoming/ or waits for its verdict."""
        names = ("lake", "week", "surveys", "size", "launcher", "seed", "force")
        self.request = steps.request({name: getattr(self, name) for name in names}, self.settings)
        begin(self.request)
        self.work = surveys.find_work(self.request)
        self.found = "some" if self.work else "none"
        print(f"week {self.request.week}: {len(self.work)} survey(s) to take in")
        self.next({"some": self.each_survey, "none": self.freeze}, condition="found")

    @retry(times=2, minutes_between_retries=2)
    @timeout(hours=4)
    @step
    def each_survey(self):
        """One branch a survey, so that a bad one stops no other."""
        self.next(self.ingest, foreach="work")

    @catch(var="ingest_failure")
    @retry(times=2, minutes_between_retries=0)
    @timeout(hours=24)
    @card(type="blank", id="survey")
    @step
    def ingest(self):
        """SEG-Y to a published MDIO volume, or to quarantine with the reasons."""
        self.outcome = surveys.take_in(self.request, self.input)
        cards.survey(current.card["survey"], self.outcome, surveys.pictures_of(self.lake, self.outcome))
        self.next(self.validate)

    @catch(var="validation_failure")
    @retry(times=2, minutes_between_retries=0)
    @timeout(hours=24)
    @card(type="blank", id="verdict")
    @step
    def validate(self):
        """Great Expectations over headers, geometry and amplitudes: a verdict."""
        if self.ingest_failure:
            self.outcome = surveys.failed(self.input, self.ingest_failure)
        self.outcome = surveys.judge(self.lake, self.outcome)
        cards.survey(current.card["verdict"], self.outcome, surveys.pictures_of(self.lake, self.outcome))
        self.next(self.collect)

    @retry(times=2, minutes_between_retries=2)
    @timeout(hours=4)
    @step
    def collect(self, inputs):
        """Keep what became of each survey."""
        self.request = inputs[0].request
        for branch in inputs:
            failure = branch.validation_failure
            outcome = surveys.failed(branch.input, failure) if failure else branch.outcome
            surveys.remember(self.request, outcome)
            print(cards.survey_line(outcome))
        self.next(self.freeze)

    @retry(times=2, minutes_between_retries=2)
    @timeout(hours=4)
    @step
    def freeze(self):
        """The week's data set: passing surveys, held-out places, difference to last week."""
        self.dataset, self.why_not = steps.freeze_week(self.request)
        self.next(self.decide)

    @retry(times=2, minutes_between_retries=2)
    @timeout(hours=4)
    @step
    def decide(self):
        """Train, or end the week because nothing is new, done or trainable."""
        self.run_name, self.why_not = steps.decide(self.request, self.dataset, self.why_not)
        self.action = "train" if self.run_name else "nothing"
        self.trained = self.failed_run = None
        print(f"run {self.run_name}" if self.run_name else f"nothing to train: {self.why_not}")
        self.next({"train": self.plan, "nothing": self.report}, condition="action")

    @retry(times=2, minutes_between_retries=2)
    @timeout(hours=4)
    @step
    def plan(self):
        """The run's configuration, resolved and frozen on the lake before anything is launched."""
        self.config_uri = steps.plan(self.request, self.dataset, self.run_name)
        self.next(self.train)

    @retry(times=3, minutes_between_retries=2)
    @timeout(hours=162)
    @card(type="blank", id="training", refresh_interval=5)
    @step
    def train(self):
        """Launch or attach, then follow to the end; what is launched again goes on from its last checkpoint."""
        self.why_not = steps.train(self.request, self.config_uri, current.card["training"])
        self.failed_run = self.config_uri if self.why_not else None
        self.ended = "failed" if self.why_not else "well"
        print(self.why_not)
        self.next({"well": self.evaluate, "failed": self.report}, condition="ended")

    @retry(times=2, minutes_between_retries=2)
    @timeout(hours=24)
    @resources(gpu=config_expr("1 if settings.get('evaluate_on_gpu') else None"))
    @step
    def evaluate(self):
        """Candidate and champion on the same held-out regions."""
        self.scores = steps.evaluate(self.config_uri)
        self.next(self.gate)

    @retry(times=2, minutes_between_retries=2)
    @timeout(hours=4)
    @step
    def gate(self):
        """Whether the candidate wins, and why."""
        self.decision = steps.judge(self.request, self.scores)
        print("; ".join(self.decision.reasons))
        self.next(self.register)

    @retry(times=2, minutes_between_retries=2)
    @timeout(hours=4)
    @step
    def register(self):
        """A winner becomes the challenger in MLflow; a loser is only reported."""
        version = steps.register(self.config_uri, self.scores, self.decision)
        self.trained = steps.Trained(self.config_uri, self.scores, self.decision, version)
        self.next(self.report)

    @retry(times=2, minutes_between_retries=2)
    @timeout(hours=4)
    @card(type="html", id="report")
    @step
    def report(self):
        """The week on one page, on the lake and in the card."""
        result = steps.week_result(self.request, self.dataset, self.why_not, self.trained, self.failed_run)
        self.summary, self.html = steps.report(self.request, result)
        self.next(self.end)

    @timeout(hours=4)
    @step
    def end(self):
        """Say where to look; a week whose training failed fails here, after its report."""
        for line in self.summary.lines:
            print(f"{line.name:>10}: {line.value}")
        print(f"{'report':>10}: {self.lake}/{self.summary.report}")
        if self.failed_run:
            raise steps.WeekFailedError(self.why_not)


if __name__ == "__main__":
    WeeklyRetrain()
