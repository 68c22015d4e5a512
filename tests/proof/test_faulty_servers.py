"""Ingests through a server that errs at seeded random: whole or not at all, and completed by the next one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from faulty_proxy import FAULTS, at_random
from killed_ingest import Original, ingest_through_faults
from proofs import Proof

from ingestion.lake import Lake

RUNS = 10


def test_an_ingest_through_a_faulty_server_is_whole_or_absent(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proof: Proof
) -> None:
    original = Original(tmp_path / "killed.sgy")
    assert original.undisturbed
    ends: Counter[str] = Counter()
    faults = 0
    mixtures = [FAULTS[:-1]] * RUNS + [(fault,) for fault in FAULTS]
    for number, mixture in enumerate(mixtures):
        rate = 0.005 if mixture == ("stalled",) else 0.1
        here = Lake(f"{lake.uri}/{number}")
        ended, made = ingest_through_faults(original, here, at_random(number, rate, mixture), monkeypatch, "3s")
        ends[ended] += 1
        faults += made
        counts = ", ".join(f"{count} {name}" for name, count in sorted(ends.items()))
        proof.record(number + 1, f"0 half surveys; {counts} through {faults} faults, all whole after the next ingest")
    assert ends["published"] >= 0.9 * len(mixtures)
