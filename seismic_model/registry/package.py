"""One checkpoint as an MLflow model: weights in safetensors, config and lineage in JSON, code as source. No pickle."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import ingestion
import seismic_model
from ingestion.lake import Lake
from seismic_model.registry.versions import RegistryError

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

    from seismic_model.training.checkpoint import CheckpointManifest

_CODE = {  # what the model needs of this project, and no more
    ingestion: ("__init__.py", "manifest.py", "names.py"),
    seismic_model: ("__init__.py", "config.py", "model/*.py"),
}
_LIBRARIES = ("mlflow", "torch", "numpy", "pydantic", "safetensors")


def build(lake: Lake, checkpoint: CheckpointManifest, folder: Path, scratch: Path) -> None:
    """Write the MLflow model of ``checkpoint`` to ``folder``, and load it once to see that it can be.

    ``scratch`` is an empty folder that the caller removes. Raises ``CheckpointError`` for weights that are lost or
    damaged and ``RegistryError`` when they are not those of ``checkpoint``.
    """
    import mlflow.pyfunc

    package = scratch / "package"
    package.mkdir()
    _copy_code(package / "code")
    _write_weights(lake, checkpoint, package)
    (package / "config.json").write_bytes(checkpoint.config.to_bytes())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*input example.*")  # one window may be gigabytes of JSON
        mlflow.pyfunc.save_model(
            folder,
            python_model=str(Path(__file__).with_name("pyfunc_model.py")),
            artifacts={"package": str(package)},
            signature=_signature(),
            pip_requirements=[f"{library}=={version(library)}" for library in _LIBRARIES],
        )
    mlflow.pyfunc.load_model(str(folder))


def _copy_code(target: Path) -> None:
    for package, patterns in _CODE.items():
        source = Path(str(package.__file__)).parent
        for file in (file for pattern in patterns for file in source.glob(pattern)):
            copy = target / package.__name__ / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _write_weights(lake: Lake, checkpoint: CheckpointManifest, package: Path) -> None:
    from safetensors.torch import save_file

    from seismic_model.training.checkpoint import load_weights, weights_digest

    weights = load_weights(lake, checkpoint.run, checkpoint.step)
    if (found := weights_digest(weights)) != checkpoint.weights_sha256:
        raise RegistryError(
            f"run {checkpoint.run}, step {checkpoint.step} now has weights {found}, expected "
            f"{checkpoint.weights_sha256}; evaluate the run again"
        )
    file = package / "weights.safetensors"
    save_file(weights, file)
    with file.open("rb") as stored:
        origin = {
            "run": checkpoint.run,
            "step": checkpoint.step,
            "weights_sha256": checkpoint.weights_sha256,
            "file_sha256": hashlib.file_digest(stored, "sha256").hexdigest(),
        }
    (package / "origin.json").write_text(json.dumps(origin, indent=2) + "\n")


def _signature() -> ModelSignature:
    """See ``pyfunc_model.py`` for what they mean."""
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ParamSchema, ParamSpec, Schema, TensorSpec

    shape = (-1, -1, -1)
    float32, boolean = np.dtype("float32"), np.dtype("bool")
    return ModelSignature(
        inputs=Schema([TensorSpec(float32, shape)]),
        outputs=Schema([TensorSpec(float32, shape, "amplitude"), TensorSpec(boolean, shape, "hidden")]),
        params=ParamSchema(
            [
                *(ParamSpec(name, "double", None) for name in ("centre", "scale", "clip")),
                ParamSpec("seed", "long", 0),
                ParamSpec("spacing", "double", [], shape=(-1,)),
            ]
        ),
    )
