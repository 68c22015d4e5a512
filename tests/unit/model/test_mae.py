"""The autoencoder scores decoded live voxels, hides the rest, and knows where its tokens are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seismic_model.config import ModelConfig, ReferenceSpacing
from seismic_model.model.loss import normalised_loss
from seismic_model.model.mae import MaskedAutoencoder, Reconstruction, amplitudes, count_scored, filled_in
from seismic_model.model.masking import Masking, Masks, Shard, TokenLayout, patchify

LAYOUT = TokenLayout((8, 8, 12), (4, 4, 4))  # 12 tokens
SHARD = Shard.of(LAYOUT, Masking(0.25, seed=0))
HALF = Shard.of(LAYOUT, Masking(0.25, seed=0, decode_share=0.5))

both_decoders = pytest.mark.parametrize("decoder", ["self", "cross"])


def config(**other: Any) -> ModelConfig:
    shape = {"width": 24, "depth": 2, "heads": 2, "decoder_width": 12, "decoder_depth": 2, "decoder_heads": 2}
    return ModelConfig.model_validate({"patch": LAYOUT.patch, **shape, **other})


def model(checkpointing: Any = "none", **other: Any) -> MaskedAutoencoder:
    return MaskedAutoencoder(config(**other), seed=3, checkpointing=checkpointing).double()


def crops(batch: int = 2) -> tuple[Tensor, Tensor]:
    """Amplitudes and live mask as patches; the first crossline is dead."""
    generator = torch.Generator().manual_seed(0)
    volume = torch.randn(batch, *LAYOUT.window, dtype=torch.float64, generator=generator)
    live = torch.ones_like(volume, dtype=torch.bool)
    live[:, :, 0] = False
    return patchify(volume, LAYOUT, SHARD.tokens), patchify(live, LAYOUT, SHARD.tokens)


def masks(batch: int = 2, shard: Shard = SHARD) -> Masks:
    return shard.draw(0, range(batch))


def decoded_live(live: Tensor, drawn: Masks) -> Tensor:
    expected = torch.zeros_like(live)
    for crop, ids in enumerate(drawn.decoded_BM.tolist()):
        expected[crop, ids] = live[crop, ids]
    return expected


def gradients(net: MaskedAutoencoder, *arguments: Any) -> list[Tensor]:
    return list(torch.autograd.grad(net(*arguments).loss_sum, list(net.parameters())))


@pytest.mark.parametrize("shard", [SHARD, HALF], ids=["all", "half"])
@pytest.mark.parametrize("patch_normalisation", [False, True])
@both_decoders
def test_loss_and_count_take_decoded_live_voxels_only(decoder: str, patch_normalisation: bool, shard: Shard) -> None:
    patches, live = crops()
    drawn, net = masks(2, shard), model(decoder=decoder, patch_normalisation=patch_normalisation)
    result = net(patches, live, drawn, shard)
    counted = decoded_live(live, drawn)
    assert int(result.count) == int(count_scored(live, drawn)) == int(counted.sum())
    if not patch_normalisation:
        expected = (filled_in(patches, drawn, result.prediction_BMP) - patches)[counted].square().sum()
        assert result.loss_sum.item() == pytest.approx(expected.item())
    # the targets: only they make a difference, and each of them does
    is_seen = torch.zeros_like(live).scatter(1, drawn.visible_BK[:, :, None].expand(-1, -1, live.shape[2]), True)
    other = torch.where(counted | is_seen, patches, patches * 7 + 5)
    assert net(other, live, drawn, shard).loss_sum.item() == result.loss_sum.item()
    for crop, token in counted.any(2).nonzero().tolist():
        other = patches.clone()
        other[crop, token, counted[crop, token].nonzero()[0]] += 1
        assert net(other, live, drawn, shard).loss_sum.item() != result.loss_sum.item()


@both_decoders
def test_the_hidden_never_reach_the_prediction(decoder: str) -> None:
    patches, live = crops()
    drawn, net = masks(), model(decoder=decoder, patch_normalisation=True)
    other = torch.where(decoded_live(live, drawn), patches * 100 + 7, patches)
    a, b = net(patches, live, drawn, SHARD), net(other, live, drawn, SHARD)
    assert torch.equal(a.prediction_BMP, b.prediction_BMP)
    assert a.loss_sum.item() != b.loss_sum.item()


def test_what_a_cross_decoder_predicts_does_not_depend_on_what_else_is_asked() -> None:
    patches, live = crops()
    net = model(decoder="cross")
    few, many = masks(2, HALF), masks()
    a, b = net(patches, live, few, HALF).prediction_BMP, net(patches, live, many, SHARD).prediction_BMP
    for crop in range(2):
        at = [many.decoded_BM[crop].tolist().index(token) for token in few.decoded_BM[crop].tolist()]
        torch.testing.assert_close(b[crop, at], a[crop], rtol=0, atol=1e-12)


@pytest.mark.parametrize("fill", [float("nan"), 1e30])
def test_dead_voxels_change_nothing(fill: float) -> None:
    patches, live = crops()
    net = model(patch_normalisation=True)
    zeros = gradients(net, torch.where(live, patches, 0), live, masks(), SHARD)
    filled = gradients(net, torch.where(live, patches, fill), live, masks(), SHARD)
    assert all(torch.equal(a, b) for a, b in zip(zeros, filled, strict=True))


@both_decoders
def test_dead_traces_do_not_swamp_the_first_gradients(decoder: str) -> None:
    """A token of dead voxels that began as 0 would have them multiplied by a thousand at each norm."""
    patches, live = crops()
    dead = live.clone()
    dead[:, :3] = False  # whole patches
    norms = [
        torch.stack(
            [gradient.norm() for gradient in gradients(model(decoder=decoder), patches, mask, masks(), SHARD)]
        ).norm()
        for mask in (live, dead)
    ]
    assert norms[1] < 5 * norms[0]


@both_decoders
def test_a_crop_without_live_voxels_has_no_loss_and_finite_gradients(decoder: str) -> None:
    patches, live = crops()
    net = model(decoder=decoder, registers=2, patch_normalisation=True)
    result = net(patches, torch.zeros_like(live), masks(), SHARD)
    result.loss_sum.backward()
    assert (result.loss_sum.item(), result.count.item()) == (0.0, 0)
    assert all(float(p.grad.abs().max()) == 0 for p in net.parameters())


@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_patch_normalisation_scores_shape_mean_and_deviation(offset: float) -> None:
    """With the true statistics and shape as output, the loss is 0 and amplitudes come back."""
    patches, live = crops()
    patches = torch.where(live, patches * 3 + offset, 0)
    mean = (patches * live).sum(2, keepdim=True) / live.sum(2, keepdim=True)
    variance = (torch.where(live, patches - mean, 0) ** 2).sum(2, keepdim=True) / live.sum(2, keepdim=True)
    deviation = (variance + 1e-6).sqrt()
    output = torch.cat(((patches - mean) / deviation, mean, deviation.log()), dim=2)
    assert float(normalised_loss(output, patches.clone(), ~live)) == pytest.approx(0, abs=1e-18)
    torch.testing.assert_close(amplitudes(output, patches.shape[2])[live], patches[live])
    for part in (slice(0, 1), slice(64, 65), slice(65, 66)):
        wrong = output.clone()
        wrong[..., part] += 1
        assert float(normalised_loss(wrong, patches.clone(), ~live)) > 1


@both_decoders
def test_the_decoder_tells_hidden_positions_apart(decoder: str) -> None:
    prediction = model(decoder=decoder)(*crops(), masks(), SHARD).prediction_BMP
    assert torch.pdist(prediction[0]).min() > 1e-3


@both_decoders
def test_the_order_of_visible_tokens_does_not_matter(decoder: str) -> None:
    patches, live = crops()
    drawn, net = masks(), model(decoder=decoder, registers=1)
    turned = Masks(drawn.visible_BK.flip(1), drawn.decoded_BM)
    a, b = net(patches, live, drawn, SHARD), net(patches, live, turned, SHARD)
    torch.testing.assert_close(a.prediction_BMP, b.prediction_BMP, rtol=0, atol=1e-12)


def test_registers_change_what_is_predicted_and_learn() -> None:
    patches, live = crops()
    net = model(registers=2)
    before = net(patches, live, masks(), SHARD)
    before.loss_sum.backward()
    assert float(net.encoder.registers.grad.abs().min()) > 0
    with torch.no_grad():
        net.encoder.registers *= -20
    assert not torch.allclose(net(patches, live, masks(), SHARD).prediction_BMP, before.prediction_BMP)


@both_decoders
def test_positions_in_metres_see_the_spacing_and_only_its_ratio(decoder: str) -> None:
    """Voxels of twice the size lie twice as far apart: as if a finer grid had been thinned."""
    reference = ReferenceSpacing(inline_m=25, crossline_m=25, time_ms=4, depth_m=10)
    patches, live = crops()
    net = model(decoder=decoder, reference_spacing=reference)
    one, two = (torch.full((2, 3), size, dtype=torch.float64) for size in (1.0, 2.0))
    plain = model(decoder=decoder)(patches, live, masks(), SHARD).prediction_BMP
    torch.testing.assert_close(net(patches, live, masks(), SHARD, spacing_B3=one).prediction_BMP, plain)
    assert not torch.allclose(net(patches, live, masks(), SHARD, spacing_B3=two).prediction_BMP, plain, atol=1e-4)
    # the same rock in a layout of which every other patch is asked for
    wide = TokenLayout((16, 16, 24), LAYOUT.patch)
    fine = Shard.of(wide, Masking(0.25, seed=0))
    thinned = {
        name: ids * 2 + offset
        for name, ids, offset in (("visible", masks().visible_BK, 0), ("decoded", masks().decoded_BM, 0))
    }
    index = {name: _every_other(ids // 2, wide) for name, ids in thinned.items()}
    spread = torch.zeros(2, wide.tokens, 64, dtype=torch.float64)
    spread_live = torch.zeros(2, wide.tokens, 64, dtype=torch.bool)
    for crop in range(2):
        ids = torch.arange(LAYOUT.tokens)
        spread[crop, _every_other(ids, wide)] = patches[crop, ids]
        spread_live[crop, _every_other(ids, wide)] = live[crop, ids]
    counted = Shard(wide, fine.masking, 0, fine.tokens, fine.lengths, SHARD.visible_lengths, SHARD.decoded_lengths)
    as_fine = net(spread, spread_live, Masks(index["visible"], index["decoded"]), counted, spacing_B3=one)
    as_coarse = net(patches, live, masks(), SHARD, spacing_B3=two)
    torch.testing.assert_close(as_fine.prediction_BMP, as_coarse.prediction_BMP, rtol=0, atol=1e-10)


def test_a_model_with_a_reference_asks_for_the_spacing() -> None:
    net = model(reference_spacing=ReferenceSpacing(inline_m=25, crossline_m=25, time_ms=4, depth_m=10))
    with pytest.raises(ValueError, match=r"positions count voxels of .*inline_m=25"):
        net(*crops(), masks(), SHARD)
    volume = torch.zeros(2, *LAYOUT.window, dtype=torch.float64)
    with pytest.raises(ValueError, match="spacing_B3 is None"):
        net.encoder.features(volume, volume == 0, Shard.of(LAYOUT, Masking(1.0, seed=0)))


def _every_other(ids: Tensor, wide: TokenLayout) -> Tensor:
    """The token of the wide layout at twice the coordinates of ``ids``."""
    i, x, z = (2 * LAYOUT.positions(ids)).unbind(-1)
    return (i * wide.grid[1] + x) * wide.grid[2] + z


@pytest.mark.parametrize("checkpointing", ["selective", "full"])
@both_decoders
def test_recomputing_in_backward_changes_no_gradient(decoder: str, checkpointing: str) -> None:
    arguments = (*crops(), masks(2, HALF), HALF)
    kept = gradients(model(decoder=decoder, registers=1), *arguments)
    again = gradients(model(checkpointing, decoder=decoder, registers=1), *arguments)
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def test_features_are_those_of_an_encoder_that_sees_everything() -> None:
    shard = Shard.of(LAYOUT, Masking(1.0, seed=0))
    volume = torch.randn(2, *LAYOUT.window, dtype=torch.float64)
    live = torch.ones_like(volume, dtype=torch.bool)
    live[:, :, 0] = False
    volume[~live] = float("nan")
    net = model(registers=2)
    found = net.encoder.features(volume, live, shard)
    everything = shard.draw(0, range(2))
    patches = patchify(volume.nan_to_num(), LAYOUT, shard.tokens)
    expected = net.forward_encoder(
        patches, torch.ones_like(patches, dtype=torch.bool), everything, shard, net_attention(), None
    )
    assert found.shape == (2, LAYOUT.tokens, 24)
    torch.testing.assert_close(found, expected)


def net_attention() -> Any:
    from seismic_model.model.vit import full_attention

    return full_attention


@pytest.mark.parametrize("patch_normalisation", [False, True])
@both_decoders
def test_the_model_learns_a_plane_wave_in_amplitude_space(decoder: str, patch_normalisation: bool) -> None:
    """Ten cubes of one dipping wave: hidden patches are foretold far better than by zero."""
    torch.manual_seed(0)
    i, x, z = torch.meshgrid(*(torch.arange(float(n)) for n in LAYOUT.window), indexing="ij")
    phase = torch.rand(10, 1, 1, 1) * 6.28
    patches = patchify(5 * torch.sin(0.3 * i + 0.2 * x + 0.8 * z + phase), LAYOUT, SHARD.tokens)
    live, drawn = torch.ones_like(patches, dtype=torch.bool), masks(10)
    net = MaskedAutoencoder(config(decoder=decoder, patch_normalisation=patch_normalisation), seed=0)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(200):
        result = net(patches, live, drawn, SHARD)
        optimiser.zero_grad()
        (result.loss_sum / result.count).backward()
        optimiser.step()
    scored = decoded_live(live, drawn)
    filled = filled_in(patches, drawn, result.prediction_BMP)
    error = (filled - patches)[scored].square().mean() / patches[scored].square().mean()
    assert error.item() < 0.2


def test_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = MaskedAutoencoder(config(), seed=5).state_dict()
    torch.manual_seed(2)
    second = MaskedAutoencoder(config(), seed=5).state_dict()
    other = MaskedAutoencoder(config(), seed=6).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["decoder.head.weight"], other["decoder.head.weight"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@both_decoders
def test_every_precision_trains_and_sums_in_float32_or_better(decoder: str, dtype: torch.dtype) -> None:
    patches, live = crops()
    net = model(decoder=decoder, patch_normalisation=True).to(dtype)
    result: Reconstruction = net(patches.to(dtype), live, masks(), SHARD)
    result.loss_sum.backward()
    assert result.loss_sum.dtype == torch.promote_types(dtype, torch.float32)
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in net.parameters())
    accurate = model(decoder=decoder, patch_normalisation=True)(patches, live, masks(), SHARD)
    assert result.loss_sum.item() == pytest.approx(accurate.loss_sum.item(), rel=0.02)


@both_decoders
def test_a_rank_without_tokens_still_gives_gradients(decoder: str) -> None:
    """Only shapes here: what the ring brings from other ranks is tested with real processes."""
    shard = Shard(LAYOUT, Masking(0.25, 0), 1, range(12, 12), (12, 0), (3, 0), (9, 0))
    nothing = torch.zeros(2, 0, 64, dtype=torch.float64)
    net = model(decoder=decoder, registers=2, patch_normalisation=True)
    none = torch.zeros(2, 0, dtype=torch.int64)
    result = net(nothing, nothing.bool(), Masks(none, none), shard, lambda q, k, v, *lengths: q + k + v)
    result.loss_sum.backward()
    assert result.prediction_BMP.shape == (2, 0, 64)
    assert all(p.grad is not None and float(p.grad.abs().max()) == 0 for p in net.parameters())


@both_decoders
def test_one_process_refuses_a_shard_of_several(decoder: str) -> None:
    shard = Shard.of(TokenLayout((8, 16, 16), (4, 4, 4)), Masking(0.5, seed=0), rank=0, cp=2)
    patches = torch.zeros(1, len(shard.tokens), 64, dtype=torch.float64)
    with pytest.raises(ValueError, match="use ring attention"):
        model(decoder=decoder)(patches, patches == 0, shard.draw(0, [0]), shard)
