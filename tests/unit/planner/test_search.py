"""The planner takes the fastest layout that fits, and says what would when none does."""

from __future__ import annotations

import pytest

from seismic_model.config import MODEL_SIZES, ModelConfig
from seismic_model.planner.assumptions import Machine, read_machine
from seismic_model.planner.forecast import Task, forecast
from seismic_model.planner.layout import Choice, Layout, layouts
from seismic_model.planner.search import PlanError, best, largest

HUGE = MODEL_SIZES["huge"]
LARGE = Task(HUGE, (1536, 1536, 2048))


@pytest.fixture(scope="module")
def h200() -> Machine:
    return read_machine("h200")


def test_the_best_layout_fits_and_no_other_that_fits_is_faster(h200: Machine) -> None:
    chosen = best(LARGE, 64, h200, Choice())
    others = [forecast(LARGE, layout, h200) for layout in layouts(HUGE, 64, 8, Choice())]
    assert chosen.fits
    assert len(others) > 100
    assert all(each.samples_per_second <= chosen.samples_per_second for each in others if each.fits)


@pytest.mark.parametrize("nodes", [2, 7, 13])
def test_gpus_that_wait_for_s3_are_given_the_layout_with_the_least_work(h200: Machine, nodes: int) -> None:
    """640 × 640 × 1024 voxels at any place are (640 + 127)² × (1024 + 127) voxels of chunks, a node reads 4.5 GB/s."""
    task = Task(HUGE, (640, 640, 1024))
    chosen = best(task, 8 * nodes, h200, Choice())
    assert chosen.samples_per_second == pytest.approx(nodes * 4.5e9 / (767 * 767 * 1151 * 4))
    assert chosen.step_seconds > chosen.busy_seconds
    others = [forecast(task, layout, h200) for layout in layouts(HUGE, 8 * nodes, 8, Choice())]
    alike = [each for each in others if each.fits and each.samples_per_second >= chosen.samples_per_second * (1 - 1e-9)]
    assert len(alike) > 1
    computed_once = [each for each in alike if each.layout.checkpointing == "none"]
    assert chosen in computed_once
    assert chosen.busy_seconds / chosen.batch == min(each.busy_seconds / each.batch for each in computed_once)


def test_larger_windows_are_read_while_the_step_before_is_computed(h200: Machine) -> None:
    chosen = best(LARGE, 16, h200, Choice())
    assert chosen.step_seconds == pytest.approx(chosen.busy_seconds)
    assert 0 < chosen.crop_reading_seconds < chosen.crop_seconds


def test_gpus_that_wait_for_s3_compute_nothing_twice(h200: Machine) -> None:
    """It would cost no time: gathering weights takes longer than such small crops."""
    chosen = best(Task(MODEL_SIZES["1.8b"], (208, 208, 208)), 128, h200, Choice())
    assert chosen.layout.checkpointing == "none"


def test_heads_are_exchanged_only_inside_a_node_and_where_both_parts_divide() -> None:
    odd = ModelConfig(width=768, depth=2, heads=12, decoder_width=512, decoder_depth=2, decoder_heads=16)
    found = {(layout.ring, layout.ulysses) for layout in layouts(odd, 32, 8, Choice(cp=16))}
    assert found == {(16, 1), (8, 2), (4, 4)}  # 8 does not divide 12 heads, 16 leaves the node


def test_what_is_fixed_stays(h200: Machine) -> None:
    choice = Choice(cp=16, ulysses=2, strategy="zero3", checkpointing="full", batch=8, accumulation=2)
    layout = best(LARGE, 64, h200, choice).layout
    assert (layout.cp, layout.ulysses, layout.strategy, layout.checkpointing) == (16, 2, "zero3", "full")
    assert (layout.crops, layout.accumulation) == (1, 2)


def test_what_does_not_fit_is_refused_with_what_would(h200: Machine) -> None:
    fixed = Choice(cp=1, checkpointing="none")
    with pytest.raises(PlanError, match="does not fit on 8 h200") as refused:
        best(LARGE, 8, h200, fixed)
    remedies = str(refused.value).splitlines()[1:]
    assert any("--cp 4" in line for line in remedies)
    smaller = next(line.split()[-1] for line in remedies if "--window" in line)
    i, x, z = map(int, smaller.split("x"))
    assert best(Task(HUGE, (i, x, z)), 8, h200, fixed).fits


def test_a_layout_that_cannot_be_made_is_told_from_one_that_does_not_fit(h200: Machine) -> None:
    with pytest.raises(PlanError, match="no layout of 8 GPUs"):
        best(LARGE, 8, h200, Choice(cp=3))


def test_the_largest_window_fits_and_the_next_does_not(h200: Machine) -> None:
    found = largest(LARGE, 8, h200, Choice(), (3, 3, 4))
    i, x, z = found.task.window
    assert (i // 3, i // 3) == (x // 3, z // 4)
    size = i // 48
    with pytest.raises(PlanError):
        best(Task(HUGE, (48 * (size + 1), 48 * (size + 1), 64 * (size + 1))), 8, h200, Choice())


def test_more_gpus_see_a_larger_window(h200: Machine) -> None:
    few, many = (largest(LARGE, gpus, h200, Choice(), (3, 3, 4)).task.window for gpus in (8, 64))
    assert few < many


def test_a_longer_ring_needs_less_memory_and_checkpointing_less_still(h200: Machine) -> None:
    def total(ring: int, checkpointing: str) -> int:
        layout = Layout(64, 8, ring, 1, "fsdp2", checkpointing, "bfloat16")  # type: ignore[arg-type]
        return forecast(LARGE, layout, h200).memory_total

    assert total(4, "none") > total(8, "none") > total(8, "selective") > total(8, "full") > total(16, "full")
