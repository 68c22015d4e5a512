"""Notices reach a real HTTP server and SNS, once each, and never fail the week."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.sns import sns_backends

from flows import notify as notifying
from flows.notify import Notice, notices, notify
from flows.report import WeekResult
from flows.surveys import SurveyOutcome
from ingestion.lake import Lake
from ingestion.manifest import Finding

WEEK = "2026-W49"
NOTICE = Notice(WEEK, "held", "abc", "2 survey(s) held back: north, \x1b[2Jsouth")


@dataclass
class Hook:
    """What a chat service was sent, and how it answers."""

    url: str
    answers: list[int]  # one for each request, then 200
    bodies: list[dict[str, str]] = field(default_factory=list)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(found.answers.pop(0) if found.answers else 200)
            self.send_header("Location", "/login")  # which a 302 leads to
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Hook(f"http://127.0.0.1:{server.server_port}/hook/s3cr3t", [])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SFM_WEBHOOK_URL", found.url)
    monkeypatch.setattr(notifying, "_PAUSES", (0.0, 0.0))
    yield found
    server.shutdown()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def test_a_notice_is_posted_once_and_its_words_are_harmless(lake: Lake, hook: Hook) -> None:
    notify(lake, NOTICE)
    notify(lake, NOTICE)
    (body,) = hook.bodies
    assert body["text"] == "Week 2026-W49: 2 survey(s) held back: north, \\x1b[2Jsouth"
    assert (body["week"], body["kind"], body["lake"]) == (WEEK, "held", lake.uri)
    notify(lake, Notice(WEEK, "held", "other", "1 survey(s) held back: east"))
    assert len(hook.bodies) == 2


@pytest.mark.parametrize(
    ("answers", "requests", "sent"),
    [([503, 429], 3, True), ([503] * 3, 3, False), ([404], 1, False), ([302], 1, False)],
)
def test_what_may_pass_is_tried_again_and_what_was_not_taken_is_sent_next_time(
    lake: Lake, hook: Hook, caplog: pytest.LogCaptureFixture, answers: list[int], requests: int, sent: bool
) -> None:
    last = answers[-1]
    hook.answers[:] = answers
    notify(lake, NOTICE)
    assert len(hook.bodies) == requests
    assert (f"it answered {last}" in caplog.text) != sent
    notify(lake, NOTICE)
    assert len(hook.bodies) == requests + (not sent)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/s3cr3t", "file:///etc/passwd?s3cr3t", "https://[s3cr3t", "http://user:s3cr3t@\n/"]
)
def test_an_address_that_is_none_costs_a_warning_that_does_not_name_it(
    lake: Lake, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    monkeypatch.setenv("SFM_WEBHOOK_URL", url)
    notify(lake, NOTICE)
    assert "webhook did not take the notice" in caplog.text
    assert "s3cr3t" not in caplog.text
    assert not list(lake.objects())


def test_without_channels_nothing_is_sent_and_nothing_marked(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SFM_WEBHOOK_URL", raising=False)
    monkeypatch.delenv("SFM_SNS_TOPIC", raising=False)
    notify(lake, NOTICE)
    assert not list(lake.objects())


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set before moto sets its own, and so put back after it."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which keeps the credentials of its first use
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        yield


@pytest.mark.usefixtures("aws")
def test_sns_gets_it_in_the_region_of_its_topic(lake: Lake, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = boto3.client("sns", region_name="eu-west-1").create_topic(Name="weeks")["TopicArn"]
    monkeypatch.setenv("SFM_SNS_TOPIC", topic)
    notify(lake, NOTICE)
    notify(lake, NOTICE)
    ((_, message, subject, *_rest),) = sns_backends[DEFAULT_ACCOUNT_ID]["eu-west-1"].topics[topic].sent_notifications
    assert message == "Week 2026-W49: 2 survey(s) held back: north, \\x1b[2Jsouth"
    assert subject == "Seismic retraining 2026-W49: held"
    assert len(hook.bodies) == 1  # both channels


@pytest.mark.usefixtures("aws")
def test_one_channel_that_fails_does_not_keep_the_other_from_it(
    lake: Lake, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SFM_SNS_TOPIC", f"arn:aws:sns:us-east-1:{DEFAULT_ACCOUNT_ID}:not-there")
    notify(lake, NOTICE)
    assert len(hook.bodies) == 1
    assert "sns did not take the notice" in caplog.text


def outcome(survey: str, status: str) -> SurveyOutcome:
    finding = Finding(code="odd", severity="hold", found="", expected="", release="")
    raw = {"survey": survey, "status": status, "digest": None, "findings": [finding], "report": None}
    return SurveyOutcome.model_validate(raw)


def test_a_week_tells_what_people_have_to_do_and_nothing_else() -> None:
    assert not list(notices(WeekResult(WEEK, [outcome("north", "passed")], why_not="no survey is new"), "URI", 1.0))
    outcomes = [outcome("north", "passed"), outcome("south", "held"), outcome("west", "failed")]
    (held,) = notices(WeekResult(WEEK, outcomes, why_not="no survey is new"), "URI", 1.0)
    assert held.text == "2 survey(s) held back: south, west. What would release them: URI"
    (again,) = notices(WeekResult(WEEK, outcomes[:2], why_not="no survey is new"), "URI", 1.0)
    assert again.name != held.name
    (failed,) = notices(WeekResult(WEEK, [], why_not="out of memory\nlog", failed=True), "URI", 1.0)
    assert (failed.kind, failed.text) == ("failed", "training failed: out of memory URI")
    (later,) = notices(WeekResult(WEEK, [], why_not="out of memory\nlog", failed=True), "URI", 2.0)
    assert (later.text, later.name == failed.name) == (failed.text, False)  # it was started again, and failed again
    (budget,) = notices(WeekResult(WEEK, [], why_not="too dear; raise `budget`"), "URI", 1.0)
    assert (budget.kind, budget.text) == ("budget", "nothing was trained: too dear; raise `budget` URI")
    (waits,) = notices(WeekResult(WEEK, [], version="7"), "URI", 1.0)
    assert (waits.kind, "version 7 waits for your review" in waits.text) == ("candidate", True)
