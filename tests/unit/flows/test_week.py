"""Which run a request means, and when a week has nothing to train."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path

import pytest
from asked import PARAMETERS, RAW, asked, commit, finish
from hypothesis import given
from hypothesis import strategies as st

from flows import steps
from flows.report import WeekResult
from flows.settings import SettingsError, read_settings
from flows.steps import RequestError, decide, plan, report, request, train
from flows.week import iso_week, run_name
from ingestion.lake import Lake
from ingestion.manifest import Normalisation
from ingestion.withdrawal import record
from seismic_model.config import MODEL_SIZES, RunConfig
from seismic_model.data.dataset import Dataset, Difference, SurveyEntry, WithdrawnError, dataset_key
from seismic_model.train import main as entry
from seismic_model.train import read_config


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def freeze(lake: Lake, week: str, difference: Difference) -> str:
    entry = SurveyEntry(
        survey="north",
        digest="1" * 64,
        manifest_sha256=hashlib.sha256(b"").hexdigest(),
        normalisation=Normalisation(centre=0, scale=1, clip=6),
        weight=1,
        licence=None,
    )
    dataset = Dataset(
        week=week,
        created=dt.datetime(2026, 11, 30, tzinfo=dt.UTC),
        window=(16, 16, 32),
        split=read_settings(RAW).split,
        held_out_cells=[],
        surveys=[entry],
        excluded=[],
        difference=difference,
    )
    lake.write(dataset_key(week), dataset.to_bytes())
    return dataset_key(week)


FIRST = Difference(previous=None, added=["north"], removed=[], superseded=[], unchanged=[])
SAME = Difference(previous="2026-W48", added=[], removed=[], superseded=[], unchanged=["north"])
NEWER = Difference(previous="2026-W48", added=[], removed=[], superseded=["north"], unchanged=[])


@given(st.dates(dt.date(2000, 1, 1), dt.date(2100, 1, 1)))
def test_the_week_of_a_day_is_a_week_of_the_calendar(day: dt.date) -> None:
    monday = dt.datetime.strptime(f"{iso_week(day)}-1", "%G-W%V-%u").date()
    assert dt.timedelta(0) <= day - monday < dt.timedelta(weeks=1)


def test_the_same_request_means_the_same_run(lake: Lake) -> None:
    assert run_name(asked(lake), lake) == run_name(asked(lake), lake) == "2026-w49-tiny-s0"


def test_a_choice_of_surveys_is_another_run_whatever_their_order(lake: Lake) -> None:
    one, other = asked(lake, surveys="a,b"), asked(lake, surveys=" b , a")
    assert run_name(one, lake) == run_name(other, lake)
    assert run_name(one, lake) != run_name(asked(lake), lake)


def test_force_opens_another_run_only_after_a_finished_one(lake: Lake) -> None:
    forced = asked(lake, force=True)
    assert run_name(forced, lake) == "2026-w49-tiny-s0"
    finish(lake, "2026-w49-tiny-s0")
    assert run_name(forced, lake) == "2026-w49-tiny-s0-2"
    assert run_name(forced, lake) == "2026-w49-tiny-s0-2"  # a forced run that was killed is found again
    finish(lake, "2026-w49-tiny-s0-2")
    assert run_name(forced, lake) == "2026-w49-tiny-s0-3"


def test_a_first_week_trains(lake: Lake) -> None:
    assert decide(asked(lake), freeze(lake, "2026-W49", FIRST), "") == ("2026-w49-tiny-s0", "")


def test_a_finished_week_is_done_unless_forced(lake: Lake) -> None:
    dataset = freeze(lake, "2026-W49", FIRST)
    finish(lake, "2026-w49-tiny-s0")
    run, why = decide(asked(lake), dataset, "")
    assert run is None
    assert "is done" in why
    assert decide(asked(lake, force=True), dataset, "")[0] == "2026-w49-tiny-s0-2"


def test_a_week_with_nothing_new_trains_only_when_the_last_one_never_finished(lake: Lake) -> None:
    dataset = freeze(lake, "2026-W49", SAME)
    assert decide(asked(lake), dataset, "")[0] == "2026-w49-tiny-s0"
    finish(lake, "2026-w48-tiny-s0", "2026-W48")
    run, why = decide(asked(lake), dataset, "")
    assert run is None
    assert "no survey is new since 2026-W48" in why
    assert decide(asked(lake), freeze(lake, "2026-W49", NEWER), "")[0] == "2026-w49-tiny-s0"


def test_a_week_with_a_withdrawn_survey_trains_nothing_and_says_why(lake: Lake) -> None:
    dataset = freeze(lake, "2026-W49", FIRST)
    record(lake, "withdraw", "north", None, by="ann", reason="licence ended")
    for forced in (False, True):
        run, why = decide(asked(lake, force=forced), dataset, "")
        assert run is None
        assert "north (withdrawn on " in why
    with pytest.raises(WithdrawnError, match="by ann: licence ended"):
        plan(asked(lake), dataset, "2026-w49-tiny-s0")
    assert not any(lake.objects("runs"))
    config = planned(lake, dataset)
    with pytest.raises(WithdrawnError, match="by ann: licence ended"):
        train(asked(lake), config, None)
    assert entry(["--config", config]) == 2
    record(lake, "restore", "north", None, by="ann", reason="renewed")
    assert decide(asked(lake), dataset, "")[0] == "2026-w49-tiny-s0"


def test_a_run_that_is_trained_asks_for_no_nodes_and_no_money(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the flow was killed while it scored the run."""
    dataset = freeze(lake, "2026-W49", FIRST)
    poor = asked(lake, RAW | {"budget": {"gpu_hours": 1e-9}, "start_from": "scratch"})
    run, why = decide(poor, dataset, "")
    assert "its budget is 0.0" in why
    config = read_config(plan(poor, dataset, "2026-w49-tiny-s0"))
    commit(config, config.steps)
    monkeypatch.setattr(steps, "follow", lambda *_: pytest.fail("it was launched"))
    run, why = decide(poor, dataset, "")
    assert (run, why) == (config.run, "")
    assert train(poor, lake.uri_of(config.key), None) == ""


