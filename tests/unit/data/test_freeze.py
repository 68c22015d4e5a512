"""A frozen week: what is in it, what is left out and why, and that it stays."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from published import noise, publish

from ingestion.lake import Lake
from ingestion.withdrawal import record
from seismic_model.data.dataset import (
    DatasetError,
    SplitPolicy,
    WithdrawnError,
    dataset_key,
    load_dataset,
    load_survey,
    refuse_withdrawn,
)
from seismic_model.data.freeze import FreezeError, NothingTrainableError, freeze

WINDOW = (8, 8, 8)
SPLIT = SplitPolicy(cell_size=400, held_out_share=0.2, salt="1")


@pytest.fixture
def shelf(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path))
    publish(lake, "north", noise((40, 40, 16)))
    publish(lake, "south", noise((24, 24, 16)), origin=(50_000.0, 0.0))
    return lake


def test_it_names_digests_weights_and_the_difference_to_last_week(shelf: Lake) -> None:
    first = freeze(shelf, "2026-W48", WINDOW, SPLIT)
    assert [entry.survey for entry in first.surveys] == ["north", "south"]
    assert math.isclose(sum(entry.weight for entry in first.surveys), 1)
    assert first.difference.previous is None
    assert first.difference.added == ["north", "south"]

    publish(shelf, "south", noise((24, 24, 16), seed=1), version=2, origin=(50_000.0, 0.0))
    publish(shelf, "west", noise((24, 24, 16)), origin=(0.0, 90_000.0))
    second = freeze(shelf, "2026-W49", WINDOW, SPLIT)
    assert second.difference.previous == "2026-W48"
    assert second.difference.added == ["west"]
    assert second.difference.superseded == ["south"]
    assert second.difference.unchanged == ["north"]
    assert second.difference.removed == []


def test_a_large_survey_does_not_drown_a_small_one(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    publish(lake, "large", noise((107, 107, 8)))
    publish(lake, "small", noise((17, 17, 8)))
    publish(lake, "scored", noise((17, 17, 8)), origin=(90_000.0, 0.0))
    nearly_all = SplitPolicy(cell_size=400, held_out_share=1e-9, salt="", held_out_surveys=["scored"])
    large, _, small = freeze(lake, "2026-W48", WINDOW, nearly_all).surveys
    assert large.weight / small.weight == pytest.approx(math.sqrt(100 * 100 / (10 * 10)))


def test_a_week_whose_candidate_nobody_could_judge_is_not_trained(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    publish(lake, "north", noise((24, 24, 16)))
    with pytest.raises(NothingTrainableError, match="nothing to score"):
        freeze(lake, "2026-W48", WINDOW, SplitPolicy(cell_size=400, held_out_share=1e-9, salt=""))
    assert not list(lake.objects("datasets"))


def test_a_frozen_week_stays_whatever_is_asked_later(shelf: Lake) -> None:
    first = freeze(shelf, "2026-W48", WINDOW, SPLIT)
    publish(shelf, "west", noise((24, 24, 16)))
    assert freeze(shelf, "2026-W48", (4, 4, 4), SPLIT) == first


def test_of_two_freezes_at_once_the_first_counts(shelf: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = freeze(shelf, "2026-W48", WINDOW, SPLIT)
    monkeypatch.setattr(shelf, "exists", lambda _key: False)  # as the second saw it before the first was done
    assert freeze(shelf, "2026-W48", WINDOW, SPLIT) == first


def test_chosen_surveys_never_stand_in_for_the_whole_week(shelf: Lake) -> None:
    chosen = freeze(shelf, "2026-W48", WINDOW, SPLIT, ["north"])
    assert [entry.survey for entry in chosen.surveys] == ["north"]
    assert {entry.survey for entry in freeze(shelf, "2026-W48", WINDOW, SPLIT).surveys} == {"north", "south"}
    assert freeze(shelf, "2026-W49", WINDOW, SPLIT).difference.previous == "2026-W48"


def test_another_split_policy_is_refused_and_changes_nothing(shelf: Lake) -> None:
    freeze(shelf, "2026-W48", WINDOW, SPLIT)
    with pytest.raises(FreezeError, match=r"held_out_share is 0.3, stored 0.2.*must stay held out"):
        freeze(shelf, "2026-W49", WINDOW, SPLIT.model_copy(update={"held_out_share": 0.3}))
    assert not shelf.exists(dataset_key("2026-W49"))


def test_surveys_in_several_coordinate_systems_are_warned_of(shelf: Lake, caplog: pytest.LogCaptureFixture) -> None:
    freeze(shelf, "2026-W48", WINDOW, SPLIT)
    assert not caplog.text
    publish(shelf, "west", noise((24, 24, 16)), crs="EPSG:23031")
    freeze(shelf, "2026-W49", WINDOW, SPLIT)
    assert "2 coordinate systems" in caplog.text
    assert "EPSG:23031: west; local: north, south" in caplog.text


def test_what_is_left_out_says_why(shelf: Lake) -> None:
    publish(shelf, "thin", noise((40, 40, 7)))
    publish(shelf, "sick", noise((24, 24, 16)), status="held")
    publish(shelf, "fresh", noise((24, 24, 16)), status=None)
    publish(shelf, "dead", noise((24, 24, 16)), np.eye(24, dtype=bool))
    dataset = freeze(shelf, "2026-W48", WINDOW, SPLIT)
    reasons = {left_out.survey: left_out.reason for left_out in dataset.excluded}
    assert reasons["thin"] == "its shape (40, 40, 7) is smaller than one crop (8, 8, 8)"
    assert reasons["sick"].startswith("validation held it back")
    assert reasons["fresh"] == "not validated yet"
    assert "at least 50% live traces" in reasons["dead"]
    assert [entry.survey for entry in dataset.surveys] == ["north", "south"]


def test_a_bad_redelivery_leaves_the_last_good_version_in(shelf: Lake) -> None:
    bad = publish(shelf, "north", noise((40, 40, 16), seed=9), version=2, status="held")
    dataset = freeze(shelf, "2026-W48", WINDOW, SPLIT)
    assert [left_out.digest for left_out in dataset.excluded] == [bad.digest]
    assert [entry.survey for entry in dataset.surveys] == ["north", "south"]
    assert dataset.surveys[0].digest != bad.digest


def test_a_withdrawn_survey_is_left_out_and_comes_back(shelf: Lake) -> None:
    record(shelf, "withdraw", "south", None, by="ann", reason="licence ended")
    dataset = freeze(shelf, "2026-W48", WINDOW, SPLIT)
    assert [entry.survey for entry in dataset.surveys] == ["north"]
    [left_out] = dataset.excluded
    assert left_out.survey == "south"
    assert left_out.reason.startswith("withdrawn on ")
    assert left_out.reason.endswith("by ann: licence ended")
    with pytest.raises(FreezeError, match=r"cannot train on south \(withdrawn on .* by ann: licence ended\)"):
        freeze(shelf, "2026-W49", WINDOW, SPLIT, ["south"])
    record(shelf, "restore", "south", None, by="ann", reason="renewed")
    assert freeze(shelf, "2026-W49", WINDOW, SPLIT).difference.added == ["south"]


def test_a_withdrawn_version_leaves_the_one_before_and_a_restored_one_is_the_newest(shelf: Lake) -> None:
    old = freeze(shelf, "2026-W47", WINDOW, SPLIT).surveys[0]
    new = publish(shelf, "north", noise((40, 40, 16), seed=9), version=2)
    record(shelf, "withdraw", "north", new.digest, by="ann", reason="wrong polarity")
    dataset = freeze(shelf, "2026-W48", WINDOW, SPLIT)
    assert dataset.surveys[0] == old
    assert [left_out.digest for left_out in dataset.excluded] == [new.digest]
    record(shelf, "restore", "north", new.digest, by="ann", reason="it was right")
    assert freeze(shelf, "2026-W49", WINDOW, SPLIT).difference.superseded == ["north"]
    record(shelf, "restore", "north", old.digest, by="ann", reason="no, it was not")
    assert freeze(shelf, "2026-W50", WINDOW, SPLIT).surveys[0] == old


def test_the_places_of_a_withdrawn_held_out_survey_stay_held_out(shelf: Lake) -> None:
    publish(shelf, "again", noise((40, 40, 16)), origin=(5.0, 5.0))
    split = SPLIT.model_copy(update={"held_out_surveys": ["again"]})
    before = freeze(shelf, "2026-W48", WINDOW, split)
    record(shelf, "withdraw", "again", None, by="ann", reason="licence ended")
    after = freeze(shelf, "2026-W49", WINDOW, split)
    assert after.held_out_cells == before.held_out_cells
    assert after.difference.removed == ["again"]


@pytest.mark.parametrize("lost", ["manifest.json", "verdict.json"])
def test_an_unreadable_manifest_or_verdict_leaves_out_its_survey_only(shelf: Lake, lost: str) -> None:
    sick = publish(shelf, "sick", noise((24, 24, 16)))
    shelf.write(f"{sick.folder}/{lost}", b'{"schema_version": 2}')
    dataset = freeze(shelf, "2026-W48", WINDOW, SPLIT)
    assert [entry.survey for entry in dataset.surveys] == ["north", "south"]
    [left_out] = dataset.excluded
    assert f"sick/{sick.digest}/{lost}" in left_out.reason


def test_nothing_starts_on_a_frozen_data_set_with_a_withdrawn_survey(shelf: Lake) -> None:
    dataset = freeze(shelf, "2026-W48", WINDOW, SPLIT)
    refuse_withdrawn(shelf, dataset)
    record(shelf, "withdraw", "south", None, by="ann", reason="licence ended")
    assert freeze(shelf, "2026-W48", WINDOW, SPLIT) == dataset
    with pytest.raises(WithdrawnError, match=r"2026-W48.*south \(withdrawn on .* by ann: licence ended\).*restore"):
        refuse_withdrawn(shelf, dataset)
    refuse_withdrawn(shelf, freeze(shelf, "2026-W49", WINDOW, SPLIT))


def test_a_held_out_survey_is_only_scored_and_holds_out_its_places(shelf: Lake) -> None:
    publish(shelf, "again", noise((40, 40, 16)), origin=(5.0, 5.0))  # north, reprocessed
    split = SPLIT.model_copy(update={"held_out_surveys": ["again"]})
    dataset = freeze(shelf, "2026-W48", WINDOW, split)
    weights = {entry.survey: entry.weight for entry in dataset.surveys}
    assert weights == {"again": 0, "north": 0, "south": 1}
    assert ("local", 0, 0) in dataset.held_out_cells

    later = freeze(shelf, "2026-W49", WINDOW, split, ["north", "south"])
    assert later.held_out_cells == dataset.held_out_cells


def test_nothing_trainable_gives_every_reason_and_leaves_nothing(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    with pytest.raises(NothingTrainableError, match="there is no published survey"):
        freeze(lake, "2026-W48", WINDOW, SPLIT)
    publish(lake, "thin", noise((4, 4, 4)))
    publish(lake, "apart", noise((24, 24, 16)))
    with pytest.raises(NothingTrainableError, match=r"apart: all of it is held out\n  thin: its shape"):
        freeze(lake, "2026-W48", WINDOW, SPLIT.model_copy(update={"held_out_surveys": ["apart"]}))
    assert not list(lake.objects("datasets"))


def test_a_chosen_survey_that_cannot_be_had_is_refused_with_the_reason(shelf: Lake) -> None:
    publish(shelf, "sick", noise((24, 24, 16)), status="held")
    message = r"cannot train on nroth \(not published\); sick \(validation held it back.*passed are: north, south"
    with pytest.raises(FreezeError, match=message):
        freeze(shelf, "2026-W48", WINDOW, SPLIT, ["nroth", "sick", "south"])


def test_a_manifest_changed_after_the_freeze_is_refused(shelf: Lake) -> None:
    entry = freeze(shelf, "2026-W48", WINDOW, SPLIT).surveys[0]
    manifest = load_survey(shelf, entry)
    shelf.write(f"{manifest.folder}/manifest.json", manifest.model_copy(update={"notes": ["x"]}).to_bytes())
    with pytest.raises(DatasetError, match="changed after it was frozen"):
        load_survey(shelf, entry)


def test_a_data_set_that_is_not_there_or_not_the_one_meant_is_refused(shelf: Lake) -> None:
    with pytest.raises(DatasetError, match="does not exist; freeze a data set first"):
        load_dataset(shelf, dataset_key("2026-W48"))
    freeze(shelf, "2026-W48", WINDOW, SPLIT)
    with pytest.raises(DatasetError, match="expected 000"):
        load_dataset(shelf, dataset_key("2026-W48"), "0" * 64)
