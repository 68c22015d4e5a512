"""What a launcher costs beside its peers, on the real Slurm: measured once, and printed."""

from __future__ import annotations

import pytest
from slurm_cluster import Cluster

from benchmarks import launcher


@pytest.mark.timeout(600)
def test_overhead_is_measured(slurm: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    measured = launcher.measure(rounds=1)
    assert [row["way"] for row in measured.rows] == [
        launcher.FLOOR,
        launcher.TORCHRUN,
        launcher.LOCAL,
        launcher.BY_HAND,
        launcher.SCRIPT,
        launcher.SLURM,
    ]
    assert all(row[figure] > 0 for row in measured.rows for figure in launcher.FIGURES)
    with capsys.disabled():
        print("\nlauncher overhead, two processes:")
        for row in measured.rows:
            print(
                f"{row['way']:>32}: " + ", ".join(f"{said} {row[key]:.1f} s" for key, said in launcher.FIGURES.items())
            )
