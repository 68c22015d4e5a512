"""Token order, strata, masks and slabs: one decision, in one place.

A crop of ``window`` voxels is cut into patches; tokens are the patches in C order over the patch grid
(inline, crossline, sample). Runs of ``STRATUM`` consecutive tokens are strata. A context-parallel rank
owns whole strata, and every stratum keeps a fixed number of visible and of decoded tokens, so a rank draws its
own part of the masks alone, gets equally many tokens for every crop of a batch, and any number of ranks
sees the same masks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seismic_model.config import Triple

STRATUM = 16  # tokens; a multiple of the 4 words that one Philox counter gives

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TokenLayout:
    """Tokens of one crop: id = (i * GX + x) * GZ + z on the patch grid (GI, GX, GZ).

    Raises ``ValueError`` when the patch does not divide the window.
    """

    window: Triple  # voxels
    patch: Triple  # voxels

    def __post_init__(self) -> None:
        if min(self.patch) < 1 or any(w < 1 or w % p for w, p in zip(self.window, self.patch, strict=True)):
            raise ValueError(f"window {self.window} is not a positive multiple of patch {self.patch}")

    @property
    def grid(self) -> Triple:
        """(GI, GX, GZ), patches per axis."""
        (wi, wx, wz), (pi, px, pz) = self.window, self.patch
        return (wi // pi, wx // px, wz // pz)

    @property
    def tokens(self) -> int:
        """L, tokens of the whole crop."""
        return math.prod(self.grid)

    @property
    def strata(self) -> int:
        """Strata of the whole crop; the last may be shorter than ``STRATUM``."""
        return math.ceil(self.tokens / STRATUM)

    def shard(self, rank: int, cp: int) -> range:
        """Token ids that rank ``rank`` of ``cp`` owns: whole strata, contiguous, possibly none."""
        if not 0 <= rank < cp:
            raise ValueError(f"rank {rank} is not one of {cp} context-parallel ranks; expected 0..{cp - 1}")
        first, last = (self.strata * r // cp * STRATUM for r in (rank, rank + 1))
        return range(min(first, self.tokens), min(last, self.tokens))

    def inline_slab(self, tokens: range) -> slice:
        """Voxel inlines (relative to the crop) that hold ``tokens``; an empty slice for none."""
        if not tokens:
            return slice(0, 0)
        first, last = self._planes(tokens)
        return slice(first * self.patch[0], last * self.patch[0])

    def positions(self, ids: Tensor) -> Tensor:
        """Patch-grid coordinates (i, x, z) of token ``ids`` of any shape (...): int64 (..., 3)."""
        _, gx, gz = self.grid
        return torch.stack((ids // (gx * gz), ids // gz % gx, ids % gz), dim=-1)

    def _planes(self, tokens: range) -> tuple[int, int]:
        plane = self.grid[1] * self.grid[2]
        return tokens.start // plane, math.ceil(tokens.stop / plane)


@dataclass(frozen=True)
class Masking:
    """How many tokens are visible and decoded, and the seed that says which.

    With ``keep_ratio`` 1 all are visible and none is decoded.
    """

    keep_ratio: float  # share of tokens the encoder sees, in (0, 1]
    seed: int
    decode_share: float = 1.0  # share of hidden tokens that are decoded, in (0, 1] (Wang et al. 2023, VideoMAE V2)


@dataclass(frozen=True)
class Masks:
    """What a batch of crops shows and asks for within one rank's tokens: int64 indices into L, sorted."""

    visible_BK: Tensor
    decoded_BM: Tensor  # hidden ones

    def to(self, device: torch.device) -> Masks:
        """The same on ``device``."""
        return Masks(self.visible_BK.to(device), self.decoded_BM.to(device))


@dataclass(frozen=True)
class Shard:
    """The part of every crop that one context-parallel rank holds, and how much the others hold."""

    layout: TokenLayout
    masking: Masking
    rank: int  # of the context-parallel group
    tokens: range  # own token ids
    lengths: tuple[int, ...]  # tokens of each rank
    visible_lengths: tuple[int, ...]  # visible tokens of each rank
    decoded_lengths: tuple[int, ...]  # decoded tokens of each rank

    @classmethod
    def of(cls, layout: TokenLayout, masking: Masking, rank: int = 0, cp: int = 1) -> Shard:
        """The shard of ``rank``; with ``cp=1`` the whole crop. Token counts do not depend on the crop."""
        shards = [layout.shard(r, cp) for r in range(cp)]
        visible, decoded = (
            tuple(int(counts[strata_of(tokens)].sum()) for tokens in shards)
            for counts in _stratum_counts(layout, masking)
        )
        return cls(layout, masking, rank, shards[rank], tuple(map(len, shards)), visible, decoded)

    def draw(self, epoch: int, sample_ids: Sequence[int]) -> Masks:
        """The rank's part of the masks of some crops."""
        drawn = [draw_ids(self.layout, self.masking, epoch, sample_id, self.tokens) for sample_id in sample_ids]
        visible, decoded = (torch.from_numpy(np.stack(ids) - self.tokens.start) for ids in zip(*drawn, strict=True))
        return Masks(visible, decoded)


