"""Published surveys for validation's tests: generated and ingested, some then damaged on the lake."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from scipy import ndimage, signal

from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.manifest import Manifest, StoredKey, manifest_key
from ingestion.spec import SurveySpec
from ingestion.synthetic import BASINS, SyntheticSurvey, make_survey, write_segy

SHAPE = (32, 36, 48)


def clean_survey() -> SyntheticSurvey:
    """A small survey that no expectation finds fault with."""
    return make_survey(BASINS["deltaic"], 1, SHAPE)


def changed(**fields: Any) -> SyntheticSurvey:
    return dataclasses.replace(clean_survey(), **fields)


def long_survey() -> SyntheticSurvey:
    """A survey without fault whose traces are long enough to judge their gain."""
    return make_survey(BASINS["deltaic"], 1, (12, 14, 480))


def gained(gain_Z: np.ndarray) -> SyntheticSurvey:
    """The long survey, each sample times its own factor."""
    survey = long_survey()
    return dataclasses.replace(survey, amplitude_IXZ=(survey.amplitude_IXZ * gain_Z).astype(np.float32))


def with_agc(gate: int) -> SyntheticSurvey:
    """The long survey after automatic gain control over ``gate`` samples."""
    survey = long_survey()
    energy = ndimage.uniform_filter1d(np.square(survey.amplitude_IXZ.astype(np.float64)), gate, mode="nearest")
    even = survey.amplitude_IXZ / np.sqrt(np.maximum(energy, 1e-12))
    return dataclasses.replace(survey, amplitude_IXZ=np.where(survey.live_IX[:, :, None], even, 0).astype(np.float32))


def under_water(phase: float) -> SyntheticSurvey:
    """The long survey below a quiet water column, whose bottom reflects a wavelet of ``phase`` (degrees)."""
    survey = long_survey()
    samples = np.arange(survey.amplitude_IXZ.shape[2])
    bottom_IX = np.add.outer(np.arange(12) * 1.3, np.arange(14) * 0.7) + 120
    time_IXZ = (samples - bottom_IX[:, :, None]) * survey.sample_interval_ms / 1000
    squared = np.square(np.pi * 28 * time_IXZ)
    turned = signal.hilbert((1 - 2 * squared) * np.exp(-squared), axis=2) * np.exp(1j * np.radians(phase))
    rms = float(survey.amplitude_IXZ[survey.live_IX].std())
    amplitude = np.where(samples > bottom_IX[:, :, None] + 16, survey.amplitude_IXZ, 0) + 8 * rms * turned.real
    noise = np.random.default_rng(3).normal(0, 0.02 * rms, amplitude.shape)
    amplitude = np.where(survey.live_IX[:, :, None], amplitude + noise, 0).astype(np.float32)
    return dataclasses.replace(survey, amplitude_IXZ=amplitude)


def publish(
    folder: Path,
    survey: SyntheticSurvey,
    spec: SurveySpec | None = None,
    patch: Callable[[bytearray], None] = lambda _: None,
) -> tuple[Lake, Manifest]:
    """Write ``survey`` as SEG-Y, ``patch`` its bytes, and ingest it into a lake at ``folder``."""
    path = folder / "incoming" / "survey.sgy"
    path.parent.mkdir(parents=True)
    write_segy(survey, path)
    content = bytearray(path.read_bytes())
    patch(content)
    path.write_bytes(content)
    lake = Lake(str(folder / "lake"))
    result = ingest(str(path), lake, spec)
    assert result.status == "published", result.findings
    assert result.manifest is not None
    return lake, result.manifest


@dataclasses.dataclass
class Tampered:
    """A copy of a published lake whose arrays and manifest a test may change."""

    root: Path
    manifest: Manifest

    @classmethod
    def copy(cls, lake_root: Path, manifest: Manifest, to: Path) -> Tampered:
        shutil.copytree(lake_root, to)
        return cls(to, manifest)

    @property
    def store(self) -> Path:
        return self.root / self.manifest.folder / self.manifest.volume.path

    def array(self, name: str) -> Any:
        return zarr.open_array(str(self.store), path=name, mode="r+")

    def edit(self, name: str, change: Callable[[Any], None]) -> None:
        """Change one whole array in place."""
        stored = self.array(name)
        values = np.asarray(stored[...])
        change(values)
        stored[...] = values

    def update(self, **fields: Any) -> None:
        """Other fields of the manifest."""
        self.manifest = self.manifest.model_copy(update=fields)

    def update_part(self, part: str, **fields: Any) -> None:
        """Other fields of one part of the manifest."""
        self.update(**{part: getattr(self.manifest, part).model_copy(update=fields)})

    def sign(self) -> None:
        """Digests and statistics as the arrays are now, so that only what the test means is wrong."""
        keys = {}
        for path in sorted(self.store.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                keys[path.relative_to(self.store).as_posix()] = StoredKey(size=len(content), sha256=digest)
        live = self.array("trace_mask")[...].astype(bool)
        samples = self.array("amplitude")[...][live].astype(np.float64)
        samples = samples[np.isfinite(samples)]
        self.update_part("volume", keys=keys)
        self.update_part(
            "statistics",
            count=len(samples),
            mean=float(samples.mean()),
            std=float(samples.std()),
            minimum=float(samples.min()),
            maximum=float(samples.max()),
        )

    def lake(self) -> Lake:
        """The lake with the manifest as it is now."""
        lake = Lake(str(self.root))
        lake.write(manifest_key(self.manifest.survey, self.manifest.digest), self.manifest.to_bytes())
        return lake
