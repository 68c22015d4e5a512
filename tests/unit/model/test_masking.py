"""Tokens, strata, masks and slabs hold for any window, patch, ratio and number of ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seismic_model.model.masking import Masking, Shard, TokenLayout, draw_ids, patchify, unpatchify

grids = st.tuples(*[st.integers(1, 6)] * 3)
patches = st.tuples(*[st.integers(1, 3)] * 3)
layouts = st.builds(
    lambda grid, patch: TokenLayout(tuple(g * p for g, p in zip(grid, patch, strict=True)), patch), grids, patches
)
ratios = st.floats(0.001, 0.999)
seeds = st.integers(0, 2**40)
ranks = st.integers(1, 9)
maskings = st.builds(Masking, ratios, seeds, st.floats(0.001, 1))


@given(layouts, ranks)
def test_shards_partition_the_tokens_in_order(layout: TokenLayout, cp: int) -> None:
    assert [t for rank in range(cp) for t in layout.shard(rank, cp)] == list(range(layout.tokens))


@given(layouts, maskings, seeds, seeds, ranks)
def test_any_number_of_ranks_sees_the_same_masks(
    layout: TokenLayout, masking: Masking, epoch: int, sample: int, cp: int
) -> None:
    whole = draw_ids(layout, masking, epoch, sample, range(layout.tokens))
    parts = [draw_ids(layout, masking, epoch, sample, layout.shard(rank, cp)) for rank in range(cp)]
    for ids, part in zip(whole, zip(*parts, strict=True), strict=True):
        assert np.concatenate(part).tolist() == ids.tolist() == sorted(set(ids.tolist()))
    assert not set(whole[0]) & set(whole[1])


@given(layouts, maskings, seeds, ranks)
def test_counts_are_exact_and_the_same_for_every_crop(
    layout: TokenLayout, masking: Masking, epoch: int, cp: int
) -> None:
    shards = [Shard.of(layout, masking, rank, cp) for rank in range(cp)]
    visible = max(1, round(masking.keep_ratio * layout.tokens))
    hidden = layout.tokens - visible
    assert sum(shards[0].visible_lengths) == visible
    assert sum(shards[0].decoded_lengths) == max(min(1, hidden), round(masking.decode_share * hidden))
    for shard in shards:
        masks = shard.draw(epoch, range(3))
        assert masks.visible_BK.shape == (3, shard.visible_lengths[shard.rank])
        assert masks.decoded_BM.shape == (3, shard.decoded_lengths[shard.rank])
        assert (shard.lengths, shard.visible_lengths) == (shards[0].lengths, shards[0].visible_lengths)
        for ids in (masks.visible_BK, masks.decoded_BM):
            assert bool(((ids >= 0) & (ids < len(shard.tokens))).all())


@given(layouts, ratios, seeds)
def test_with_all_hidden_tokens_decoded_every_token_is_one_or_the_other(
    layout: TokenLayout, ratio: float, seed: int
) -> None:
    visible, decoded = draw_ids(layout, Masking(ratio, seed), 0, 0, range(layout.tokens))
    assert sorted([*visible.tolist(), *decoded.tolist()]) == list(range(layout.tokens))


@given(layouts, maskings, st.data())
def test_any_run_of_tokens_sees_its_part_of_the_masks(
    layout: TokenLayout, masking: Masking, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, layout.tokens))
    run = range(start, data.draw(st.integers(start, layout.tokens)))
    whole = draw_ids(layout, masking, 0, 0, range(layout.tokens))
    for part, ids in zip(draw_ids(layout, masking, 0, 0, run), whole, strict=True):
        assert part.tolist() == [i for i in ids.tolist() if i in run]


def test_every_neighbourhood_keeps_its_share() -> None:
    layout = TokenLayout((32, 32, 32), (4, 4, 4))
    visible, decoded = draw_ids(layout, Masking(0.25, 0, 0.5), 0, 0, range(layout.tokens))
    assert set(np.bincount(visible // 16, minlength=32).tolist()) == {4}
    assert set(np.bincount(decoded // 16, minlength=32).tolist()) == {6}


def test_the_largest_remainder_gets_what_is_left_over_and_ties_go_by_seed() -> None:
    short_last = TokenLayout((24, 1, 1), (1, 1, 1))  # strata of 16 and 8: 4.8 and 2.4 of 7.2
    equal = TokenLayout((32, 1, 1), (1, 1, 1))  # two of 16: 4.48 each of 8.96
    assert {Shard.of(short_last, Masking(0.3, seed), 0, 2).visible_lengths for seed in range(20)} == {(5, 2)}
    assert {Shard.of(equal, Masking(0.28, seed), 0, 2).visible_lengths for seed in range(20)} == {(5, 4), (4, 5)}


def test_masks_change_with_seed_epoch_and_sample_and_favour_no_token() -> None:
    layout = TokenLayout((8, 8, 8), (2, 2, 2))
    all_tokens = range(layout.tokens)
    first = draw_ids(layout, Masking(0.25, 1), 1, 1, all_tokens)[0].tolist()
    for seed, epoch, sample in ((2, 1, 1), (1, 2, 1), (1, 1, 2)):
        assert draw_ids(layout, Masking(0.25, seed), epoch, sample, all_tokens)[0].tolist() != first
    drawn = [draw_ids(layout, Masking(0.25, 0, 0.5), 0, sample, all_tokens) for sample in range(2000)]
    for ids, expected in zip(zip(*drawn, strict=True), (0.25, 0.375), strict=True):
        share = np.bincount(np.concatenate(ids), minlength=layout.tokens) / 2000
        assert np.abs(share - expected).max() < 0.055  # five standard deviations


def test_the_mask_of_a_crop_is_fixed_for_ever() -> None:
    visible, decoded = draw_ids(TokenLayout((8, 8, 16), (4, 4, 4)), Masking(0.3, 7, 0.4), 3, 11, range(16))
    why = "a resumed run would see other masks than it began with"
    assert visible.tolist() == [3, 9, 11, 13, 14], why
    assert decoded.tolist() == [2, 4, 5, 7], why


@given(layouts, st.data())
def test_a_slab_holds_its_tokens_and_patches_come_back(layout: TokenLayout, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, layout.tokens))
    tokens = range(start, data.draw(st.integers(start, layout.tokens)))
    volume_BIXZ = torch.arange(1, 2 * math.prod(layout.window) + 1).reshape(2, *layout.window)
    slab = volume_BIXZ[:, layout.inline_slab(tokens)]

    patches_BLP = patchify(slab, layout, tokens)

    for local, token in enumerate(tokens):
        corner = layout.positions(torch.tensor(token)) * torch.tensor(layout.patch)
        i, x, z = (slice(int(c), int(c) + p) for c, p in zip(corner, layout.patch, strict=True))
        assert torch.equal(patches_BLP[:, local], volume_BIXZ[:, i, x, z].flatten(1))
    back = unpatchify(patches_BLP, layout, tokens)
    assert back.shape == slab.shape
    assert torch.equal(back[back != 0], slab[back != 0])
    assert int((back != 0).sum()) == 2 * len(tokens) * math.prod(layout.patch)


def test_token_order_is_c_order_over_the_patch_grid() -> None:
    layout = TokenLayout((4, 6, 10), (2, 2, 2))
    expected = [(i, x, z) for i in range(2) for x in range(3) for z in range(5)]
    assert [tuple(p) for p in layout.positions(torch.arange(30)).tolist()] == expected


def test_a_shard_knows_what_the_other_ranks_hold() -> None:
    layout = TokenLayout((3, 3, 5), (1, 1, 1))
    shards = [Shard.of(layout, Masking(0.3, 0), rank, 2) for rank in range(2)]
    assert [s.tokens for s in shards] == [range(16), range(16, 45)]
    assert shards[0].lengths == shards[1].lengths == (16, 29)


def test_wrong_sizes_are_told() -> None:
    with pytest.raises(ValueError, match=r"\(10, 8, 8\) is not a positive multiple of patch \(4, 4, 4\)"):
        TokenLayout((10, 8, 8), (4, 4, 4))
    layout = TokenLayout((8, 8, 8), (4, 4, 4))
    with pytest.raises(ValueError, match="rank 2"):
        layout.shard(2, 2)
    with pytest.raises(ValueError, match=r"shape \(8, 8, 8\); expected \(4, 8, 8\)"):
        patchify(torch.zeros(1, 8, 8, 8), layout, range(4))
