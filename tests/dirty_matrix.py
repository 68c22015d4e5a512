"""The matrix of inputs: every kind in several byte orders, revisions and formats, each with its exact outcome."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mdio
import numpy as np
from clean_kinds import CLEAN
from dirty_kinds import HELD, Kind
from segy_bytes import FIELDS, Draft, draft

from ingestion.catalog import surveys
from ingestion.ingest import IngestResult, ingest
from ingestion.lake import Lake
from ingestion.preflight.inspection import inspect
from ingestion.source import open_source
from ingestion.spec import SurveySpec
from ingestion.volume.export import export

SHAPE = (6, 7, 50)
FORMATS = {1: "ibm", 2: "int32", 3: "int16", 5: "ieee", 8: "int8"}
KINDS = HELD | CLEAN
_BY_BYTE = {byte: name for name, (byte, _) in FIELDS.items()}


@dataclass(frozen=True)
class Case:
    """One kind in one byte order, format and revision; ``released``: with the spec that the table names."""

    name: str
    kind: Kind
    order: str
    code: int
    revision: bytes
    released: bool = False

    def __str__(self) -> str:
        order, revision = {">": "big", "<": "little"}[self.order], ".".join(map(str, self.revision))
        return f"{self.name}{', released' * self.released} [{order} {FORMATS[self.code]} rev {revision}]"

    @property
    def spec(self) -> dict[str, Any]:
        return self.kind.spec | ((self.kind.release or {}) if self.released else {})

    @property
    def outcome(self) -> str:
        return "published" if self.released else self.kind.outcome

    @cached_property
    def made(self) -> tuple[Draft, list[bytes]]:
        """The draft as its kind left it, and the files."""
        made = draft(
            **({"shape": SHAPE} | self.kind.how), order=self.order, code=self.code, revision=self.revision, seed=7
        )
        if self.code in (2, 3, 8):  # integers that all of the three formats hold
            made.samples = (made.samples / 16).round()
        made.samples.flat[[13 * made.samples.shape[1], -1]] = (110, -111)  # extremes that occur once are no clipping
        files = self.kind.spoil(made)
        if files is None:
            files = made.to_bytes()
        return made, files if isinstance(files, list) else [files]


def cases(wanted: dict[str, Kind] = KINDS) -> list[Case]:
    """All cases; the variants of a kind are spread over its formats and revisions, its byte orders in turn."""
    found = []
    for name, kind in wanted.items():
        combinations = list(product(kind.orders, kind.formats, kind.revisions))
        random.Random(name).shuffle(combinations)
        by_order = [[each for each in combinations if each[0] == order] for order in kind.orders]
        chosen = [each for turn in zip_longest(*by_order) for each in turn if each][: kind.variants]
        found += [Case(name, kind, *each) for each in chosen]
        if kind.release is not None:
            found += [Case(name, kind, *each, released=True) for each in chosen[:2]]
    return found


def seeded(count: int) -> list[Case]:
    """``count`` cases or more: at least one of each reason code, and of the others whatever the seed gives."""
    draw = random.Random(20261130)
    everything = draw.sample(cases(), len(cases()))
    found: list[Case] = []
    for case in everything:
        if not case.released and not {*case.kind.codes} <= {code for each in found for code in each.kind.codes}:
            found.append(case)
    return found + [case for case in everything if case.outcome == "published"][: max(0, count - len(found))]


def write(case: Case, folder: Path) -> list[Path]:
    """The files of ``case``."""
    _, files = case.made
    names = [case.kind.file] if len(files) == 1 else [f"part {number}.sgy" for number in range(len(files))]
    for name, data in zip(names, files, strict=True):
        (folder / name).write_bytes(data)
    return [folder / name for name in names]


def look(case: Case, folder: Path) -> set[str]:
    """Codes of all findings, from ``inspect`` alone."""
    sources = [open_source(str(path)) for path in write(case, folder)]
    return {finding.code for finding in inspect(sources, SurveySpec(**case.spec)).findings}


def check(case: Case, folder: Path) -> IngestResult:
    """Ingest ``case`` into a lake below ``folder`` and compare outcome, codes and, when published, everything else."""
    paths, made = write(case, folder), case.made[0]
    lake = Lake(str(folder / "lake"))
    result = ingest([str(path) for path in paths], lake, SurveySpec(**case.spec))
    found = {finding.code for finding in result.findings}
    assert (result.status, found) == (case.outcome, set() if case.released else set(case.kind.codes)), result.findings
    if result.status == "published":
        compare(case, made, result, lake)
        compare_export(case, paths, result, lake, folder)
    else:
        assert surveys(lake) == []
        assert all(f.found and f.expected for f in result.findings)
        assert case.kind.said in str(result.findings), result.findings
    assert sorted(folder.iterdir()) == sorted([*paths, folder / "lake"])  # no name leads anywhere else
    return result


def compare(case: Case, made: Draft, result: IngestResult, lake: Lake) -> None:
    """Axes, live mask, coordinates and every sample of what was published, against the draft."""
    manifest = result.manifest
    assert manifest is not None
    volume = mdio.open_mdio(f"{lake.uri}/{manifest.folder}/volume.mdio")
    inlines, crosslines = (made.headers[_BY_BYTE[byte]] for byte in _line_bytes(case.spec))
    live, placed = _live_and_placed(made, inlines, crosslines, case.spec)
    axes = [_line_axis(lines[placed]) for lines in (inlines, crosslines)]
    chosen = np.full((len(axes[0]), len(axes[1])), -1)  # trace of each cell
    order = np.flatnonzero(placed)[:: 1 if case.spec.get("duplicates") == "last" else -1]
    for trace in order[np.argsort(live[order], kind="stable")].tolist():  # dead ones first, so that live ones stay
        chosen[np.searchsorted(axes[0], inlines[trace]), np.searchsorted(axes[1], crosslines[trace])] = trace
    mask = (chosen >= 0) & live[chosen]
    cube = np.where(mask[..., None], made.samples[chosen].astype(np.float32), np.float32(np.nan))
    domain = case.spec.get("domain", "time")
    assert volume["inline"].values.tolist() == axes[0].tolist()
    assert volume["crossline"].values.tolist() == axes[1].tolist()
    assert np.array_equal(volume["trace_mask"].values, mask)
    assert np.array_equal(volume["amplitude"].values, cube, equal_nan=True)
    first, step = case.kind.axis or _vertical(case, made, live)
    assert volume[domain].values.tolist() == (first + step * np.arange(cube.shape[2])).tolist()
    for name, field in zip(("cdp_x", "cdp_y"), _place_fields(case.spec), strict=True):
        exact = _coordinates(made, field, case.spec)
        assert np.array_equal(volume[name].values, np.where(chosen >= 0, exact[chosen], np.nan), equal_nan=True), name
    assert manifest.live_traces == mask.sum()
    assert manifest.shape == cube.shape
    facts, values = manifest.statistics, cube[mask].astype(np.float64)
    assert (facts.count, facts.minimum, facts.maximum) == (values.size, values.min(), values.max())
    assert np.isclose(facts.mean, values.mean(), rtol=1e-9, atol=1e-9 * np.abs(values).max())
    feet = case.spec.get("depth_unit") == "ft" or made.binary.get(55, ("h", 0))[1] == 2
    assert manifest.sample.unit == ("ms" if domain == "time" else "ft" if feet else "m")
    assert case.kind.said == "" or case.released or case.kind.said in " ".join(manifest.notes), manifest.notes


def compare_export(case: Case, paths: list[Path], result: IngestResult, lake: Lake, folder: Path) -> None:
    """The files as they were, where the volume holds all that they did; and the truth about it where it does not."""
    assert result.manifest is not None
    with TemporaryDirectory() as target:
        files = export(lake, result.manifest, Path(target), lambda *_: None)
        same = [Path(file.path).read_bytes() == path.read_bytes() for file, path in zip(files, paths, strict=True)]
    assert [file.same_as_source for file in files] == same
    assert all(same) or case.kind.loses or case.released, "the export is not its source"


def _line_bytes(spec: dict[str, Any]) -> tuple[int, int]:
    return spec.get("inline_byte", 189), spec.get("crossline_byte", 193)


def _place_fields(spec: dict[str, Any]) -> tuple[str, str]:
    return _BY_BYTE[spec.get("cdp_x_byte", 181)], _BY_BYTE[spec.get("cdp_y_byte", 185)]


def _live_and_placed(made: Draft, inlines: Any, crosslines: Any, spec: dict[str, Any]) -> tuple[Any, Any]:
    kept = np.ones(len(made), bool)
    kept[[number - 1 for number in spec.get("drop_traces", [])]] = False
    live = kept & (made.headers["trace_id"] != 2) & made.samples.any(axis=1) & np.isfinite(made.samples).all(axis=1)
    return live, kept & (live | ((inlines != 0) & (crosslines != 0)))


def _line_axis(lines: Any) -> Any:
    return np.arange(lines.min(), lines.max() + 1, np.gcd.reduce(np.diff(np.unique(lines))))


def _vertical(case: Case, made: Draft, live: Any) -> tuple[float, float]:
    delay = made.headers["delay"][live][0]
    scalar = int(made.headers.get("times_scalar", np.zeros(len(made), int))[live][0]) or 1
    first = float(Fraction(int(delay)) * scalar if scalar > 0 else Fraction(int(delay), -scalar))
    return first, case.spec.get("sample_interval", made.interval / 1000)


def _coordinates(made: Draft, field: str, spec: dict[str, Any]) -> Any:
    scalars = [spec.get("coordinate_scalar", int(scalar)) or 1 for scalar in made.headers["scalar"]]
    factors = [Fraction(scalar) if scalar > 0 else Fraction(1, -scalar) for scalar in scalars]
    return np.array([float(int(v) * f) for v, f in zip(made.headers[field], factors, strict=True)])
