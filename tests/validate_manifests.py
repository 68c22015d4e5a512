"""Checks manifests against what the makers of both operators publish; runs in ``.venv-schemas``.

One JSON manifest a line comes in, one JSON string goes out: "ok" or what is wrong with it.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace


def main() -> None:
    hyperpod = _hyperpod_models()
    for line in sys.stdin:
        manifest = json.loads(line)
        try:
            if manifest["kind"] == "HyperPodPyTorchJob":
                _check_hyperpod(hyperpod, manifest)
            else:
                _check_kubeflow(manifest)
        except Exception as error:
            print(json.dumps(repr(error)), flush=True)  # one line
        else:
            print(json.dumps("ok"), flush=True)


def _hyperpod_models() -> ModuleType:
    """The generated models of the sagemaker-hyperpod SDK, without the SDK around them and its many dependencies."""
    root = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    path = root / "sagemaker/hyperpod/training/config/hyperpod_pytorch_job_unified_config.py"
    specification = importlib.util.spec_from_file_location("hyperpod_models", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _check_hyperpod(models: ModuleType, manifest: dict) -> None:
    if manifest["apiVersion"] != "sagemaker.amazonaws.com/v1":
        raise ValueError(manifest["apiVersion"])
    # the fields are named as in the cluster's schema; their aliases are for Python
    job = models._HyperPodPytorchJob.model_validate(manifest["spec"], by_name=True, by_alias=False)
    _equal(manifest["spec"], job.model_dump(exclude_unset=True))
    if "status" in manifest:
        status = models.HyperPodPytorchJobStatus.model_validate(manifest["status"], by_name=True, by_alias=False)
        _equal(manifest["status"], status.model_dump(exclude_unset=True))


def _check_kubeflow(manifest: dict) -> None:
    from kubeflow.training import ApiClient, KubeflowOrgV1PyTorchJob

    api = ApiClient()
    job = api.deserialize(SimpleNamespace(data=json.dumps(manifest)), KubeflowOrgV1PyTorchJob)
    _equal(manifest, api.sanitize_for_serialization(job))


def _equal(sent: object, understood: object) -> None:
    """A field that the models do not know is lost on the way through them."""
    if sent != understood:
        raise ValueError(f"sent {json.dumps(sent)}, understood {json.dumps(understood, default=repr)}")


if __name__ == "__main__":
    main()
