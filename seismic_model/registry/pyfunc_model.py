"""The registered model, as MLflow runs it: this file is copied into every version and needs nothing of its project.

    model = mlflow.pyfunc.load_model("models:/seismic-vit-mae@champion")
    found = model.predict(volume, params={"centre": 0.0, "scale": 1350.0, "clip": 10.0, "seed": 7})

``volume`` is float32 (I, X, Z), raw amplitudes with NaN where nothing was recorded, as the MDIO volume holds them;
every edge a multiple of the window that the model was trained on. ``centre``, ``scale`` and ``clip`` are those of
``normalisation`` in the survey's manifest. A model whose config has a ``reference_spacing`` also wants ``spacing``: the
size of the volume's voxels over it, inline, crossline and sample. Each window of the volume is hidden in part by its
own mask, drawn from ``seed`` (default 0) and the window's place in C order, and filled in. What comes back, both of
the shape (I, X, Z):

* ``amplitude``: float32, raw amplitudes: the model's where patches were hidden, elsewhere the given ones, clipped,
  with ``centre`` where nothing was recorded;
* ``hidden``: bool, the voxels that the model did not see.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import numpy.typing as npt
import torch
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from safetensors.torch import load_file

PACKAGES = ("seismic_model", "ingestion")  # a version brings the part of them that it needs
MODULES = ("config", "model.mae", "model.masking")  # of seismic_model


class ReconstructionModel(PythonModel):
    """Fills in hidden parts of a volume with the weights, and the code, of one version."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load code, config and weights. Raises ``ValueError`` when the weights are not the registered ones."""
        folder = Path(context.artifacts["package"])
        config, self.mae, self.masking = own_modules(folder / "code")
        self.config = config.RunConfig.model_validate_json((folder / "config.json").read_bytes())
        origin = json.loads((folder / "origin.json").read_bytes())
        with (folder / "weights.safetensors").open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != origin["file_sha256"]:
            raise ValueError(
                f"the weights of run {origin['run']}, step {origin['step']} have SHA-256 {found}, expected "
                f"{origin['file_sha256']}: they were damaged after registering; register the checkpoint again"
            )
        self.model = self.mae.MaskedAutoencoder(self.config.model).eval()
        self.model.load_state_dict(load_file(folder / "weights.safetensors"), assign=True)

    def predict(  # plain np.ndarray: MLflow takes any finer hint for a schema, and warns
        self,
        context: PythonModelContext,
        model_input: np.ndarray,
        params: dict[str, Any] | None = None,
    ) -> dict[str, npt.NDArray[Any]]:
        """Fill in the hidden part of every window of ``model_input``, float32 (I, X, Z).

        Raises ``ValueError`` for a shape or parameters that do not fit.
        """
        centre, scale, clip, seed = _checked(params or {})
        spacing = self._spacing(params or {})
        windows = self._windows(model_input.shape)
        amplitude = np.empty(model_input.shape, dtype=np.float32)
        hidden = np.empty(model_input.shape, dtype=bool)
        for number, window in enumerate(windows):
            live = np.isfinite(model_input[window])
            values = ((model_input[window] - np.float32(centre)) / np.float32(scale)).clip(-clip, clip)
            normalised, unseen = self._fill(np.where(live, values, 0), live, spacing, seed, number)
            amplitude[window] = normalised * np.float32(scale) + np.float32(centre)
            hidden[window] = unseen
        return {"amplitude": amplitude, "hidden": hidden}

    @torch.inference_mode()
    def _fill(
        self,
        values_IXZ: npt.NDArray[np.float32],
        live_IXZ: npt.NDArray[np.bool_],
        spacing: list[float],
        seed: int,
        number: int,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Normalised amplitudes of one window, and which of its voxels were hidden."""
        layout = self.masking.TokenLayout(self.config.window, self.config.model.patch)
        shard = self.masking.Shard.of(layout, self.masking.Masking(self.config.keep_ratio, seed))
        masks = shard.draw(0, [number])
        dtype = next(self.model.parameters()).dtype
        patches_BLP, live_BLP = (
            self.masking.patchify(torch.from_numpy(each)[None], layout, shard.tokens) for each in (values_IXZ, live_IXZ)
        )
        spacing_B3 = torch.tensor([spacing], dtype=torch.float64)
        made = self.model(patches_BLP.to(dtype), live_BLP, masks, shard, spacing_B3=spacing_B3)
        filled_BLP = self.mae.filled_in(patches_BLP, masks, made.prediction_BMP)
        hidden_BLP = torch.zeros(patches_BLP.shape, dtype=torch.bool)
        hidden_BLP[0, masks.decoded_BM[0]] = True
        normalised, hidden = (
            self.masking.unpatchify(each, layout, shard.tokens)[0].numpy() for each in (filled_BLP, hidden_BLP)
        )
        return normalised, hidden

    def _spacing(self, params: dict[str, Any]) -> list[float]:
        """Size of the volume's voxels over the model's reference. Raises ``ValueError`` if not told, or in vain."""
        reference, given = self.config.model.reference_spacing, [float(each) for each in params.get("spacing", [])]
        if reference is None:
            if given:
                raise ValueError(f"spacing is {given}, but this model counts patches of any size; leave spacing out")
            return [1.0, 1.0, 1.0]
        if len(given) != 3 or not all(math.isfinite(each) and each > 0 for each in given):
            raise ValueError(
                f"spacing is {given}; expected the size of a voxel (inline, crossline, sample) over the model's "
                f"reference of {reference}, such as [1.0, 1.0, 0.5]"
            )
        return given

    def _windows(self, shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
        window = self.config.window
        if len(shape) != 3 or any(n == 0 or n % w for n, w in zip(shape, window, strict=True)):
            raise ValueError(f"the volume has shape {shape}; expected (I, X, Z), each a multiple of {window}")
        starts = itertools.product(*(range(0, n, w) for n, w in zip(shape, window, strict=True)))
        return [tuple(slice(a, a + w) for a, w in zip(start, window, strict=True)) for start in starts]


def own_modules(code: Path) -> list[Any]:
    """``MODULES`` as they lie in ``code``, apart from any others of that name.

    Two versions, and the project itself, can then be used side by side in one process, each with its own code.
    """
    outside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in PACKAGES}
    sys.path.insert(0, str(code))
    importlib.invalidate_caches()
    try:
        return [importlib.import_module(f"seismic_model.{name}") for name in MODULES]
    finally:
        sys.path.remove(str(code))
        for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
            del sys.modules[name]
        sys.modules.update(outside)


def _checked(params: dict[str, Any]) -> tuple[float, float, float, int]:
    given = {name: params.get(name) for name in ("centre", "scale", "clip")}
    bad = [name for name, value in given.items() if value is None or not math.isfinite(value)]
    bad += [name for name in ("scale", "clip") if name not in bad and params[name] <= 0]
    if bad:
        raise ValueError(
            f"params give {given}, of which {', '.join(bad)} cannot be used; expected centre, scale > 0 and clip > 0 "
            "of `normalisation` in the survey's manifest.json"
        )
    if (seed := params.get("seed", 0)) < 0:
        raise ValueError(f"seed is {seed}; expected a whole number from 0")
    return params["centre"], params["scale"], params["clip"], seed


mlflow.models.set_model(ReconstructionModel())
