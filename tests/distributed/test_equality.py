"""One training step on several real processes gives the loss and gradients of one process, under every strategy.

``tests/proof`` has the whole matrix.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from equality import EXACT, ROUNDED, TOLERANCE, Case, Errors, Layout, equality
from equality_cases import cases
from hypothesis import given, seed, settings

from benchmarks.crew import Crew

CASES = {
    "even": Case((4, 4, 6), 0.25),
    "uneven": Case((3, 3, 5), 0.3, 3, registers=2, patch_normalisation=True, activation_checkpointing="selective"),
    "rank-without-tokens": Case((1, 2, 5), 0.5, 3, decode_share=0.5, activation_checkpointing="full"),
    "rank-without-visible-tokens": Case((4, 4, 4), 0.03, decoder="cross", activation_checkpointing="full"),
    "rank-without-decoded-tokens": Case((1, 4, 5), 0.9, 3, decoder="cross", activation_checkpointing="selective"),
    "nothing-live": Case((3, 3, 5), 0.3, decoder="cross", decode_share=0.5, live=False),
}
LAYOUTS = [(2, Layout(1)), (2, Layout(2)), (3, Layout(3)), (4, Layout(2, 2)), (4, Layout(4, 2))]  # processes


@pytest.fixture(scope="module")
def crews() -> Iterator[dict[int, Crew]]:
    with Crew(2) as two, Crew(3) as three, Crew(4) as four:
        yield {2: two, 3: three, 4: four}


@pytest.mark.parametrize(("processes", "layout"), LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_one_process(
    crews: dict[int, Crew], processes: int, layout: Layout, name: str
) -> None:
    rounded = ROUNDED if name in ("uneven", "rank-without-decoded-tokens") else []
    found: dict[str, Errors] = crews[processes].ask(equality, CASES[name], layout, EXACT + rounded)[0]
    assert {kind: e for kind, e in found.items() if not e.largest <= TOLERANCE[kind.split("-")[1]]} == {}


def test_the_cases_cover_what_they_say() -> None:
    shards = {name: [case.shard(0, cp) for cp in (2, 3)] for name, case in CASES.items()}
    assert all(len(set(s.lengths)) == 1 for s in shards["even"])
    assert all(len(set(s.lengths)) > 1 for s in shards["uneven"])
    assert all(0 in s.lengths for s in shards["rank-without-tokens"])
    assert all(0 in s.visible_lengths and 0 not in s.lengths for s in shards["rank-without-visible-tokens"])
    assert all(0 in s.decoded_lengths for s in shards["rank-without-decoded-tokens"])


@seed(0)
@settings(max_examples=5, deadline=None, database=None)
@given(case=cases())
def test_it_holds_for_any_shape(crews: dict[int, Crew], case: Case) -> None:
    for processes, layout in ((3, Layout(3)), (4, Layout(2))):
        found = crews[processes].ask(equality, case, layout, ["fsdp2-float64", "zero3-float32"])[0]
        assert {kind: e for kind, e in found.items() if not e.largest <= TOLERANCE[kind.split("-")[1]]} == {}
