"""Loss and gradients of one process under every strategy, decoder, layout and accumulation, at shapes by hypothesis."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

from equality import EXACT, ROUNDED, TOLERANCE, Case, Layout, equality
from equality_cases import cases
from hypothesis import given, seed, settings
from proofs import Proof

from benchmarks.crew import Crew

SHAPES = 1  # of each combination
Combination = tuple[str, float, int]  # decoder, decode_share, accumulation
COMBINATIONS: list[Combination] = list(product(["self", "cross"], [1.0, 0.5], [1, 3]))
LAYOUTS = [Layout(1), Layout(2), Layout(2, 2), Layout(3), Layout(4), Layout(4, 2), Layout(4, 4)]


def test_loss_and_gradients_are_those_of_one_process(proof: Proof) -> None:
    worst: dict[str, float] = defaultdict(float)
    steps = 0

    def check(crew: Crew, layout: Layout, case: Case) -> None:
        nonlocal steps
        errors = crew.ask(equality, case, layout, [*EXACT, *ROUNDED])[0]
        steps += len(errors)
        for kind, found in errors.items():
            precision = kind.split("-")[1]
            assert found.largest <= TOLERANCE[precision], (kind, layout, crew.size, found)
            worst[precision] = max(worst[precision], found.largest)
        proof.record(
            steps, ", ".join(f"{name} {worst[name]:.0e} (at most {TOLERANCE[name]:.0e})" for name in TOLERANCE)
        )

    def check_shapes(crew: Crew, layout: Layout, combination: Combination, number: int) -> None:
        @seed(number)
        @settings(max_examples=SHAPES, deadline=None, database=None)
        @given(cases(*combination))
        def holds(case: Case) -> None:
            check(crew, layout, case)

        holds()

    for dp, layout in product([1, 2], LAYOUTS):
        with Crew(dp * layout.cp, timeout=600) as crew:
            for number, combination in enumerate(COMBINATIONS):
                check_shapes(crew, layout, combination, 1000 * dp + 100 * LAYOUTS.index(layout) + number)
