"""What AdamW decays."""

from __future__ import annotations

import pytest
from equality import Case, Layout

from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.parallel.strategies.base import adamw


@pytest.mark.parametrize("decoder", ["self", "cross"])
def test_matrices_decay_and_nothing_else(decoder: str) -> None:
    config = Case((2, 2, 2), 0.5, decoder=decoder, registers=2).config("ddp-float32", Layout(1), weight_decay=0.1)
    parameters = dict(MaskedAutoencoder(config.model).named_parameters())
    groups = adamw(parameters, config).param_groups
    decayed = {id(p) for group in groups for p in group["params"] if group["weight_decay"] == 0.1}
    for name, parameter in parameters.items():
        learned_token = name.endswith(("registers", "mask_token"))
        assert (id(parameter) in decayed) == (parameter.ndim == 2 and not learned_token), name
    assert sum(len(group["params"]) for group in groups) == len(parameters)
