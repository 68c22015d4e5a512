"""The autoencoder scores hidden live voxels, hides the rest, and knows where its tokens are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seismic_model.config import ModelConfig
from seismic_model.model.mae import MaskedAutoencoder, Reconstruction, count_scored
from seismic_model.model.masking import Shard, TokenLayout, patchify, visible_ids

LAYOUT = TokenLayout((8, 8, 12), (4, 4, 4))  # 12 tokens
SHARD = Shard.of(LAYOUT, 0.25, seed=0)


def config(*, patch_normalisation: bool = False) -> ModelConfig:
    return ModelConfig(
        patch=LAYOUT.patch,
        width=24,
        depth=2,
        heads=2,
        decoder_width=12,
        decoder_depth=2,
        decoder_heads=2,
        patch_normalisation=patch_normalisation,
    )


def model(*, patch_normalisation: bool = False) -> MaskedAutoencoder:
    return MaskedAutoencoder(config(patch_normalisation=patch_normalisation), seed=3).double()


def visible(batch: int) -> Tensor:
    ids = [torch.from_numpy(visible_ids(LAYOUT, 0.25, 0, 0, sample, SHARD.tokens)) for sample in range(batch)]
    return torch.stack(ids)


def crops(batch: int = 2) -> tuple[Tensor, Tensor]:
    """Amplitudes and live mask as patches; the first crossline is dead."""
    generator = torch.Generator().manual_seed(0)
    volume = torch.randn(batch, *LAYOUT.window, dtype=torch.float64, generator=generator)
    live = torch.ones_like(volume, dtype=torch.bool)
    live[:, :, 0] = False
    return patchify(volume, LAYOUT, SHARD.tokens), patchify(live, LAYOUT, SHARD.tokens)


def hidden_live(live: Tensor, seen: Tensor) -> Tensor:
    expected = live.clone()
    for crop, ids in enumerate(seen.tolist()):
        expected[crop, ids] = False
    return expected


@pytest.mark.parametrize("patch_normalisation", [False, True])
def test_loss_and_count_take_hidden_live_voxels_only(patch_normalisation: bool) -> None:
    patches, live = crops()
    seen, net = visible(2), model(patch_normalisation=patch_normalisation)
    result = net(patches, live, seen, SHARD)
    counted = hidden_live(live, seen)
    assert int(result.count) == int(count_scored(live, seen)) == int(counted.sum())
    if not patch_normalisation:
        expected = (result.prediction_BLP - patches)[counted].square().sum()
        assert result.loss_sum.item() == pytest.approx(expected.item())
    # the targets: where the loss reacts to a voxel that the encoder cannot see
    targets = patches.clone().requires_grad_()
    net(targets, live, seen, SHARD).loss_sum.backward()
    reacts = targets.grad != 0
    is_seen = torch.zeros_like(live).scatter(1, seen[:, :, None].expand(-1, -1, live.shape[2]), True)
    assert torch.equal(reacts & ~is_seen, counted)


def test_the_hidden_never_reach_the_prediction() -> None:
    patches, live = crops()
    seen, net = visible(2), model(patch_normalisation=True)
    other = torch.where(hidden_live(live, seen), patches * 100 + 7, patches)
    a, b = net(patches, live, seen, SHARD), net(other, live, seen, SHARD)
    assert torch.equal(a.prediction_BLP, b.prediction_BLP)
    assert a.loss_sum.item() != b.loss_sum.item()


@pytest.mark.parametrize("fill", [float("nan"), 1e30])
def test_dead_voxels_change_nothing(fill: float) -> None:
    patches, live = crops()
    seen, net = visible(2), model(patch_normalisation=True)

    def gradients(values: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(net(values, live, seen, SHARD).loss_sum, list(net.parameters())))

    filled = gradients(torch.where(live, patches, fill))
    assert all(torch.equal(a, b) for a, b in zip(gradients(torch.where(live, patches, 0)), filled, strict=True))


def test_a_crop_without_live_voxels_has_no_loss_and_finite_gradients() -> None:
    patches, live = crops()
    net = model(patch_normalisation=True)
    result = net(patches, torch.zeros_like(live), visible(2), SHARD)
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
    net, seen = model(patch_normalisation=True), visible(2)
    assert float(net.forward_loss(patches, live, seen, output)) == pytest.approx(0, abs=1e-18)
    torch.testing.assert_close(net.amplitudes(output)[live], patches[live])
    for part in (slice(0, 1), slice(64, 65), slice(65, 66)):
        wrong = output.clone()
        wrong[..., part] += 1
        assert float(net.forward_loss(patches, live, seen, wrong)) > 1


def test_the_decoder_tells_hidden_positions_apart() -> None:
    patches, live = crops()
    seen = visible(2)
    prediction = model()(patches, live, seen, SHARD).prediction_BLP
    hidden = [t for t in range(LAYOUT.tokens) if t not in seen[0].tolist()]
    assert torch.pdist(prediction[0, hidden]).min() > 1e-3


def test_the_order_of_visible_tokens_does_not_matter() -> None:
    patches, live = crops()
    seen, net = visible(2), model()
    a, b = net(patches, live, seen, SHARD), net(patches, live, seen.flip(1), SHARD)
    torch.testing.assert_close(a.prediction_BLP, b.prediction_BLP, rtol=0, atol=1e-12)


@pytest.mark.parametrize("patch_normalisation", [False, True])
def test_the_model_learns_a_plane_wave_in_amplitude_space(patch_normalisation: bool) -> None:
    """Ten cubes of one dipping wave: hidden patches are foretold far better than by zero."""
    torch.manual_seed(0)
    i, x, z = torch.meshgrid(*(torch.arange(float(n)) for n in LAYOUT.window), indexing="ij")
    phase = torch.rand(10, 1, 1, 1) * 6.28
    patches = patchify(5 * torch.sin(0.3 * i + 0.2 * x + 0.8 * z + phase), LAYOUT, SHARD.tokens)
    live, seen = torch.ones_like(patches, dtype=torch.bool), visible(10)
    net = MaskedAutoencoder(config(patch_normalisation=patch_normalisation), seed=0)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(200):
        result = net(patches, live, seen, SHARD)
        optimiser.zero_grad()
        (result.loss_sum / result.count).backward()
        optimiser.step()
    scored = hidden_live(live, seen)
    error = (result.prediction_BLP - patches)[scored].square().mean() / patches[scored].square().mean()
    assert error.item() < 0.2


def test_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = MaskedAutoencoder(config(), seed=5).state_dict()
    torch.manual_seed(2)
    second = MaskedAutoencoder(config(), seed=5).state_dict()
    other = MaskedAutoencoder(config(), seed=6).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_precision_trains_and_sums_in_float32_or_better(dtype: torch.dtype) -> None:
    patches, live = crops()
    net = model(patch_normalisation=True).to(dtype)
    result: Reconstruction = net(patches.to(dtype), live, visible(2), SHARD)
    result.loss_sum.backward()
    assert result.loss_sum.dtype == torch.promote_types(dtype, torch.float32)
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in net.parameters())
    accurate = model(patch_normalisation=True)(patches, live, visible(2), SHARD)
    assert result.loss_sum.item() == pytest.approx(accurate.loss_sum.item(), rel=0.02)


def test_a_rank_without_tokens_still_gives_gradients() -> None:
    """Only shapes here: what the ring brings from other ranks is tested with real processes."""
    shard = Shard(LAYOUT, range(0), (0, 12), (0, 3))
    nothing = torch.zeros(2, 0, 64, dtype=torch.float64)
    net = model(patch_normalisation=True)
    result = net(
        nothing, nothing.bool(), torch.zeros(2, 0, dtype=torch.int64), shard, lambda q, k, v, *lengths: q + k + v
    )
    result.loss_sum.backward()
    assert result.prediction_BLP.shape == (2, 0, 64)
    assert all(p.grad is not None and float(p.grad.abs().max()) == 0 for p in net.parameters())


def test_one_process_refuses_a_shard_of_several() -> None:
    shard = Shard.of(TokenLayout((8, 16, 16), (4, 4, 4)), 0.5, seed=0, rank=0, cp=2)
    patches = torch.zeros(1, len(shard.tokens), 64, dtype=torch.float64)
    seen = torch.arange(shard.visible_lengths[0])[None]
    with pytest.raises(ValueError, match="use ring attention"):
        model()(patches, patches == 0, seen, shard)
