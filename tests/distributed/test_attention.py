"""Attention spread over real processes is that of one process: output and gradients, whatever the shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from attention_worker import Case, Parts, attend, members, refusal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.crew import Crew, CrewError

LAYOUTS = [(2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (4, 2), (4, 4)]  # cp, ulysses


@pytest.fixture(scope="module")
def crews() -> Iterator[dict[int, Crew]]:
    """Four processes, which also serve pairs, and three."""
    with Crew(4) as four, Crew(3) as three:
        yield {2: four, 3: three, 4: four}


def one_process(case: Case) -> Parts:
    """The formula, in float64, of the inputs as they are in the case's precision."""
    q, k, v, grad = (x.double() for x in case.tensors())
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = torch.softmax(q @ k.transpose(2, 3) / case.width**0.5, dim=3) @ v
    out.backward(grad)
    return [x.numpy() for x in (out.detach(), *(leaf.grad for leaf in leaves))]


def joined(answers: list[Parts | None]) -> Parts:
    shares = [parts for parts in answers if parts is not None]
    return [np.concatenate(part, axis=2) for part in zip(*shares, strict=True)]


def errors(found: Parts, expected: Parts) -> list[float]:
    """Largest difference of output and of each gradient, over the largest value where that is above 1."""
    return [
        float(abs(f - e).max() / max(1, abs(e).max())) if e.size else 0.0 for f, e in zip(found, expected, strict=True)
    ]


def largest_error(found: Parts, expected: Parts) -> float:
    """NaN where any number is."""
    return float(np.max(errors(found, expected)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    cp, ulysses = draw(st.sampled_from(LAYOUTS))
    lengths = st.lists(st.integers(0, 40), min_size=cp, max_size=cp).map(tuple)
    q_lengths = draw(lengths)
    return Case(
        q_lengths,
        q_lengths if draw(st.booleans()) else draw(lengths),
        ulysses,
        batch=draw(st.integers(1, 3)),
        heads=ulysses * draw(st.integers(1, 2)),
        width=draw(st.sampled_from([6, 8, 24])),
        scale=draw(st.sampled_from([0.01, 1.0, 30.0])),
        seed=draw(st.integers(0, 2**20)),
    )


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_any_shapes_in_float64(crews: dict[int, Crew], case: Case) -> None:
    found = joined(crews[len(case.q_lengths)].ask(attend, case))
    assert largest_error(found, one_process(case)) <= 1e-12


@pytest.mark.parametrize(("cp", "ulysses"), LAYOUTS)
@pytest.mark.parametrize(
    ("q_lengths", "kv_lengths"),
    [
        ((7, 0, 0, 3), (0, 0, 9, 4)),
        ((5, 6, 7, 8), (0, 0, 0, 0)),
        ((0, 0, 0, 0), (5, 1, 0, 2)),
        ((0, 0, 0, 0), (0, 0, 0, 0)),
        ((1, 1, 1, 1), (1, 1, 1, 1)),
    ],
)
def test_ranks_with_nothing(
    crews: dict[int, Crew], cp: int, ulysses: int, q_lengths: tuple[int, ...], kv_lengths: tuple[int, ...]
) -> None:
    case = Case(q_lengths[:cp], kv_lengths[:cp], ulysses, heads=2 * ulysses)
    found = joined(crews[cp].ask(attend, case))
    expected = one_process(case)
    if not sum(case.kv_lengths):
        expected = [np.zeros_like(part) for part in expected]
    assert largest_error(found, expected) <= 1e-12


@pytest.mark.parametrize(("cp", "ulysses"), LAYOUTS)
def test_float32(crews: dict[int, Crew], cp: int, ulysses: int) -> None:
    case = Case((256, 200, 130, 77)[:cp], (301, 99, 256, 180)[:cp], ulysses, 2, 12, 32, "float32")
    assert largest_error(joined(crews[cp].ask(attend, case)), one_process(case)) <= 3e-6


@pytest.mark.parametrize(("cp", "ulysses"), LAYOUTS)
def test_bfloat16_is_about_as_good_as_the_kernel_of_one_process(crews: dict[int, Crew], cp: int, ulysses: int) -> None:
    case = Case((256, 200, 130, 77)[:cp], (301, 99, 256, 180)[:cp], ulysses, 2, 12, 32, "bfloat16")
    expected = one_process(case)
    q, k, v, grad = case.tensors()
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves)
    out.backward(grad)
    alone = errors([x.double().numpy() for x in (out.detach(), *(leaf.grad for leaf in leaves))], expected)
    found = errors(joined(crews[cp].ask(attend, case)), expected)
    assert all(f <= 2 * a for f, a in zip(found, alone, strict=True)), (found, alone)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case((3, 3), (3, 3), 2, heads=3), "ulysses 2 does not divide 3 heads; expected a divisor"),
        (Case((3, 3), (3, 3, 3), 1), r"lengths (3, 3) and (3, 3, 3) are not of cp=2 ranks"),
    ],
)
def test_what_cannot_be_shared_is_refused_before_anything_is_sent(
    crews: dict[int, Crew], case: Case, message: str
) -> None:
    assert crews[2].ask(refusal, case)[:2] == [message, message]
    good = Case((3, 3), (3, 3), case.ulysses)
    assert largest_error(joined(crews[2].ask(attend, good)), one_process(good)) <= 1e-12


def test_a_failing_process_ends_the_crew_and_says_why() -> None:
    with pytest.raises(CrewError, match=r"(?s)rank 0: .*invalid literal for int"), Crew(2) as crew:  # noqa: PT012
        assert crew.ask(int, "7") == [7, 7]
        crew.ask(int, "x", ranks=range(1))


def test_neighbours_exchange_heads_and_rings_span_them(crews: dict[int, Crew]) -> None:
    assert crews[4].ask(members, 4, 2) == [
        ((0, 0), [0, 2], [0, 1]),
        ((0, 1), [1, 3], [0, 1]),
        ((0, 2), [0, 2], [2, 3]),
        ((0, 3), [1, 3], [2, 3]),
    ]
    assert crews[4].ask(members, 2, 1) == [
        ((0, 0), [0, 1], [0]),
        ((0, 1), [0, 1], [1]),
        ((1, 0), [2, 3], [2]),
        ((1, 1), [2, 3], [3]),
    ]
