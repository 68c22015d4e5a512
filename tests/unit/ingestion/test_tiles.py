"""What bounds the memory of parts of a survey."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segy_bytes import Draft, draft

from ingestion.preflight.inspection import Survey, inspect
from ingestion.preflight.scan import Scan
from ingestion.preflight.table import Table
from ingestion.preflight.traces import Traces
from ingestion.source import Source, open_source
from ingestion.spec import SurveySpec
from ingestion.volume.tiles import Tile, TraceReader, tiles


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


@contextmanager
def inspected(*files: Draft, **spec: Any) -> Iterator[Survey]:
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.sgy" for number in range(len(files))]
        for path, made in zip(paths, files, strict=True):
            path.write_bytes(made.to_bytes())
        yield inspect([open_source(str(path)) for path in paths], SurveySpec(**spec)).survey()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_averaged_traces_are_the_plain_mean_whatever_their_order_and_part(data: st.DataObject) -> None:
    made = draft((6, 7, 9), order=data.draw(st.sampled_from("><")), seed=data.draw(st.integers(0, 2**31)))
    doubled = data.draw(st.lists(st.integers(0, len(made) - 1), max_size=20))
    order = np.array(data.draw(st.permutations([*range(len(made)), *doubled])))
    made.take(order)
    noise = np.random.default_rng(len(order)).normal(0, 300, made.samples.shape)
    made.samples = (made.samples + noise).astype(np.float32)
    cut = data.draw(st.integers(1, len(made) - 1))
    files = [
        Draft(**(vars(made) | {"headers": dict(made.headers)})).take(rows)
        for rows in np.split(np.arange(len(made)), [cut])
    ]
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))) for n in (6, 7, 9)]
    tile = Tile(*(slice(low, high + 1) for low, high in bounds))
    expected = np.stack(
        [made.samples[order == cell].mean(axis=0, dtype=np.float64).astype(np.float32) for cell in range(6 * 7)]
    ).reshape(6, 7, 9)[tile.box]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr("ingestion.volume.tiles._REQUEST_BYTES", data.draw(st.sampled_from([1, 1000, 10**6])))
        patch.setattr("ingestion.preflight.traces._BLOCK", data.draw(st.sampled_from([5, 10**6])))
        with inspected(*files, duplicates="mean") as survey:
            gathered = TraceReader(survey.traces, survey.grid).gather(tile, pool)
    assert np.array_equal(gathered.samples_CZ.reshape(tile.shape), expected)


@pytest.mark.parametrize("order", ["one after the other", "two volumes"])
def test_traces_to_average_are_read_together(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = draft((20, 20, 10))
    made.take(np.repeat(np.arange(400), 2) if order == "one after the other" else np.tile(np.arange(400), 2))
    asked = []
    with inspected(made, duplicates="mean") as survey, ThreadPoolExecutor(2) as pool:
        buffer = Source.buffer
        monkeypatch.setattr(Source, "buffer", lambda *what: asked.append(what) or buffer(*what))
        TraceReader(survey.traces, survey.grid).gather(Tile(slice(0, 20), slice(0, 20), slice(0, 10)), pool)
    assert len(asked) <= 4
