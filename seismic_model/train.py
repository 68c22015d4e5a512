"""Train one model; torchrun starts this.

    torchrun --nproc-per-node=2 -m seismic_model.train --config s3://LAKE/runs/RUN/config.json

The config (``seismic_model.config.RunConfig``) says everything; the world is dp x cp processes, cp from the config.
The run goes on from its newest committed checkpoint, so the same command again is how to resume it, after kill -9
too. SIGTERM saves first: torchrun passes it on and waits 30 seconds.

Exit codes: 0 the run is finished, or SIGTERM stopped it with all saved (its newest checkpoint says which);
2 the config or the data set it names is unusable or holds a withdrawn survey, or another run trains on this lake, and
nothing was started; 3 another start of this run took over, and this one must not be started again; 1 anything else,
such as a lake that does not answer.
torchrun writes each process's code to its log, and itself exits with 1 when one of them is not 0 or when it was
sent SIGTERM.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path

from obstore.exceptions import BaseError
from pydantic import ValidationError

from ingestion.lake import Lake, LakeError, split_uri
from ingestion.names import store_message
from seismic_model.config import RunConfig
from seismic_model.data.dataset import Dataset, DatasetError, load_dataset, refuse_withdrawn

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "remote process exited")  # of gloo and NCCL


class ConfigError(Exception):
    """The run cannot be started as configured; the message says what to change."""


def main(arguments: list[str] | None = None) -> int:
    """Train as one of the processes that torchrun started; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m seismic_model.train", description="Train one model.")
    parser.add_argument("--config", required=True, metavar="URI", help="a RunConfig: path, file:// or s3:// URI")
    uri = parser.parse_args(arguments).config
    rank = os.environ.get("RANK", "0")
    die_with_torchrun()
    logging.basicConfig(format=f"%(asctime)s [rank {rank}] %(message)s", level=logging.INFO)
    try:
        config = read_config(uri)
        lake = Lake(config.lake, make=False)
        dataset = load_dataset(lake, config.dataset, config.dataset_sha256)
        refuse_withdrawn(lake, dataset)
        if dataset.window != config.window:
            raise ConfigError(f"window is {config.window}, but {config.dataset} was frozen for {dataset.window}")
    except (ConfigError, DatasetError, LakeError) as error:
        return _failed(error, 2)
    except BaseError as error:
        return _failed(error, 1)
    return _train(config, lake, dataset)


def die_with_torchrun() -> None:
    """Let the kernel kill this process when torchrun is killed, so that it never runs on beside a successor."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()


def die_with_parent() -> None:
    """Let the kernel kill this process when the one that started it is gone (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def read_config(uri: str) -> RunConfig:
    """The config at ``uri``. Raises ``ConfigError`` with each fault and its place, and ``LakeError``."""
    try:
        lake, key = split_uri(uri)
        return RunConfig.model_validate_json(lake.read(key))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no config at {uri}; expected the JSON of a RunConfig") from error
    except ValidationError as error:
        faults = "\n".join(f"  {'.'.join(map(str, e['loc'])) or 'config'}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"the config at {uri} has {error.error_count()} fault(s):\n{faults}") from error


def _train(config: RunConfig, lake: Lake, dataset: Dataset) -> int:
    # torch takes seconds, which a wrong config need not cost
    from seismic_model.data.sampling import BatchError
    from seismic_model.data.store import VolumeError
    from seismic_model.parallel.mesh import MeshError, open_mesh
    from seismic_model.training.checkpoint import CheckpointError
    from seismic_model.training.fencing import NotStartedError, held
    from seismic_model.training.lease import FencedError, HeldElsewhereError
    from seismic_model.training.loop import TrainingError, train
    from seismic_model.training.metrics import MetricsError

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    try:
        with open_mesh(config.cp, config.ulysses) as mesh, held(lake, config.run, mesh) as fenced:
            outcome = train(config, fenced, dataset, mesh)
        logger.info("run %s %s", config.run, outcome)
    except (MeshError, BatchError, HeldElsewhereError, NotStartedError) as error:
        return _failed(error, 2)
    except FencedError as error:
        return _failed(error, 3)
    except (TrainingError, CheckpointError, DatasetError, VolumeError, MetricsError, LakeError, BaseError) as error:
        return _failed(error, 1)
    except RuntimeError as error:
        if not any(sign in str(error) for sign in _LOST_PEER):
            raise
        logger.error("another process of this run ended; its log says why")
        return 1
    return 0


def _failed(error: Exception, code: int) -> int:
    """Log why, and let torchrun repeat it as the root cause at the end of its own log."""
    reason = store_message(error)
    logger.error("%s", reason)
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        Path(path).write_text(json.dumps({"message": reason, "timestamp": str(int(time.time()))}))
    return code


if __name__ == "__main__":
    sys.exit(main())
