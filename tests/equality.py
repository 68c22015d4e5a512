"""What the processes of the equality tests do: training steps of a small model, and how far they are from one process.

Without momentum and clipping AdamW's first moments after one step are the gradients, whatever the strategy.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seismic_model.config import ModelConfig, RunConfig
from seismic_model.model.mae import MaskedAutoencoder, count_scored
from seismic_model.model.masking import Masking, Masks, Shard, TokenLayout, patchify
from seismic_model.model.vit import full_attention
from seismic_model.parallel.attention import attention_over
from seismic_model.parallel.mesh import Mesh, arrange
from seismic_model.parallel.strategies import DTYPES, ParameterState, Strategy, build

CROPS = 6  # of a step
PATCH = (2, 2, 4)
SEED = 5
EXACT = ["ddp-float64", "fsdp2-float64"]
ROUNDED = [f"{name}-float32" for name in ("ddp", "zero1", "zero2", "zero3", "fsdp2", "hsdp")]
LINEAR = torch.nn.functional.linear
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}

State = dict[str, dict[str, NDArray[np.float64]]]  # by parameter and part


@dataclass(frozen=True)
class Layout:
    """How all processes of a crew are arranged; dp is what is left."""

    cp: int
    ulysses: int = 1


@dataclass(frozen=True)
class Case:
    """One training step that must come out the same on any number of processes."""

    grid: tuple[int, int, int]
    keep_ratio: float
    accumulation: int = 1
    decoder: str = "self"
    decode_share: float = 1.0
    registers: int = 0
    patch_normalisation: bool = False
    activation_checkpointing: str = "none"
    live: bool = True

    @property
    def layout(self) -> TokenLayout:
        window = tuple(g * p for g, p in zip(self.grid, PATCH, strict=True))
        return TokenLayout((window[0], window[1], window[2]), PATCH)

    def shard(self, rank: int = 0, cp: int = 1) -> Shard:
        return Shard.of(self.layout, Masking(self.keep_ratio, SEED, self.decode_share), rank, cp)

    def config(self, kind: str, layout: Layout, **changes: object) -> RunConfig:
        strategy, precision = kind.split("-")
        model = {
            "patch": PATCH,
            "width": 24,
            "depth": 2,
            "heads": 4,
            "decoder_width": 24,
            "decoder_depth": 2,
            "decoder_heads": 4,
            "decoder": self.decoder,
            "registers": self.registers,
            "patch_normalisation": self.patch_normalisation,
        }
        run = {
            "lake": "unused",
            "run": "equality",
            "dataset": "unused",
            "dataset_sha256": "0" * 64,
            "model": ModelConfig.model_validate(model),
            "window": self.layout.window,
            "keep_ratio": self.keep_ratio,
            "decode_share": self.decode_share,
            "steps": 10,
            "batch": CROPS,
            "accumulation": self.accumulation,
            "betas": (0.0, 0.95),
            "gradient_clip": 1e30,  # none: a lone dead patch has a gradient of 1e14
            "strategy": strategy,
            "precision": precision,
            "cp": layout.cp,
            "ulysses": layout.ulysses,
            "activation_checkpointing": self.activation_checkpointing,
        }
        return RunConfig.model_validate(run | changes)


@dataclass(frozen=True)
class Errors:
    """Largest relative differences from plain autograd of one process in float64."""

    loss: float
    norm: float
    gradient: float  # over the largest value of the parameter's gradient, at least a hundredth of the norm
    worst: str  # its name

    @property
    def largest(self) -> float:
        return float(np.max([self.loss, self.norm, self.gradient]))  # NaN, if any is


def batch(case: Case, shard: Shard, step: int, indices: range) -> tuple[Tensor, Tensor, Masks]:
    """Patches, live mask and masks of some crops, as one rank sees them. Some traces are dead, in crop 0 all."""
    slab, volumes, masks = case.layout.inline_slab(shard.tokens), [], []
    for index in indices:
        generator = torch.Generator().manual_seed(1000 * step + index)
        volume = torch.randn(case.layout.window, dtype=torch.float64, generator=generator)
        live = torch.rand(case.layout.window[:2], generator=generator) > 0.2
        live &= case.live and index > 0
        live_IXZ = live[:, :, None].expand(volume.shape)
        volumes.append(torch.where(live_IXZ, volume, float("nan"))[slab])
        masks.append(live_IXZ[slab])
    patches, live = (patchify(torch.stack(each), case.layout, shard.tokens) for each in (volumes, masks))
    return patches, live, shard.draw(step, indices)


def one_process(case: Case) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients by plain autograd in float64."""
    model = MaskedAutoencoder(case.config(EXACT[0], Layout(1)).model, SEED).double()
    shard = case.shard()
    result = model(*batch(case, shard, 0, range(CROPS)), shard, full_attention)
    loss = result.loss_sum / result.count.clamp(min=1)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def start(config: RunConfig, mesh: Mesh) -> Strategy:
    """A strategy with fresh weights, as a process of its own would have it."""
    torch.nn.functional.linear = LINEAR  # ZeRO-3 puts its own there, for all that follows
    rank, world = str(mesh.rank), str(mesh.world)
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world}  # as torchrun does, for DeepSpeed
    os.environ["LOCAL_WORLD_SIZE"] = "2" if mesh.world % 2 == 0 else "1"  # for hsdp: as if these were several nodes
    return build(MaskedAutoencoder(config.model, SEED, config.activation_checkpointing), config, mesh)


