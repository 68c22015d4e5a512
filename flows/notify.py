"""Tell people once: by a webhook, by SNS (which e-mails), or both; a message that fails never fails the week.

    SFM_WEBHOOK_URL    gets a POST of JSON whose `text` chat services show; it is a secret, never stored or printed
    SFM_SNS_TOPIC      ARN of a topic; who subscribes to it gets mail

``notified/<week>/<kind>-<name>-<channel>.json`` says that a message was sent; without it, it is sent again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from flows.report import WeekResult
from ingestion.lake import Lake
from ingestion.names import printable, safe_identifier

_TIMEOUT = 10.0  # seconds
_PAUSES = (1.0, 4.0)  # seconds before another try
_LONGEST = 4000  # characters of a message


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What a POST is sent on to, such as a page to log in, is told nothing: it is an error like others."""

    def redirect_request(self, *_: object) -> None:
        """None: do not follow."""


_OPENER = urllib.request.build_opener(_NoRedirect)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notice:
    """What people should know. The same kind and name of one week are told once."""

    week: str
    kind: Literal["held", "failed", "candidate", "budget", "alarm"]
    name: str
    text: str


def notify(lake: Lake, notice: Notice) -> None:
    """Send ``notice`` by every channel that is set up and has not had it."""
    for channel, send in _channels():
        key = f"notified/{notice.week}/{notice.kind}-{safe_identifier(notice.name)}-{channel}.json"
        try:
            if lake.exists(key):
                continue
            send(lake, notice)
            sent = {"text": notice.text, "at": datetime.now(UTC).isoformat()}
            lake.write(key, json.dumps(sent).encode())
        except Exception as error:  # whatever a server does, the week goes on
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            logger.warning("%s did not take the notice %r: %s", channel, notice.text, printable(reason))


def notices(result: WeekResult, report: str, begun: float) -> Iterator[Notice]:
    """What people should know of a week; ``report`` is the URI of its page.

    A failure is told again when the week, ``begun`` once more after somebody's repair, fails in the same words.
    """
    held = sorted(outcome.survey for outcome in result.outcomes if outcome.status in ("held", "failed"))
    if held:
        named = ", ".join(held[:20]) + (f" and {len(held) - 20} more" if held[20:] else "")
        text = f"{len(held)} survey(s) held back: {named}. What would release them: {report}"
        yield Notice(result.week, "held", hashlib.sha256(" ".join(held).encode()).hexdigest()[:12], text)
    first = result.why_not.partition("\n")[0]
    if result.failed or "`budget`" in first:
        what = "training failed" if result.failed else "nothing was trained"
        name = hashlib.sha256(f"{begun} {first}".encode()).hexdigest()[:12]
        yield Notice(result.week, "budget" if "`budget`" in first else "failed", name, f"{what}: {first} {report}")
    if result.version is not None:
        text = f"version {result.version} waits for your review: `sfm review show`, then approve or reject. {report}"
        yield Notice(result.week, "candidate", f"v{result.version}", text)


def _channels() -> Iterator[tuple[str, Callable[[Lake, Notice], None]]]:
    if os.environ.get("SFM_WEBHOOK_URL"):
        yield "webhook", _post
    if os.environ.get("SFM_SNS_TOPIC"):
        yield "sns", _publish


def _post(lake: Lake, notice: Notice) -> None:
    """Raises ``OSError`` or ``ValueError``, in words without the URL."""
    url = os.environ["SFM_WEBHOOK_URL"]
    if not url.startswith(("https://", "http://")):
        raise ValueError("SFM_WEBHOOK_URL is no http:// or https:// URL")
    body = {"text": _words(notice), "week": notice.week, "kind": notice.kind, "lake": lake.uri}
    headers = {"Content-Type": "application/json", "User-Agent": "seismic-retraining"}
    for pause in (*_PAUSES, None):
        try:
            request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 checked above
            with _OPENER.open(request, timeout=_TIMEOUT):
                return
        except urllib.error.HTTPError as error:
            error.close()
            if pause is None or (error.code < 500 and error.code != 429):
                raise OSError(f"it answered {error.code}") from None
        except OSError as error:
            if pause is None:
                raise OSError(f"it cannot be reached ({type(error).__name__})") from None
        except Exception as error:  # of a URL that is none, which some errors quote
            raise ValueError(f"SFM_WEBHOOK_URL cannot be used ({type(error).__name__})") from None
        time.sleep(pause)


def _publish(_lake: Lake, notice: Notice) -> None:
    import boto3
    from botocore.config import Config

    topic = os.environ["SFM_SNS_TOPIC"]
    region = topic.split(":")[3] if topic.count(":") == 5 else None
    patience = Config(connect_timeout=_TIMEOUT, read_timeout=_TIMEOUT, retries={"total_max_attempts": 3})
    subject = f"Seismic retraining {notice.week}: {notice.kind}"
    boto3.client("sns", region_name=region, config=patience).publish(
        TopicArn=topic, Subject=subject, Message=_words(notice)
    )


def _words(notice: Notice) -> str:
    return f"Week {notice.week}: {printable(notice.text)[:_LONGEST]}"
