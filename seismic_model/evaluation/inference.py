"""Fill the hidden patches of regions with a model; the registry's model does the same with the same code."""

from __future__ import annotations

import torch
from torch import Tensor

from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.model.masking import Shard, TokenLayout, patchify, unpatchify


@torch.inference_mode()
def reconstruct(model: MaskedAutoencoder, values_BIXZ: Tensor, live_BIXZ: Tensor, seen_BIXZ: Tensor) -> Tensor:
    """What the model makes of crops: normalised amplitudes (B, I, X, Z), visible patches included.

    Args:
        model: in evaluation and on one device.
        values_BIXZ: normalised amplitudes; hidden and dead voxels are not looked at.
        live_BIXZ: bool, voxels of live traces.
        seen_BIXZ: bool, constant within each patch: what the encoder sees.

    Raises ``ValueError`` when a crop is not a multiple of the patch, sees no patch, sees part of one,
    or sees another number of patches than its neighbour in the batch.
    """
    layout = TokenLayout(_window(values_BIXZ), model.config.patch)
    tokens = range(layout.tokens)
    seen_BLP = patchify(seen_BIXZ, layout, tokens)
    seen_BL = seen_BLP.all(dim=2)
    counts = seen_BL.sum(dim=1)
    if not torch.equal(seen_BL, seen_BLP.any(dim=2)):
        raise ValueError(f"a patch {model.config.patch} is seen in part; expected all or none of its voxels")
    if not len(counts) or counts.min() == 0 or counts.min() != counts.max():
        raise ValueError(f"visible patches of each crop: {counts.tolist()}; expected equally many, at least one")
    visible_BK = seen_BL.nonzero()[:, 1].reshape(len(seen_BL), -1)
    shard = Shard(layout, tokens, (len(tokens),), (visible_BK.shape[1],))
    live_BLP = patchify(live_BIXZ, layout, tokens)
    made = model(patchify(values_BIXZ, layout, tokens), live_BLP, visible_BK, shard)
    return unpatchify(made.prediction_BLP, layout, tokens)


def _window(values_BIXZ: Tensor) -> tuple[int, int, int]:
    _, inlines, crosslines, samples = values_BIXZ.shape
    return inlines, crosslines, samples
