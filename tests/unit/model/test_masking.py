"""Tokens, strata, masks and slabs hold for any window, patch, ratio and number of ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seismic_model.model.masking import Shard, TokenLayout, patchify, unpatchify, visible_counts, visible_ids

grids = st.tuples(*[st.integers(1, 6)] * 3)
patches = st.tuples(*[st.integers(1, 3)] * 3)
layouts = st.builds(
    lambda grid, patch: TokenLayout(tuple(g * p for g, p in zip(grid, patch, strict=True)), patch), grids, patches
)
ratios = st.floats(0.001, 0.999)
seeds = st.integers(0, 2**40)
ranks = st.integers(1, 9)


@given(layouts, ranks)
def test_shards_partition_the_tokens_in_order(layout: TokenLayout, cp: int) -> None:
    assert [t for rank in range(cp) for t in layout.shard(rank, cp)] == list(range(layout.tokens))


@given(layouts, ratios, seeds, seeds, seeds, ranks)
def test_any_number_of_ranks_sees_the_same_mask(
    layout: TokenLayout, ratio: float, seed: int, epoch: int, sample: int, cp: int
) -> None:
    whole = visible_ids(layout, ratio, seed, epoch, sample, range(layout.tokens))
    parts = [visible_ids(layout, ratio, seed, epoch, sample, layout.shard(rank, cp)) for rank in range(cp)]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert sorted(set(whole.tolist())) == whole.tolist()


@given(layouts, ratios, seeds, seeds, ranks)
def test_counts_are_exact_and_the_same_for_every_crop(
    layout: TokenLayout, ratio: float, seed: int, epoch: int, cp: int
) -> None:
    counts = visible_counts(layout, ratio, seed, cp)
    assert sum(counts) == max(1, round(ratio * layout.tokens))
    for sample in range(3):
        drawn = [len(visible_ids(layout, ratio, seed, epoch, sample, layout.shard(rank, cp))) for rank in range(cp)]
        assert tuple(drawn) == counts


@given(layouts, ratios, seeds, st.data())
def test_any_run_of_tokens_sees_its_part_of_the_mask(
    layout: TokenLayout, ratio: float, seed: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, layout.tokens))
    run = range(start, data.draw(st.integers(start, layout.tokens)))
    whole = visible_ids(layout, ratio, seed, 0, 0, range(layout.tokens))
    assert visible_ids(layout, ratio, seed, 0, 0, run).tolist() == [i for i in whole.tolist() if i in run]


def test_every_neighbourhood_keeps_its_share() -> None:
    layout = TokenLayout((32, 32, 32), (4, 4, 4))
    ids = visible_ids(layout, 0.25, 0, 0, 0, range(layout.tokens))
    assert set(np.bincount(ids // 16, minlength=32).tolist()) == {4}


def test_the_largest_remainder_gets_what_is_left_over_and_ties_go_by_seed() -> None:
    short_last = TokenLayout((24, 1, 1), (1, 1, 1))  # strata of 16 and 8: 4.8 and 2.4 of 7.2
    equal = TokenLayout((32, 1, 1), (1, 1, 1))  # two of 16: 4.48 each of 8.96
    assert {visible_counts(short_last, 0.3, seed, 2) for seed in range(20)} == {(5, 2)}
    assert {visible_counts(equal, 0.28, seed, 2) for seed in range(20)} == {(5, 4), (4, 5)}


def test_masks_change_with_seed_epoch_and_sample_and_favour_no_token() -> None:
    layout = TokenLayout((8, 8, 8), (2, 2, 2))
    all_tokens = range(layout.tokens)
    first = visible_ids(layout, 0.25, 1, 1, 1, all_tokens).tolist()
    for other in ((2, 1, 1), (1, 2, 1), (1, 1, 2)):
        assert visible_ids(layout, 0.25, *other, all_tokens).tolist() != first
    drawn = np.concatenate([visible_ids(layout, 0.25, 0, 0, sample, all_tokens) for sample in range(2000)])
    share = np.bincount(drawn, minlength=layout.tokens) / 2000
    assert np.abs(share - 0.25).max() < 0.05  # five standard deviations


def test_the_mask_of_a_crop_is_fixed_for_ever() -> None:
    ids = visible_ids(TokenLayout((8, 8, 16), (4, 4, 4)), 0.3, 7, 3, 11, range(16))
    assert ids.tolist() == [3, 9, 11, 13, 14], "a resumed run would see other masks than it began with"


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
    shards = [Shard.of(layout, 0.3, 0, rank, 2) for rank in range(2)]
    assert [s.tokens for s in shards] == [range(16), range(16, 45)]
    assert shards[0].lengths == shards[1].lengths == (16, 29)
    assert shards[0].visible_lengths == visible_counts(layout, 0.3, 0, 2)


def test_wrong_sizes_are_told() -> None:
    with pytest.raises(ValueError, match=r"\(10, 8, 8\) is not a positive multiple of patch \(4, 4, 4\)"):
        TokenLayout((10, 8, 8), (4, 4, 4))
    layout = TokenLayout((8, 8, 8), (4, 4, 4))
    with pytest.raises(ValueError, match="rank 2"):
        layout.shard(2, 2)
    with pytest.raises(ValueError, match=r"shape \(8, 8, 8\); expected \(4, 8, 8\)"):
        patchify(torch.zeros(1, 8, 8, 8), layout, range(4))
