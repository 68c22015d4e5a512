"""What a run may cost: refused before it is launched, counted while it runs, never counted twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked import RAW, asked
from planned import plan as planned

from flows import budget as budgets
from flows.budget import BudgetError, Meter, check_budget, cost, estimate
from flows.notify import notices
from flows.report import WeekResult
from flows.settings import Budget, SettingsError, read_settings
from flows.steps import decide
from ingestion.lake import Lake
from seismic_model.planner.command import plan as plan_command


class Clock:
    """The time of day, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(budgets, "_now", clock.time)
    return clock


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def follow(meter: Meter, clock: Clock, seconds: float, every: float = 2.0) -> None:
    for _ in range(int(seconds / every)):
        clock.now += every
        meter.add(every)


def write_metrics(lake: Lake, run: str, *seconds: float) -> None:
    lines = [json.dumps({"step": number + 1, "seconds": each}) for number, each in enumerate(seconds)]
    lake.write(f"runs/{run}/metrics.jsonl", "\n".join(lines).encode())


def test_the_estimate_is_what_sfm_plan_says(lake: Lake) -> None:
    from click.testing import CliRunner

    from seismic_model.config import MODEL_SIZES

    size = {"model": MODEL_SIZES["base"], "window": (256, 256, 512), "batch": 64, "steps": 1000}
    config = planned(lake, strategy="zero2", precision="bfloat16", **size)
    arguments = "--model base --window 256x256x512 --gpus 64 --strategy zero2 --cp 1 --ulysses 1 --batch 64 --json"
    arguments += " --accumulation 1 --checkpointing none --samples 64000 --price-per-gpu-hour 5"
    said = CliRunner().invoke(plan_command, arguments.split())
    expected = json.loads(said.output)["data_set"]
    found = estimate(config, 64, Budget(price_per_gpu_hour=5))
    assert found.money == pytest.approx(expected["price_usd"])
    assert found.hours == pytest.approx(expected["days"] * 24)
    half = estimate(config, 64, Budget(price_per_gpu_hour=5), done=500)
    assert half.money == pytest.approx(found.money / 2)


@pytest.mark.parametrize("limit", ["gpu_hours", "money"])
def test_a_run_that_would_take_more_than_the_budget_is_refused_with_both_figures(lake: Lake, limit: str) -> None:
    config = planned(lake)
    whole = estimate(config, 2, Budget(price_per_gpu_hour=4))
    amount = {"gpu_hours": whole.gpu_hours, "money": whole.money}[limit]
    check_budget(lake, config, 2, Budget(price_per_gpu_hour=4, **{limit: amount * 1.01}))
    with pytest.raises(BudgetError, match=r"run first would take .* GPU hours .*; its budget is .*USD at 4 USD each"):
        check_budget(lake, config, 2, Budget(price_per_gpu_hour=4, **{limit: amount * 0.99}))


def test_what_a_run_has_used_counts_when_it_is_started_again(lake: Lake, clock: Clock) -> None:
    config = planned(lake)
    budget = Budget(gpu_hours=estimate(config, 2, Budget()).gpu_hours + 1)
    meter = Meter(lake, config.run, 2, budget)
    follow(meter, clock, 1780)
    meter.keep()
    check_budget(lake, config, 2, budget)
    follow(meter, clock, 60)
    meter.keep()
    with pytest.raises(BudgetError, match=r"beside 1\.0 already used"):
        check_budget(lake, config, 2, budget)


def test_a_week_over_its_budget_ends_with_the_reason(lake: Lake) -> None:
    planned(lake)
    raw: dict[str, Any] = RAW | {"budget": {"gpu_hours": 1e-9}}
    run, why = decide(asked(lake, raw, week="2026-W48"), "datasets/2026-W48.json", "")
    assert run is None
    assert "its budget is 0.0 (" in why
    assert decide(asked(lake, week="2026-W48"), "datasets/2026-W48.json", "") == ("2026-w48-tiny-s0", "")


@pytest.mark.parametrize("budget", [{"gpu_hours": 1e-9}, {"gpu_hours": 1, "gpu": "h2000"}])
def test_people_are_told_of_a_week_that_its_budget_keeps_from_training(lake: Lake, budget: dict[str, Any]) -> None:
    planned(lake)
    _, why = decide(asked(lake, RAW | {"budget": budget}, week="2026-W48"), "datasets/2026-W48.json", "")
    (notice,) = notices(WeekResult("2026-W48", [], why_not=why), "s3://lake/report.html", 1.0)
    assert notice.kind == "budget"
    assert notice.text.startswith("nothing was trained: ")


def test_what_makes_no_sense_in_a_budget_is_said_by_name(lake: Lake) -> None:
    with pytest.raises(SettingsError, match=r"budget.money: Input should be greater than 0"):
        read_settings(RAW | {"budget": {"money": 0}})
    with pytest.raises(BudgetError, match=r"knows no GPU 'h2000'; it knows: .*h200"):
        Meter(lake, "run", 1, Budget(gpu="h2000", money=1))


def test_time_is_counted_for_all_processes_and_kept(lake: Lake, clock: Clock) -> None:
    meter = Meter(lake, "run", 8, Budget(gpu_hours=8, price_per_gpu_hour=3))
    assert meter.left() == 3600
    follow(meter, clock, 1800)
    assert meter.left() == pytest.approx(1800)
    meter.keep()
    found = cost(lake, "run")
    assert found is not None
    assert (found.seconds, found.gpu_hours, found.money) == pytest.approx((1800, 4, 12))
    assert found.gpu_hours_allowed == 8


def test_a_follower_that_is_killed_loses_half_a_minute_at_most(lake: Lake, clock: Clock) -> None:
    follow(Meter(lake, "run", 1, None), clock, 100)
    clock.now += 5
    again = Meter(lake, "run", 1, None)
    follow(again, clock, 100)
    again.keep()
    found = cost(lake, "run")
    assert found is not None
    assert 170 <= found.seconds <= 200
    assert found.money is None
    assert again.left() == float("inf")


def test_two_followers_count_the_same_time_once(lake: Lake, clock: Clock) -> None:
    one, other = (Meter(lake, "run", 1, None) for _ in range(2))
    for _ in range(300):
        clock.now += 2
        one.add(2)
        other.add(2)
    one.keep()
    other.keep()
    found = cost(lake, "run")
    assert found is not None
    assert found.seconds == pytest.approx(600)


def test_steps_that_nobody_followed_are_counted_and_steps_done_again_do_not_take_back(lake: Lake, clock: Clock) -> None:
    first = Meter(lake, "run", 2, None)
    follow(first, clock, 60)
    first.keep()
    clock.now += 5000
    write_metrics(lake, "run", *[100.0] * 40)
    second = Meter(lake, "run", 2, None)
    second.keep()
    assert second.cost.seconds == 4000
    follow(second, clock, 60)
    write_metrics(lake, "run", *[100.0] * 20)  # a restart from a checkpoint drops lines
    second.keep()
    assert second.cost.seconds == 4060
    assert second.cost.gpu_hours == pytest.approx(4060 * 2 / 3600)