def one_step(
    strategy: Strategy,
    case: Case,
    config: RunConfig,
    step: int = 0,
    poison: float = 1.0,
    learning_rate: float = 1e-3,
) -> tuple[float, float]:
    """Train on crops spread over micro-batches and data-parallel ranks: mean loss and gradient norm."""
    mesh = strategy.mesh
    shard = case.shard(mesh.cp_rank, mesh.cp)
    size = CROPS // (case.accumulation * mesh.dp)
    firsts = [(micro * mesh.dp + mesh.dp_rank) * size for micro in range(case.accumulation)]
    micro_batches = [batch(case, shard, step, range(first, first + size)) for first in firsts]
    count = mesh.total(torch.stack([count_scored(live, masks) for _, live, masks in micro_batches]).sum())
    loss_sum = torch.zeros((), dtype=torch.float64)
    for patches, live, masks in micro_batches:
        result = strategy.model(patches.to(DTYPES[config.precision]), live, masks, shard, attention_over(mesh))
        strategy.backward(result.loss_sum * poison, count)
        loss_sum += result.loss_sum.detach()
    norm = strategy.step(learning_rate)
    return float(mesh.total(loss_sum) / count.clamp(min=1)), norm


@cache
def mesh_of(layout: Layout) -> Mesh:
    return arrange(layout.cp, layout.ulysses, torch.device("cpu"))


def equality(case: Case, layout: Layout, kinds: list[str]) -> dict[str, Errors]:
    """How far one step under each strategy and precision is from one process; rank 0 knows."""
    mesh = mesh_of(layout)
    expected = one_process(case) if mesh.rank == 0 else None
    errors = {}
    for kind in kinds:
        config = case.config(kind, layout)
        strategy = start(config, mesh)
        loss, norm = one_step(strategy, case, config)
        states = {name: strategy.gather(name, 0) for name in strategy.shapes}
        if expected:
            errors[kind] = _errors(loss, norm, states, *expected)
    return errors


def _errors(
    loss: float, norm: float, states: dict[str, ParameterState], expected: float, gradients: dict[str, Tensor]
) -> Errors:
    whole = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients.values()))
    differences = {}
    for name, gradient in gradients.items():
        difference = float((states[name].exp_avg - gradient).abs().max())
        # some gradients cancel to nothing but rounding, as those of queries do where there is one key
        differences[name] = difference / max(float(gradient.abs().max()), whole / 100) if difference else 0.0
    worst = list(differences)[int(np.argmax(list(differences.values())))]  # NaN before any number
    return Errors(
        abs(loss - expected) / (expected or 1.0), abs(norm - whole) / (whole or 1.0), differences[worst], worst
    )


def walk(case: Case, layout: Layout, kind: str, begin: int = 0, state: State | None = None) -> list[State]:
    """What rank 0 gathers after each step from ``begin`` to 3, with momentum, clipping and averaged weights.

    After step 0 comes one with an infinite gradient in the last rank, which must change nothing.
    """
    mesh = mesh_of(layout)
    config = case.config(kind, layout, betas=(0.9, 0.95), gradient_clip=0.5, ema_decay=0.9)
    strategy = start(config, mesh)
    if begin:
        for name in strategy.shapes:
            parts = {key: torch.from_numpy(value) for key, value in state[name].items()} if state else {}
            strategy.scatter(name, 0, ParameterState(**parts) if mesh.rank == 0 else None)
        strategy.finish_load(begin)
    states = []
    for step in range(begin, 4):
        one_step(strategy, case, config, step, learning_rate=1e-2 / (step + 1))
        if step == 0:
            poison = float("inf") if mesh.rank == mesh.world - 1 else 1.0
            _, norm = one_step(strategy, case, config, 9, poison)
            assert not math.isfinite(norm), norm
        assert strategy.applied_steps == step + 1
        gathered = {name: strategy.gather(name, 0) for name in strategy.shapes}
        if mesh.rank == 0:
            states.append({name: {k: v.numpy() for k, v in vars(each).items()} for name, each in gathered.items()})
    return states
