"""The whole matrix of inputs: exact outcomes, nothing wrong in silence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from dirty_matrix import cases, check
from proofs import Proof


def test_every_kind_of_input_ends_as_its_table_says(
    tmp_path: Path, proof: Proof, capsys: pytest.CaptureFixture[str]
) -> None:
    failed: list[str] = []
    outcomes: Counter[str] = Counter()
    everything = cases()
    for number, case in enumerate(everything):
        folder = tmp_path / str(number)
        folder.mkdir()
        said = "as the table says"
        try:
            check(case, folder)
        except Exception as error:  # a traceback is a failure like any other
            said = f"NOT: {type(error).__name__} {error}"[:300]
            failed.append(f"{case}: {said}")
        warned = case.outcome == "published" and case.kind.codes and not case.released
        outcome = f"{case.outcome} with a warning" if warned else case.outcome
        outcomes[outcome] += 1
        with capsys.disabled():
            print(f"{case!s:90} {outcome:25} {', '.join(case.kind.codes):50} {said}")
        counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
        proof.record(number + 1, f"{len(failed)} wrong outcomes, codes, axes, masks, places or samples ({counts})")
    dirty = [case for case in everything if case.outcome == "held"]
    clean = {case.name for case in everything if case.outcome == "published" and not case.released}
    assert len(dirty) >= 150
    assert len(clean) >= 50
    assert not failed, "\n".join(failed)
