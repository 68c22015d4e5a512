"""Attention of the ranks that share a crop: all-to-all of heads inside, a ring outside.

With ulysses = 1 it is a ring, with ulysses = cp it is an exchange of heads. Heads that are exchanged lie on
neighbouring ranks, so on one node; the ring spans the rest, with blocks of ``ulysses`` times as many tokens.
"""

from __future__ import annotations

from torch import Tensor

from seismic_model.model.vit import Attention, Lengths, full_attention
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.ring_attention import ring_attention
from seismic_model.parallel.ulysses import HeadExchange


def attention_over(mesh: Mesh) -> Attention:
    """The attention of ranks that share a crop; every rank of the group has to call it, even with no tokens."""
    if mesh.cp == 1:
        return full_attention
    exchange = HeadExchange(mesh.ulysses_group, mesh.waiting)
    ring_rank = mesh.cp_rank // mesh.ulysses

    def attend(q_BHND: Tensor, k_BHMD: Tensor, v_BHMD: Tensor, q_lengths: Lengths, kv_lengths: Lengths) -> Tensor:
        if not len(q_lengths) == len(kv_lengths) == mesh.cp:
            raise ValueError(f"lengths {q_lengths} and {kv_lengths} are not of cp={mesh.cp} ranks")
        found, expected = (q_BHND.shape[2], k_BHMD.shape[2]), (q_lengths[mesh.cp_rank], kv_lengths[mesh.cp_rank])
        if found != expected:
            raise ValueError(f"rank {mesh.cp_rank} holds {found} queries and keys; their lengths say {expected}")
        if mesh.ulysses == 1:
            return ring_attention(q_BHND, k_BHMD, v_BHMD, kv_lengths, mesh.ring_group, mesh.waiting)
        own_q, own_kv = (_by_ring_rank(lengths, mesh.ulysses)[ring_rank] for lengths in (q_lengths, kv_lengths))
        q_BHND = exchange.to_heads(q_BHND, own_q)
        k_BHMD, v_BHMD = (exchange.to_heads(x, own_kv) for x in (k_BHMD, v_BHMD))
        ring_lengths = tuple(sum(lengths) for lengths in _by_ring_rank(kv_lengths, mesh.ulysses))
        mixed_BHND = ring_attention(q_BHND, k_BHMD, v_BHMD, ring_lengths, mesh.ring_group, mesh.waiting)
        return exchange.to_tokens(mixed_BHND, own_q)

    return attend


def _by_ring_rank(lengths: Lengths, ulysses: int) -> list[Lengths]:
    """Tokens of the ranks that exchange heads, for each rank of the ring."""
    return [lengths[start : start + ulysses] for start in range(0, len(lengths), ulysses)]
