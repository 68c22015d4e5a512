"""Traffic is counted as it is sent, and hides where attention takes longer than its hop."""

from __future__ import annotations

import pytest

from seismic_model.config import ModelConfig
from seismic_model.planner.assumptions import Machine, read_machine
from seismic_model.planner.communication import Passes, Transfer, transfers
from seismic_model.planner.flops import Tokens
from seismic_model.planner.layout import Layout

WIDTH = 512
MODEL = ModelConfig(
    width=WIDTH, depth=1, heads=8, decoder="self", decoder_width=WIDTH, decoder_depth=1, decoder_heads=8
)
PARAMETERS = 1_000_000


@pytest.fixture(scope="module")
def h200() -> Machine:
    return read_machine("h200")


def sent(layout: Layout, machine: Machine, tokens: int, seconds: float = 1) -> dict[str, Transfer]:
    """By name; as many tokens are decoded as are visible, and a pass takes ``seconds``."""
    passes = Passes(seconds, seconds)
    found = transfers(MODEL, PARAMETERS, Tokens(2 * tokens, tokens, 0, tokens), layout, machine, passes)
    return {each.name: each for each in found}


def test_one_gpu_sends_nothing(h200: Machine) -> None:
    assert sent(Layout(1, 1, 1, 1, "ddp", "none", "bfloat16"), h200, 1024) == {}


def test_bytes_of_a_ring_of_two(h200: Machine) -> None:
    """Forward and backward pass one block of k and v on, and float32 gradients of two blocks."""
    found = sent(Layout(2, 2, 2, 1, "ddp", "none", "bfloat16"), h200, 1024)
    block = 2 * 512 * WIDTH + 2 * 1024 * WIDTH  # numbers in k and v: encoder, and decoder over twice the tokens
    assert found["ring hops"].bytes_sent == 2 * block * 2 + 2 * block * 4


def test_bytes_of_exchanged_heads(h200: Machine) -> None:
    """q, k, v and the output go once, their gradients once, and half of each stays."""
    found = sent(Layout(2, 2, 1, 2, "ddp", "none", "bfloat16"), h200, 1024)
    assert found["all-to-all of heads"].bytes_sent == 2 * (4 * (1024 + 2048) / 2 * WIDTH) * 2 / 2


@pytest.mark.parametrize(("cp", "bound"), [(8, (1_000, 2_000)), (16, (10_000, 14_000))])
def test_hops_hide_above_about_one_and_a_half_thousand_tokens_on_nvlink_and_twelve_thousand_on_efa(
    cp: int, bound: tuple[int, int], h200: Machine
) -> None:
    def exposed(tokens_per_gpu: int) -> float:
        layout = Layout(16, 8, cp, 1, "fsdp2", "none", "bfloat16")
        found = sent(layout, h200, tokens_per_gpu * cp)["ring hops"]
        return found.exposed_seconds / found.seconds

    # the gradients' last hop has nothing to hide behind
    assert exposed(bound[0]) > 1.2 * exposed(bound[1])
    assert exposed(bound[1]) == pytest.approx(exposed(10 * bound[1]), rel=0.1)


def test_gradients_hide_behind_a_long_backward_only(h200: Machine) -> None:
    layout = Layout(16, 8, 1, 1, "ddp", "none", "bfloat16")
    assert sent(layout, h200, 1024, seconds=1)["gradient all-reduce"].hides
    assert not sent(layout, h200, 1024, seconds=0)["gradient all-reduce"].hides


def test_hsdp_gathers_inside_the_node_and_sends_only_gradients_out_of_it(h200: Machine) -> None:
    found = sent(Layout(16, 8, 1, 1, "hsdp", "none", "bfloat16"), h200, 1024)
    assert found["gradient all-reduce"].bytes_sent == 2 * 4 * PARAMETERS / 8 / 2
    assert found["weight all-gathers"].bytes_sent == 2 * 2 * PARAMETERS * 7 / 8
