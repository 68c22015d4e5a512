"""Training goes on from gathered states in new strategies as if it had never stopped, under every strategy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from equality import EXACT, ROUNDED, Case, Layout, State, walk

from benchmarks.crew import Crew

CASE = Case((3, 3, 5), 0.3, 2, registers=1, decode_share=0.5)
LAYOUT = Layout(2)
KINDS = [*EXACT, *ROUNDED, *(kind.replace("float32", "bfloat16") for kind in ROUNDED)]


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew(2) as crew:
        yield crew


@pytest.fixture(scope="module")
def walked(crew: Crew) -> dict[str, list[State]]:
    """States after each of four steps."""
    return {kind: crew.ask(walk, CASE, LAYOUT, kind)[0] for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_states_that_are_scattered_go_on_to_the_last_bit(crew: Crew, walked: dict[str, list[State]], kind: str) -> None:
    again = crew.ask(walk, CASE, LAYOUT, kind, 2, walked[kind][1])[0]
    for name, parts in walked[kind][3].items():
        for part, value in parts.items():
            assert np.array_equal(again[-1][name][part], value), (name, part)
    assert not np.array_equal(*(again[i]["decoder.head.weight"]["weight"] for i in (0, 1)))


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_full_precision(walked: dict[str, list[State]], kind: str) -> None:
    state = walked[kind][3]
    accurate = "float64" if kind.endswith("float64") else "float32"
    assert {value.dtype.name for parts in state.values() for value in parts.values()} == {accurate}
    if kind.endswith("bfloat16"):  # the masters hold more than the model that computes
        bits = state["decoder.head.weight"]["weight"].view(np.uint32)
        assert (bits & 0xFFFF).any()


@pytest.mark.parametrize("kind", [*EXACT, *ROUNDED])
def test_all_strategies_walk_the_same_way(walked: dict[str, list[State]], kind: str) -> None:
    """The same steps, clipping and skipped step included, so that a checkpoint of one serves the others."""
    for name, parts in walked["ddp-float64"][3].items():
        difference = np.abs(walked[kind][3][name]["exp_avg"] - parts["exp_avg"]).max()
        assert difference <= 1e-3 * np.abs(parts["exp_avg"]).max(), name


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_averaged_over_applied_steps(walked: dict[str, list[State]], kind: str) -> None:
    for before, after in zip(walked[kind], walked[kind][1:], strict=False):
        for name, parts in after.items():
            expected = 0.9 * before[name]["ema"].astype(np.float64) + 0.1 * parts["weight"]
            np.testing.assert_allclose(parts["ema"], expected, rtol=1e-5, atol=1e-7)
