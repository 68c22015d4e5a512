"""Long proofs, run by ``make proof``. Each leaves one line in docs/proofs.md, a failed one too.

def test_the_claim_in_words(proof: Proof) -> None:
    ...
    proof.record(cases=24, worst="0 differing bits")
"""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest
from proofs import Proof, write_line

RECORDED = pytest.StashKey[Proof]()


@pytest.fixture
def proof(request: pytest.FixtureRequest) -> Proof:
    return request.node.stash.setdefault(RECORDED, Proof())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    began, outcome = time.monotonic(), "**FAILED**"
    try:
        yield
        outcome = None
    except pytest.skip.Exception:
        outcome = "not run here"
        raise
    finally:
        name = item.name.removeprefix("test_").replace("_", " ")
        write_line(name, item.stash.get(RECORDED, Proof()), outcome, time.monotonic() - began)
