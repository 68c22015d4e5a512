"""An ingest that is killed or meets a faulty server, and what must be on the lake afterwards."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import mdio
import numpy as np
from click.testing import CliRunner
from segy_bytes import Draft, draft

from ingestion.catalog import surveys
from ingestion.cli import main
from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.manifest import Manifest

SHAPE = (130, 131, 40)  # more than one chunk in both directions
COMMAND = [sys.executable, "-c", "from ingestion.cli import main; main()", "ingest"]


@dataclass(frozen=True)
class Original:
    """A survey as a file, what it holds, and what an undisturbed ingest of it leaves on a lake."""

    path: Path

    @cached_property
    def made(self) -> Draft:
        made = draft(SHAPE, code=1)
        made.take(np.random.default_rng(5).permutation(len(made)))
        self.path.write_bytes(made.to_bytes())
        return made

    @cached_property
    def cube(self) -> np.ndarray:
        order = np.lexsort([self.made.headers["crossline"], self.made.headers["inline"]])
        cube: np.ndarray = self.made.samples[order].reshape(SHAPE)
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
        assert found == self.undisturbed
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


def kill_an_ingest(original: Original, lake: Lake, draw: random.Random) -> bool:
    """``kill -9`` at any moment, mostly between its first object and its last; False when it had ended before."""
    child = subprocess.Popen(
        [*COMMAND, str(original.path), "--lake", lake.uri], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    if draw.random() < 0.2:
        time.sleep(draw.uniform(0, 2))
    else:
        while child.poll() is None and not any(lake.objects("surveys")):
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 1.2))
    ended = child.poll() is not None
    child.kill()
    child.wait()
    return not ended
