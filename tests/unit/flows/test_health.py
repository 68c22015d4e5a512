"""The health check as Slurm starts it, against another node's process that this test plays."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch.distributed as dist

IMPATIENT = "import sys; from flows.launchers import health; health._REDUCE_SECONDS = 3.0; sys.exit(health.main())"


def test_a_node_that_hangs_makes_no_other_one_bad(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    node = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "1"}
    checked = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, f"--mark={tmp_path / 'mark'}", f"--scratch={tmp_path}"],
        env=os.environ | node | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        stdout=subprocess.PIPE,
        text=True,
    )
    peer = dist.TCPStore("127.0.0.1", port, 2, False, wait_for_workers=False)
    peer.set("health/1", "well")  # and then nothing more
    said, _ = checked.communicate()
    assert checked.returncode == 3, said
    assert "the nodes do not come together" in said
    assert not (tmp_path / "mark").exists()
