"""An ingest that is killed or meets a faulty server, and what must be on the lake afterwards."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import mdio
import numpy as np
import pytest
from click.testing import CliRunner
from faulty_proxy import Chooser, faulty
from obstore.exceptions import BaseError
from segy_bytes import Draft, draft

import ingestion.lake
from ingestion.catalog import surveys
from ingestion.cli import main
from ingestion.ingest import ingest
from ingestion.lake import Lake, LakeError
from ingestion.manifest import Manifest

SHAPE = (130, 131, 40)  # more than one chunk in both directions
COMMAND = [sys.executable, "-c", "from ingestion.cli import main; main()", "ingest"]


@dataclass(frozen=True)
class Original:
    """A survey as a file, what it holds, and what an undisturbed ingest of it leaves on a lake."""

    path: Path
    shape: tuple[int, int, int] = SHAPE

    @cached_property
    def made(self) -> Draft:
        made = draft(self.shape, code=1)
        made.take(np.random.default_rng(5).permutation(len(made)))
        self.path.write_bytes(made.to_bytes())
        return made

    @cached_property
    def cube(self) -> np.ndarray:
        order = np.lexsort([self.made.headers["crossline"], self.made.headers["inline"]])
        cube: np.ndarray = self.made.samples[order].reshape(self.shape)
        return cube

    @cached_property
    def undisturbed(self) -> dict[str, str]:
        lake = Lake(str(self.path.parent / "undisturbed"))
        assert self.made is not None
        assert ingest(str(self.path), lake).status == "published"
        [manifest] = surveys(lake)
        return stored(lake, manifest)

    def assert_whole(self, lake: Lake, manifest: Manifest) -> None:
        """Every object as an undisturbed ingest leaves it and as the manifest says, every sample as it was made."""
        found = stored(lake, manifest)
        assert found == {key: entry.sha256 for key, entry in manifest.volume.keys.items()}
        created = {"zarr.json"}  # holds the age of the source, which is another for a copy of it
        assert {k: v for k, v in found.items() if k not in created} == {
            k: v for k, v in self.undisturbed.items() if k not in created
        }
        volume = mdio.open_mdio(f"{lake.uri}/{manifest.folder}/volume.mdio")
        assert np.array_equal(volume["amplitude"].values, self.cube)
        assert volume["trace_mask"].values.all()

    def assert_absent_or_whole(self, lake: Lake) -> bool:
        """Whether the survey exists; when it does it is whole, when not no command shows it."""
        published = surveys(lake)
        listed = CliRunner().invoke(main, ["list", "--lake", lake.uri])
        assert listed.exit_code == 0, listed.output
        if published:
            [manifest] = published
            assert manifest.survey in listed.output
            self.assert_whole(lake, manifest)
        else:
            assert "nothing on" in listed.output
        return bool(published)

    def assert_completed_by_another(self, lake: Lake) -> None:
        """A second ingest ends published and whole, whatever the first one left."""
        before = bool(surveys(lake))
        assert ingest(str(self.path), lake).status == ("unchanged" if before else "published")
        [manifest] = surveys(lake)
        self.assert_whole(lake, manifest)


def stored(lake: Lake, manifest: Manifest) -> dict[str, str]:
    """SHA-256 of every object of the volume, by its key in it."""
    prefix = f"{manifest.folder}/volume.mdio/"
    return {
        entry.key.removeprefix(prefix): hashlib.sha256(lake.read(entry.key)).hexdigest()
        for entry in lake.objects(prefix)
    }


def kill_an_ingest(original: Original, lake: Lake, draw: random.Random, longest: float) -> bool:
    """``kill -9`` at any moment up to ``longest`` seconds after the first object; False when it had ended before."""
    child = _started(original, lake)
    _wait_for_first_object(child, lake)
    time.sleep(draw.uniform(0, longest))
    ended = child.poll() is not None
    child.kill()
    child.wait()
    return not ended


def seconds_of_writing(original: Original, lake: Lake) -> float:
    """How long an ingest takes here from its first object to its end."""
    child = _started(original, lake)
    _wait_for_first_object(child, lake)
    began = time.monotonic()
    assert child.wait() == 0
    return time.monotonic() - began


def _started(original: Original, lake: Lake) -> subprocess.Popen[bytes]:
    command = [*COMMAND, str(original.path), "--lake", lake.uri]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for_first_object(child: subprocess.Popen[bytes], lake: Lake) -> None:
    while child.poll() is None and not any(lake.objects("surveys")):
        time.sleep(0.005)


def ingest_through_faults(
    original: Original, lake: Lake, choose: Chooser, monkeypatch: pytest.MonkeyPatch, timeout: str = "20s"
) -> tuple[str, int]:
    """Ingest ``original`` from S3 to S3 through a faulty proxy: what became of it, and the number of faults.

    It ends published and whole, or with a message and nothing published; another ingest completes it.
    """
    direct = os.environ["AWS_ENDPOINT_URL"]
    lake.write("incoming/killed.sgy", original.path)
    store = ingestion.lake._s3_store
    with faulty(int(direct.rpartition(":")[2]), choose) as (port, made), monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        patch.setattr(ingestion.lake, "_s3_store", functools.partial(store, timeout=timeout))
        try:
            ended = str(ingest(lake.uri_of("incoming/killed.sgy"), Lake(lake.uri)).status)
        except (LakeError, BaseError):
            ended = "failed"
    assert original.assert_absent_or_whole(lake) == (ended == "published"), ended
    assert ingest(lake.uri_of("incoming/killed.sgy"), lake).status == (
        "unchanged" if ended == "published" else "published"
    )
    original.assert_absent_or_whole(lake)
    return ended, made.total()