def test_the_page_of_a_week_stays_when_the_week_is_started_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "publish_index", lambda _: None)  # of Data Docs
    first, page = report(asked(lake), WeekResult("2026-W49", [], why_not="<nothing was trained yet>"))
    finish(lake, "2026-w49-tiny-s0")
    before = lake.head("weeks/2026-W49/summary.json").modified
    again = WeekResult("2026-W49", [], why_not="run 2026-w49-tiny-s0 is done; --force trains again")
    assert report(asked(lake), again) == (first, page)
    assert lake.read("weeks/2026-W49/report.html").decode() == page
    assert lake.head("weeks/2026-W49/summary.json").modified > before  # so that its newest start is over
    assert report(asked(lake, force=True), again)[1] != page


def planned(lake: Lake, dataset: str) -> str:
    """A run that was planned before."""
    config = RunConfig(
        lake=lake.uri,
        run="before",
        dataset=dataset,
        dataset_sha256=hashlib.sha256(lake.read(dataset)).hexdigest(),
        model=MODEL_SIZES["tiny"],
        window=(16, 16, 32),
        steps=1,
        batch=1,
    )
    lake.write(config.key, config.to_bytes())
    return lake.uri_of(config.key)


def test_what_the_freeze_said_is_passed_on(lake: Lake) -> None:
    assert decide(asked(lake), None, "nothing trainable") == (None, "nothing trainable")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"week": "2026-W54"}, "--week"),
        ({"week": "49"}, "--week"),
        ({"surveys": "North Shelf"}, "--surveys"),
        ({"seed": -1}, "--seed"),
        ({"launcher": "moon"}, "'moon' is not known"),
    ],
)
def test_what_cannot_be_is_refused(lake: Lake, change: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        asked(lake, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ema_decay": 2.0}, "'tiny' cannot be trained: ema_decay"),
        ({"ulysses": 3}, "'tiny' cannot be trained: .*ulysses 3 has to divide"),
        ({"processes": 3}, "'tiny' cannot be trained: 3 processes cannot form groups of cp=2"),
        ({"processes": 6, "strategy": "auto"}, "'tiny' cannot be trained: batch 8 cannot be dealt out"),
    ],
)
def test_a_recipe_that_cannot_train_is_refused_before_surveys_are_taken_in(
    lake: Lake, change: dict[str, object], message: str
) -> None:
    recipe = RAW["recipes"]["tiny"] | change
    with pytest.raises(SettingsError, match=message):
        request({"lake": lake.uri, **PARAMETERS}, RAW | {"recipes": {"tiny": recipe}})
