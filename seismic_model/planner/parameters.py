"""How many weights the model has, by part: the same sums as ``MaskedAutoencoder`` makes of its modules."""

from __future__ import annotations

from seismic_model.config import ModelConfig
from seismic_model.planner.flops import MLP_RATIO


def parameters_of(model: ModelConfig) -> dict[str, int]:
    """Weights and biases of each part; their sum is the model's."""
    outputs = model.patch_voxels + (2 if model.patch_normalisation else 0)
    return {
        "patch embedding": _linear(model.patch_voxels, model.width),
        "registers": model.registers * model.width,
        "encoder": model.depth * block_parameters(model.width, model.heads) + _layer_norm(model.width),
        "decoder embedding": _linear(model.width, model.decoder_width) + model.decoder_width,  # with the mask token
        "decoder": model.decoder_depth * block_parameters(model.decoder_width, model.decoder_heads)
        + _layer_norm(model.decoder_width),
        "head": _linear(model.decoder_width, outputs),
    }


def block_parameters(width: int, heads: int) -> int:
    """Of one transformer block: four projections, two gains a head, the MLP, two layer norms."""
    projections = 4 * _linear(width, width)
    mlp = _linear(width, MLP_RATIO * width) + _linear(MLP_RATIO * width, width)
    return projections + 2 * heads + mlp + 2 * _layer_norm(width)


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _layer_norm(width: int) -> int:
    return 2 * width
