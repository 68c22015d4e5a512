"""Any survey: SEG-Y → MDIO → read back equals, and exported equals the file."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from dirty_kinds import Kind
from dirty_matrix import Case, compare, compare_export
from hypothesis import given, settings
from hypothesis import strategies as st
from segy_bytes import Draft, draft
from spoils import nothing

from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.spec import SurveySpec

surveys = st.fixed_dictionaries(
    {
        "shape": st.tuples(st.integers(2, 9), st.integers(2, 9), st.integers(1, 30)),
        "inlines": st.tuples(st.integers(-1000, 100_000), st.integers(1, 7)),
        "crosslines": st.tuples(st.integers(-1000, 100_000), st.integers(1, 7)),
        "order": st.sampled_from("><"),
        "code": st.sampled_from([1, 2, 3, 5, 8]),
        "interval": st.integers(20, 32767),
        "revision": st.sampled_from([b"\0\0", b"\1\0", b"\2\0", b"\0\1"]),
        "seed": st.integers(0, 2**31),
    }
)
SCALARS = [-10_000, -100, -10, -1, 0, 1, 10, 100]


def place(made: Draft, scalars: list[int], draw: Any) -> None:
    """Coordinates of bins of 4000 by 3000 on a turned grid, each trace with a scalar of its own that holds them."""
    i, x = (index(made.headers[name]) for name in ("inline", "crossline"))
    chosen = np.array([draw.choice(scalars) for _ in range(len(made))])
    factor = np.where(chosen < 0, -chosen, 1) / np.where(chosen > 0, chosen, 1)
    exact = {"x": 20_000 + 3200 * i + 1800 * x, "y": 40_000 - 2400 * i + 2400 * x}
    made.headers |= {name: np.round(values * factor).astype(int) for name, values in exact.items()}
    made.headers["scalar"] = chosen


def index(lines: Any) -> Any:
    return np.unique(lines, return_inverse=True)[1]


@settings(max_examples=15, deadline=None)
@given(
    surveys,
    st.integers(-32768, 32767),
    st.sampled_from([0, 1, -10, 100]),
    st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3),
    st.sampled_from(["time", "depth"]),
    st.floats(0, 0.3),
    st.randoms(use_true_random=False),
)
def test_any_survey_comes_back_as_it_was(
    how: dict[str, Any], delay: int, times: int, scalars: list[int], domain: str, dead: float, random: Any
) -> None:
    made = draft(**how)
    if made.code in (2, 3, 8):
        made.samples = (made.samples / 16).round().clip(-128, 127)
    made.headers["delay"] = np.full(len(made), delay)
    if made.revision[0] or made.revision[1]:  # revision 0 has no scalar for times
        made.headers["times_scalar"] = np.full(len(made), times)
    place(made, scalars, random)
    across = how["shape"][1]
    frame = [t for t in range(len(made)) if t % across < 2 or t < 2 * across or t in (across - 1, len(made) - 1)]
    gone = {t for t in range(len(made)) if t not in frame and random.random() < dead}
    silent = {t for t in range(len(made)) if t not in frame and t not in gone and random.random() < dead}
    made.samples[sorted(silent)] = 0
    order = [t for t in range(len(made)) if t not in gone]
    random.shuffle(order)
    made.take(np.array(order))
    spec = {"domain": domain, "coordinate_unit": "m"}  # which says that such bins are right
    case = Case("any", Kind(nothing, spec=spec), how["order"], how["code"], how["revision"])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "any.sgy"
        path.write_bytes(made.to_bytes())
        lake = Lake(f"{folder}/lake")
        result = ingest(str(path), lake, SurveySpec(**spec))
        held = [finding.code for finding in result.findings if finding.severity == "hold"]
        if held:
            assert not np.ptp(made.samples[made.samples.any(axis=1)]), result.findings
            assert held in (["constant-amplitude"], ["all-zero"])
            return
        compare(case, made, result, lake)
        compare_export(case, [path], result, lake, Path(folder))
