"""Training steps of shapes that hypothesis chooses."""

from __future__ import annotations

import math

from equality import Case
from hypothesis import assume
from hypothesis import strategies as st


@st.composite
def cases(
    draw: st.DrawFn, decoder: str | None = None, decode_share: float | None = None, accumulation: int = 0
) -> Case:
    """Any crop of up to 96 tokens, so that many token counts are odd and some ranks have none."""
    grid = draw(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6)))
    keep_ratio = draw(st.floats(0.05, 0.95))
    assume(math.prod(grid) >= 2 and round(keep_ratio * math.prod(grid)) < math.prod(grid))
    return Case(
        grid,
        keep_ratio,
        accumulation or draw(st.sampled_from([1, 3])),
        decoder or draw(st.sampled_from(["self", "cross"])),
        decode_share or draw(st.sampled_from([1.0, 0.5])),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        draw(st.sampled_from(["none", "selective", "full"])),
    )
