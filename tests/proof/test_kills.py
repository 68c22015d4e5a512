"""kill -9 at seeded random moments, of one process or of the whole job: the run ends as if nothing had been."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from forked import Death, Moment, finish, training
from killed import assert_same_end, settings
from proofs import Proof

from ingestion.lake import Lake
from seismic_model.config import RunConfig

SEED = 20261130
KILLS = 24  # of each layout, at least
MOMENTS = get_args(Moment)
LAYOUTS = {
    "zero2, cp 2": {"strategy": "zero2", "cp": 2},
    "ddp, dp 2, averaged weights": {"strategy": "ddp", "cp": 1, "ema_decay": 0.9, "accumulation": 2},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_killed_at_any_moment_ends_with_the_same_weights(
    lake: Lake, tmp_path: Path, proof: Proof, layout: str
) -> None:
    undisturbed = settings(lake, "undisturbed", checkpoint_every=10, **LAYOUTS[layout])
    finish(undisturbed, 2, tmp_path / "undisturbed")
    draw, kills, runs = random.Random(f"{SEED} {layout}"), Counter[str](), 0
    while kills.total() < KILLS:
        config = settings(lake, f"killed-{runs}", checkpoint_every=3, **LAYOUTS[layout])
        while killed(config, moment := next_of(draw, kills), draw, tmp_path / config.run):
            kills[moment] += 1
        assert_same_end(lake, config.run, undisturbed)
        runs += 1
    assert min(kills[moment] for moment in MOMENTS) >= 2
    proof.record(kills.total(), f"0 of {runs} runs end with other weights or had other losses, to the last bit")


def next_of(draw: random.Random, kills: Counter[str]) -> Moment:
    """Any of the moments that came up least."""
    least = min(kills[moment] for moment in MOMENTS)
    return draw.choice([moment for moment in MOMENTS if kills[moment] == least])


def killed(config: RunConfig, moment: Moment, draw: random.Random, log: Path) -> bool:
    """Train until the moment comes, to one process or to all; False when the run came to its end before."""
    anyone = moment in ("any time", "before an upload", "in an upload")  # the rest is done by process 0 alone
    death = Death(draw.randrange(2) if anyone else 0, moment, draw.randint(1, 40 if moment == "any time" else 4))
    with training(config, 2, log, death) as job:
        job.wait_for_one()
        came = -signal.SIGKILL in job.wait(0)
        if came and draw.random() < 0.5:
            time.sleep(draw.uniform(0, 0.2))
            job.kill()
        assert set(job.wait()) <= ({1, -signal.SIGKILL} if came else {0}), log.read_text()
    return came
