"""Bytes that the blocks of a stack hold on one GPU: until their turn in backward comes, and in it.

The unit is tokens × width × bytes of a number. What the model's own autograd functions keep and make stands in
``model/layers.py`` and ``parallel/``; the sums here are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seismic_model.config import Checkpointing
from seismic_model.planner.flops import MLP_RATIO

MLP_KEPT = 5  # units: its input, and its four times as wide hidden layer
MLP_BACKWARD = 7  # units: gradients of its output, hidden layer, that layer's input before and behind the norm


@dataclass(frozen=True)
class Stack:
    """The blocks of encoder or decoder."""

    queries: int  # own tokens
    keys: int
    width: int
    heads: int
    depth: int
    cross: bool
    number: int  # bytes
    checkpointing: Checkpointing
    ring: int
    ulysses: int

    @property
    def kept(self) -> float:
        """What a block keeps until its turn in backward comes."""
        match self.checkpointing:
            case "none":
                return self._before + self._mixed + MLP_KEPT * self._unit
            case "selective":
                return self._unit + self._mixed
            case "full":
                return self._unit

    def turns(self, scratch: int) -> Iterator[dict[str, float]]:
        """A block in backward: in its MLP, its attention and its projections; what it kept included.

        ``scratch`` is what attention's kernel takes for itself.
        """
        later = self._key_unit if self.cross else 0.0  # gradient of the visible tokens, from the blocks behind
        mlp = self._before + self._mixed + (MLP_KEPT + MLP_BACKWARD) * self._unit
        yield {"block in backward": later + mlp, "gradients": self._matrices(2 * MLP_RATIO)}

        before = self._unit if self.checkpointing == "selective" else self._before
        mixed = self._mixed - (self._unit if self.ulysses > 1 else 0)  # the output as tokens have it is gone
        gradients = 2 * self._unit + self._qkv  # of the sum behind attention, the output, q, k and v
        yield {"block in backward": later + before + mixed + gradients, "attention hops": self._hops + scratch}

        gradients = self._unit + self._qkv
        yield {
            "block in backward": later + self._unit + self._lengths + self._qkv + gradients + self._projecting,
            "gradients": self._matrices(2 if self.cross else 3),
        }

    @property
    def _unit(self) -> float:
        """Of queries."""
        return self.queries * self.width * self.number

    @property
    def _key_unit(self) -> float:
        """Of keys."""
        return self.keys * self.width * self.number

    @property
    def _qkv(self) -> float:
        return self._unit + 2 * self._key_unit

    @property
    def _lengths(self) -> float:
        """Of queries and keys before they were normalised."""
        return 4 * self.heads * (self.queries + self.keys)

    @property
    def _before(self) -> float:
        """The block's input, and what is kept of q, k and v before heads are exchanged."""
        return self._unit + self._lengths + (self._qkv if self.ulysses > 1 else 0)

    @property
    def _mixed(self) -> float:
        """What attention keeps: q, k, v, log-sum-exp, and its output, before and after heads are exchanged."""
        return self._qkv + 4 * self.heads * self.queries + (2 if self.ulysses > 1 else 1) * self._unit

    @property
    def _hops(self) -> float:
        """Keys and values that pass by on the ring, and what is added up in float32."""
        if self.ring == self.ulysses == 1:
            return 0.0
        passing = 2 * min(self.ring - 1, 2)  # keys and values of others, here and coming
        added_up = 2 * min(self.ring, 2)  # their gradients, here and coming
        return passing * self._key_unit + 4 / self.number * (self._unit + added_up * self._key_unit)

    @property
    def _projecting(self) -> float:
        """Gradients side by side, and either one of them in float32 or what goes through the norm."""
        turned, whole = (self._key_unit, 2 * self._key_unit) if self.cross else (self._unit, self._qkv)
        if self.number == 4:
            return whole + 2 * turned
        return whole + (4 if self.cross else 5) * 4 / self.number * turned

    def _matrices(self, count: int) -> float:
        """Gradients of weights that a function gives at once."""
        return count * self.width**2 * self.number
