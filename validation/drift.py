"""How far a survey lies from those of the newest frozen data set: amplitudes, spectra, geometry.

Basins differ, so the middle of a data set says little. What is measured is the distance to the *nearest* frozen survey:
a survey stands out when the model has seen nothing like it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict

from ingestion.lake import Lake
from ingestion.manifest import Digest, SafeName
from validation.facts import BAND_WIDTH, Facts, load_facts

_WEEK = re.compile(r"datasets/\d{4}-W\d{2}\.json")
_QUANTILES = ("5", "25", "50", "75", "95")  # per cent


class _Frozen(BaseModel):
    """One survey of a data set, as far as validation needs it."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    survey: SafeName
    digest: Digest


class _FrozenSet(BaseModel):
    """``datasets/<week>.json``, as far as validation needs it."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    surveys: list[_Frozen]


def frozen_facts(lake: Lake, but: str) -> list[Facts]:
    """Facts of all surveys in the newest week's data set that have any, without those of survey ``but``."""
    weeks = [entry.key for entry in lake.objects("datasets") if _WEEK.fullmatch(entry.key)]
    if not weeks:
        return []
    frozen = _FrozenSet.model_validate_json(lake.read(max(weeks)))
    found = (load_facts(lake, entry.survey, entry.digest) for entry in frozen.surveys if entry.survey != but)
    return [facts for facts in found if facts is not None]


@dataclass(frozen=True)
class _Measure:
    """One thing to compare. ``distance`` grows with the difference; ``value`` is what people are told."""

    name: str
    value: Callable[[Facts], float | None]
    distance: Callable[[Facts, Facts], float]
    one_domain: bool = True  # in ms or Hz, which mean nothing beside m and cycles/km


def drift(facts: Facts, frozen: Sequence[Facts], at_least: int) -> pd.DataFrame:
    """One row: for each measure the distance to the nearest survey, who that is, the value and the data set's range.

    A measure is empty where fewer than ``at_least`` frozen surveys have it.
    """
    row: dict[str, object] = {}
    for measure in _MEASURES:
        names = (f"{measure.name}{part}" for part in ("", "_value", "_low", "_high", "_nearest"))
        row |= dict(zip(names, _compare(measure, facts, frozen, at_least), strict=True))
    return pd.DataFrame([row])


def _compare(
    measure: _Measure, facts: Facts, frozen: Sequence[Facts], at_least: int
) -> tuple[float | None, float | None, float | None, float | None, str | None]:
    value = measure.value(facts)
    others = [
        (other, its_value)
        for other in frozen
        if (its_value := measure.value(other)) is not None and (other.domain == facts.domain or not measure.one_domain)
    ]
    if value is None or len(others) < at_least:
        return None, None, None, None, None
    distances = [measure.distance(facts, other) for other, _ in others]
    nearest = int(np.argmin(distances))
    values = [its_value for _, its_value in others]
    return distances[nearest], value, min(values), max(values), others[nearest][0].survey


def _factor(value: Callable[[Facts], float | None]) -> Callable[[Facts, Facts], float]:
    """How many times the larger of two values is the smaller."""

    def distance(one: Facts, other: Facts) -> float:
        pair = [max(value(facts) or 0.0, 1e-9) for facts in (one, other)]
        return max(pair) / min(pair)

    return distance


def _bin_size(facts: Facts) -> float | None:
    return None if facts.bins is None or min(facts.bins) <= 0 else math.sqrt(facts.bins[0] * facts.bins[1])


def _amplitudes(one: Facts, other: Facts) -> float:
    """Mean difference between quantiles of normalised samples, in scales."""
    return float(np.mean([abs(one.quantiles[p] - other.quantiles[p]) for p in _QUANTILES]))


def _inner_spread(facts: Facts) -> float:
    return facts.quantiles["75"] - facts.quantiles["25"]


def _spectrum(one: Facts, other: Facts) -> float:
    """Earth mover's distance between two spectra over the centre of the first."""
    assert one.spectrum is not None
    assert other.spectrum is not None
    moved = np.abs(np.cumsum(one.spectrum) - np.cumsum(other.spectrum)).sum() * BAND_WIDTH[one.domain]
    return float(moved / max(one.centre or 0.0, 1e-9))


_MEASURES = (
    _Measure("amplitudes", _inner_spread, _amplitudes, one_domain=False),
    _Measure("tails", lambda f: f.kurtosis, _factor(lambda f: f.kurtosis), one_domain=False),
    _Measure("spectrum", lambda f: None if f.spectrum is None else f.centre, _spectrum),
    _Measure("bin_size", _bin_size, _factor(_bin_size), one_domain=False),
    _Measure("interval", lambda f: f.interval, _factor(lambda f: f.interval)),
    _Measure("extent", lambda f: f.extent, _factor(lambda f: f.extent)),
)