def strata_of(tokens: range) -> slice:
    """Strata that lie in ``tokens``, the last one perhaps in part."""
    return slice(tokens.start // STRATUM, math.ceil(tokens.stop / STRATUM)) if tokens else slice(0, 0)


def draw_ids(
    layout: TokenLayout, masking: Masking, epoch: int, sample_id: int, tokens: range
) -> tuple[Int64Array, Int64Array]:
    """Sorted global ids of the visible and of the decoded tokens within ``tokens``, for one crop.

    Every token draws a random word from Philox with key (seed, epoch) and counter (token, sample id).
    In each stratum those with the smallest words are visible, and those with the next ones are decoded.
    All numbers are non-negative and below 2**64.
    """
    if not tokens:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    strata = strata_of(tokens)
    key = np.array([masking.seed, epoch], dtype=np.uint64)
    counter = np.array([strata.start * STRATUM // 4, 0, 0, sample_id], dtype=np.uint64)
    words = np.random.Philox(key=key, counter=counter).random_raw((strata.stop - strata.start) * STRATUM)
    words = words.reshape(-1, STRATUM)
    past_the_crop = max(0, strata.stop * STRATUM - layout.tokens)
    words[-1, STRATUM - past_the_crop :] = np.iinfo(np.uint64).max  # never chosen
    place = words.argsort(axis=1, kind="stable").argsort(axis=1)
    visible, decoded = (counts[strata, None] for counts in _stratum_counts(layout, masking))
    first = strata.start * STRATUM
    chosen = (
        np.flatnonzero(each) + first for each in (place < visible, (place >= visible) & (place < visible + decoded))
    )
    visible_ids, decoded_ids = (ids[(ids >= tokens.start) & (ids < tokens.stop)].astype(np.int64) for ids in chosen)
    return visible_ids, decoded_ids


def patchify(slab_BIXZ: Tensor, layout: TokenLayout, tokens: range) -> Tensor:
    """Patches (B, len(tokens), P) from the slab ``layout.inline_slab(tokens)``, full in crossline and sample."""
    expected = _slab_shape(layout, tokens)
    if slab_BIXZ.shape[1:] != expected:
        raise ValueError(f"slab of tokens {tokens} has shape {tuple(slab_BIXZ.shape[1:])}; expected {tuple(expected)}")
    batch, (pi, px, pz) = slab_BIXZ.shape[0], layout.patch
    if not tokens:
        return slab_BIXZ.reshape(batch, 0, pi * px * pz)
    _, gx, gz = layout.grid
    split = slab_BIXZ.reshape(batch, expected[0] // pi, pi, gx, px, gz, pz)
    patches_BLP = split.permute(0, 1, 3, 5, 2, 4, 6).reshape(batch, -1, pi * px * pz)
    offset = layout._planes(tokens)[0] * gx * gz
    return patches_BLP[:, tokens.start - offset : tokens.stop - offset]


def unpatchify(patches_BLP: Tensor, layout: TokenLayout, tokens: range) -> Tensor:
    """The slab (B, I, X, Z) of ``tokens``, the inverse of ``patchify``; voxels of other tokens are 0."""
    batch, (pi, px, pz) = patches_BLP.shape[0], layout.patch
    shape = _slab_shape(layout, tokens)
    if not tokens:
        return patches_BLP.new_zeros(batch, *shape)
    _, gx, gz = layout.grid
    first, last = layout._planes(tokens)
    whole_BLP = patches_BLP.new_zeros(batch, (last - first) * gx * gz, pi * px * pz)
    whole_BLP[:, tokens.start - first * gx * gz : tokens.stop - first * gx * gz] = patches_BLP
    split = whole_BLP.reshape(batch, last - first, gx, gz, pi, px, pz)
    return split.permute(0, 1, 4, 2, 5, 3, 6).reshape(batch, *shape)


def _slab_shape(layout: TokenLayout, tokens: range) -> torch.Size:
    slab = layout.inline_slab(tokens)
    return torch.Size((slab.stop - slab.start, *layout.window[1:]))


@functools.lru_cache(maxsize=16)
def _stratum_counts(layout: TokenLayout, masking: Masking) -> tuple[Int64Array, Int64Array]:
    """Visible and decoded tokens of each stratum: in all round(keep_ratio * L) and round(decode_share * hidden)."""
    lots = np.random.Generator(np.random.Philox(key=masking.seed)).random((2, layout.strata))
    sizes = np.full(layout.strata, STRATUM)
    sizes[-1] = layout.tokens - (layout.strata - 1) * STRATUM
    visible = _apportion(sizes, masking.keep_ratio, lots[0])
    decoded = _apportion(sizes - visible, masking.decode_share, lots[1])
    return visible, decoded


def _apportion(sizes: Int64Array, share: float, lots: npt.NDArray[np.float64]) -> Int64Array:
    """``share`` of each size by largest remainders, ties by lot; in all that share of the sum, at least 1 if any."""
    total = max(min(1, int(sizes.sum())), round(share * int(sizes.sum())))
    whole = np.floor(share * sizes)
    winners = np.lexsort((lots, whole - share * sizes))[: total - int(whole.sum())]
    counts: Int64Array = whole.astype(np.int64)
    counts[winners] += 1
    counts.flags.writeable = False  # shared by all callers
    return counts
