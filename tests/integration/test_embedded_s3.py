"""The S3 server of demo and tests, and how the demo's is found."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from flows import demo
from ingestion.embedded_s3 import serve
from ingestion.lake import LakeError


def test_two_on_one_folder_are_refused_in_words(tmp_path: Path) -> None:
    said = f"ended with exit code .* no other one uses {tmp_path}"
    with serve(tmp_path), pytest.raises(LakeError, match=said), serve(tmp_path):
        pass


def test_the_demos_lake_is_found_by_the_commands_of_another_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "ROOT", tmp_path / "it's a folder")
    demo.ROOT.mkdir()
    with demo._lake_served() as lake:
        lake.write("weeks/2099-W01/begun.json", b"{}")
        done = subprocess.run(
            ["sh", "-c", '. ./env && week status && echo "$MLFLOW_TRACKING_URI"'],
            cwd=demo.ROOT,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert "2099-W01 on this lake" in done.stdout
    assert f"sqlite:///{demo.ROOT}/mlflow.db" in done.stdout
    assert not (demo.ROOT / "env").exists()
