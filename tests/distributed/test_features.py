"""Features of a window that several processes share are those of one process."""

from __future__ import annotations

import numpy as np
import pytest
from features_worker import encoder, features, share

from benchmarks.crew import Crew
from seismic_model.model.vit import full_attention


@pytest.mark.parametrize("processes", [2, 3])
def test_features_do_not_depend_on_how_many_share_the_window(processes: int) -> None:
    whole = {name: each.numpy() for name, each in features(encoder(), 0, 1, full_attention).items()}
    with Crew(processes) as crew:
        parts = crew.ask(share, processes)
    found = np.concatenate([part["features"] for part in parts], axis=1)
    np.testing.assert_allclose(found, whole["features"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(sum(part["gradient"] for part in parts), whole["gradient"], rtol=1e-10, atol=1e-12)
