"""What bounds the memory of parts of a survey."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ingestion.preflight.scan import Scan
from ingestion.preflight.table import Table
from ingestion.preflight.traces import Traces
from ingestion.volume.tiles import tiles


@pytest.mark.parametrize("samples", [1, 10, 60, 1000, 100_000])
def test_headers_of_short_traces_are_bounded_as_samples_are(samples: int) -> None:
    for tile in tiles((300, 200_000, samples)):
        inlines, crosslines, high = tile.shape
        assert inlines * crosslines * max(240, high * 4) <= 96 * 1024 * 1024


def test_values_are_counted_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingestion.preflight.traces._BLOCK", 3)
    table = Table(8, {"inline": "i4"})
    table["inline"][:] = [7, -2, 7, 7, 5, -2, 9, 9]
    no_files: list[Scan] = []
    traces = Traces(no_files, table)
    where = np.array([True] * 7 + [False])
    values, counts = traces.values(lambda rows: traces.column("inline", rows), where)
    assert values.tolist() == [-2, 5, 7, 9]
    assert counts.tolist() == [2, 1, 3, 1]


def test_a_full_scratch_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=70))
    Table(10, {"inline": "i4", "delay": "i2"})
    with pytest.raises(OSError, match="70 bytes free, 10 traces need 80; let TMPDIR"):
        Table(10, {"inline": "i4", "crossline": "i4"})
