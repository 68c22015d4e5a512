"""A step that Metaflow runs on another machine finds there all that it needs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = {
    "weekly_retrain": ("flows", "ingestion", "seismic_model", "validation"),
    "ingest_survey": ("flows", "ingestion", "validation"),
}


@pytest.mark.parametrize("flow", ROOMS)
def test_the_rooms_travel_with_their_data_files(flow: str, tmp_path: Path) -> None:
    package = tmp_path / "package.tgz"
    command = [sys.executable, str(ROOT / "flows" / f"{flow}.py"), "package", "save", str(package)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(package) as packed:
        names = set(packed.getnames())
    files = [path for room in ROOMS[flow] for path in (ROOT / room).rglob("*") if path.is_file()]
    needed = {f".mf_code/{path.relative_to(ROOT)}" for path in files if "__pycache__" not in path.parts}
    assert needed - names == set()


def test_a_step_starts_without_the_libraries_that_few_steps_need() -> None:
    """Each of a week's dozen processes imports the whole flow first."""
    heavy = "{'numba', 'zarr', 'torch', 'great_expectations', 'pandas'}"
    code = f"import sys, flows.weekly_retrain; sys.exit(', '.join({heavy} & sys.modules.keys()) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
