"""Mutated files: ``survey inspect`` of 50,000, and some hundred taken in. No crash, no hang, bounded memory."""

from __future__ import annotations

from typing import Any

import pytest
from fuzzing import fuzz, look, take_in
from proofs import Proof

BOUND = 400  # MiB of a worker: the libraries and one block of traces


@pytest.mark.parametrize(("how", "cases"), [(look, 50_000), (take_in, 500)], ids=["inspect", "ingest"])
def test_mutated_files_neither_crash_nor_hang(how: Any, cases: int, proof: Proof) -> None:
    found = fuzz(how, range(cases))
    counts = ", ".join(f"{count} {name}" for name, count in sorted(found.outcomes.items()))
    memory = found.memory / 2**20
    proof.record(
        found.outcomes.total(),
        f"{len(found.defects)} defects ({counts}), {memory:.0f} MiB at most (of {BOUND}), "
        f"{found.slowest:.1f} s the slowest case",
    )
    assert not found.defects
    assert found.outcomes.total() == cases
    assert memory <= BOUND
