"""Two real processes that share each crop (cp=2), stopped at bad moments, end with the same weights.

Many more moments are tried by ``tests/proof/test_kills.py``; torchrun itself is killed by the test of the weekly flow.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from forked import Death, finish, training
from killed import WIDE, assert_same_end, settings

from ingestion.lake import Lake
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.training import checkpoint
from seismic_model.training.metrics import read_metrics

SEED = 20261130


@pytest.mark.timeout(600)
def test_stopped_anywhere_it_ends_with_the_weights_of_the_undisturbed_run(lake: Lake, tmp_path: Path) -> None:
    log = tmp_path / "log"
    undisturbed = settings(lake, "undisturbed", strategy="zero2", cp=2, checkpoint_every=10)
    finish(undisturbed, 2, log)
    moments = random.Random(SEED)

    # SIGTERM to one process: all save, although no checkpoint is due, and end well
    with training(settings(lake, "stopped", strategy="zero2", cp=2, checkpoint_every=1000), 2, log) as job:
        while job.running() and not read_metrics(lake, "stopped"):
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.3))
        job.signal(moments.randrange(2), signal.SIGTERM)
        assert job.wait() == [0, 0], log.read_text()
    stopped = checkpoint.latest(lake, "stopped")
    assert stopped is not None
    assert 0 < stopped.step < undisturbed.steps

    # a file that changed is refused by name, by all; restored, the run can go on
    often = settings(lake, "stopped", strategy="zero2", cp=2, checkpoint_every=4)
    file = next(name for name in stopped.files if name.startswith("optimizer-00002"))
    with damaged(lake, f"{stopped.folder}/{file}"), training(often, 2, tmp_path / "refused") as job:
        assert job.wait() == [1, 1]
    assert (tmp_path / "refused").read_text().count(f"process 1: {lake.uri_of(stopped.folder)}/{file} has") >= 2

    # kill -9 of one process, or of all at once
    for death in (Death(1, "in an upload", 2), Death(0, "before the manifest", 1), None):
        with training(often, 2, log, death) as job:
            if death is None:
                while job.running() and checkpoint.latest(lake, "stopped") == stopped:
                    time.sleep(0.01)
                time.sleep(moments.uniform(0, 0.3))
                job.kill()
            assert -signal.SIGKILL in job.wait(), log.read_text()

    finish(often, 2, log)
    assert_same_end(lake, "stopped", undisturbed)
    MaskedAutoencoder(WIDE).load_state_dict(checkpoint.load_weights(lake, "stopped", undisturbed.steps))


@pytest.mark.parametrize(("strategy", "cp"), [("ddp", 1), ("zero2", 2)])
def test_the_process_that_is_left_says_so_in_one_line(lake: Lake, tmp_path: Path, strategy: str, cp: int) -> None:
    log = tmp_path / "log"
    with training(settings(lake, "left", strategy=strategy, cp=cp), 2, log, Death(1, "any time", 9)) as job:
        assert job.wait() == [1, -signal.SIGKILL]
    assert "another process of this run ended" in log.read_text()
    assert "Traceback" not in log.read_text()


@contextmanager
def damaged(lake: Lake, key: str) -> Iterator[None]:
    whole = lake.read(key)
    lake.write(key, whole[:-1] + bytes([whole[-1] ^ 1]))
    yield
    lake.write(key, whole)
