"""Facts of a survey that was never made, for tests of what is done with facts."""

from __future__ import annotations

from typing import Any

from validation.facts import Facts


def facts_like(survey: str, **fields: Any) -> Facts:
    """Facts of an ordinary survey in time, but for ``fields``."""
    ordinary: dict[str, Any] = {
        "survey": survey,
        "digest": "0" * 64,
        "domain": "time",
        "live_traces": 1000,
        "live_share": 0.9,
        "bins": (25.0, 12.5),
        "interval": 4.0,
        "start": 0.0,
        "extent": 2000.0,
        "quantiles": {"5": -1.5, "25": -0.6, "50": 0.0, "75": 0.6, "95": 1.5},
        "skewness": 0.0,
        "kurtosis": 4.5,
        "zero_share": 0.0,
        "repeated_share": 0.0,
        "spectrum": [0.0, 0.0, 0.1, 0.2, 0.2, 0.2, 0.2, 0.1, *[0.0] * 16],
        "frequency_unit": "Hz",
        "centre": 25.0,
        "centre_over_nyquist": 0.2,
        "dominant": 25.0,
        "gain": [1.0] * 16,
        "gain_variation": 0.4,
        "first_event_phase": None,
        "neighbour_correlation": 0.9,
    }
    return Facts.model_validate(ordinary | fields)
