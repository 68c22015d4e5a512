"""The processes of ``test_equality`` and ``test_equality_resume``: results go to files, the tests judge them.

usage: equality_worker.py equality|resume FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from seismic_model.config import ModelConfig, RunConfig
from seismic_model.model.mae import MaskedAutoencoder, count_scored
from seismic_model.model.masking import Masking, Masks, Shard, TokenLayout, patchify
from seismic_model.parallel.attention import attention_over
from seismic_model.parallel.mesh import Mesh, open_mesh
from seismic_model.parallel.strategies import DTYPES, MOMENTS, ParameterState, Strategy, build, import_deepspeed

SEED = 5
MESHES = [(2, 1), (2, 2), (3, 3), (4, 2)]  # processes, cp
KINDS = [f"{name}-float64" for name in ("ddp", "fsdp2")] + [
    f"{name}-{precision}"
    for name in ("ddp", "zero1", "zero2", "zero3", "fsdp2", "hsdp")
    for precision in ("float32", "bfloat16")
]
PATCH = (2, 2, 4)


@dataclass(frozen=True)
class Case:
    """One training step that must come out the same on any number of processes."""

    name: str
    grid: tuple[int, int, int]
    keep_ratio: float
    accumulation: int
    patch_normalisation: bool = False
    live: bool = True

    @property
    def layout(self) -> TokenLayout:
        window = tuple(g * p for g, p in zip(self.grid, PATCH, strict=True))
        return TokenLayout((window[0], window[1], window[2]), PATCH)

    def config(self, strategy: str, precision: str, cp: int) -> RunConfig:
        """First moments equal gradients after one step: no momentum, no clipping."""
        return RunConfig.model_validate(
            {
                "lake": "unused",
                "run": "equality",
                "dataset": "unused",
                "dataset_sha256": "0" * 64,
                "model": ModelConfig(
                    patch=PATCH,
                    width=24,
                    depth=3,
                    heads=2,
                    decoder_width=16,
                    decoder_depth=2,
                    decoder_heads=2,
                    patch_normalisation=self.patch_normalisation,
                ),
                "window": self.layout.window,
                "keep_ratio": self.keep_ratio,
                "steps": 10,
                "batch": 12,
                "accumulation": self.accumulation,
                "betas": (0.0, 0.95),
                "gradient_clip": 1e9,
                "strategy": strategy,
                "precision": precision,
                "cp": cp,
            }
        )


CASES = [
    Case("even", (4, 4, 6), 0.25, accumulation=1),
    Case("uneven", (3, 3, 5), 0.3, accumulation=3, patch_normalisation=True),
    Case("rank-without-tokens", (1, 2, 5), 0.5, accumulation=3),
    Case("rank-without-visible-tokens", (4, 4, 4), 0.03, accumulation=1),
    Case("nothing-live", (3, 3, 5), 0.3, accumulation=1, patch_normalisation=True, live=False),
]


def crop(case: Case, step: int, index: int) -> tuple[Tensor, Tensor]:
    """Amplitudes and live mask of one crop, float64; some traces are dead, in crop 0 all of them."""
    generator = torch.Generator().manual_seed(1000 * step + index)
    volume = torch.randn(case.layout.window, dtype=torch.float64, generator=generator)
    live = torch.rand(case.layout.window[:2], generator=generator) > 0.2
    if not case.live or index == 0:
        live[:] = False
    live_IXZ = live[:, :, None].expand(volume.shape)
    return torch.where(live_IXZ, volume, float("nan")), live_IXZ


def batch(case: Case, shard: Shard, step: int, indices: range) -> tuple[Tensor, Tensor, Masks]:
    """Patches, live mask and masks of some crops, as one rank sees them."""
    slab = case.layout.inline_slab(shard.tokens)
    pairs = [crop(case, step, index) for index in indices]
    patches, live = (
        patchify(torch.stack([pair[which] for pair in pairs])[:, slab], case.layout, shard.tokens) for which in (0, 1)
    )
    return patches, live, shard.draw(step, indices)


def one_step(
    strategy: Strategy,
    case: Case,
    mesh: Mesh,
    dtype: torch.dtype,
    step: int,
    poison: float = 1.0,
    learning_rate: float = 1e-3,
) -> tuple[float, float]:
    """Train on 12 crops spread over micro-batches and data-parallel ranks: mean loss and gradient norm."""
    shard = Shard.of(case.layout, Masking(case.keep_ratio, SEED), mesh.cp_rank, mesh.cp)
    size = 12 // (case.accumulation * mesh.dp)
    starts = [(micro * mesh.dp + mesh.dp_rank) * size for micro in range(case.accumulation)]
    micro_batches = [batch(case, shard, step, range(start, start + size)) for start in starts]
    counts = [count_scored(live, seen) for _, live, seen in micro_batches]
    count = mesh.total(torch.stack(counts).sum())
    loss_sum = torch.zeros((), dtype=torch.float64)
    for patches, live, seen in micro_batches:
        result = strategy.model(patches.to(dtype), live, seen, shard, attention_over(mesh))
        strategy.backward(result.loss_sum * poison, count)
        loss_sum += result.loss_sum.detach()
    norm = strategy.step(learning_rate)
    return float(mesh.total(loss_sum) / count.clamp(min=1)), norm


def states_of(strategy: Strategy) -> dict[str, Tensor]:
    """All weights and moments under flat names, for safetensors."""
    flat = {}
    for name, state in strategy.states():
        for part in ("weight", *MOMENTS):
            flat[f"{name}:{part}"] = getattr(state, part)
    return flat


def load_states(path: Path) -> dict[str, ParameterState]:
    """What ``states_of`` gave, by parameter name."""
    flat = load_file(path)
    names = {key.rpartition(":")[0] for key in flat}
    return {name: ParameterState(*(flat[f"{name}:{part}"] for part in ("weight", *MOMENTS))) for name in names}


def equality(mesh: Mesh, out: Path) -> None:
    for case in CASES:
        for strategy_name, precision in (("ddp", "float64"), ("zero2", "float32")):
            config = case.config(strategy_name, precision, mesh.cp)
            strategy = build(MaskedAutoencoder(config.model, SEED), config, mesh)
            loss, norm = one_step(strategy, case, mesh, DTYPES[precision], step=0)
            results = states_of(strategy) | {
                "loss": torch.tensor(loss, dtype=torch.float64),
                "norm": torch.tensor(norm, dtype=torch.float64),
            }
            if mesh.rank == 0:
                save_file(results, out / f"{case.name}-{strategy_name}.safetensors")


def resume(mesh: Mesh, out: Path, start: Path | None) -> None:
    """Steps 0 to 3 with a poisoned one in between; or, given a folder, steps 2 and 3 from its states."""
    case = replace(CASES[1], accumulation=2)
    for kind in KINDS:
        strategy_name, precision = kind.split("-")
        config = case.config(strategy_name, precision, mesh.cp).model_copy(
            update={"betas": (0.9, 0.95), "gradient_clip": 0.5}
        )
        strategy = build(MaskedAutoencoder(config.model, SEED), config, mesh)
        begin = 0
        if start:
            begin = 2
            strategy.load(load_states(start / f"{kind}-2.safetensors"), applied_steps=2)
        for step in range(begin, 4):
            one_step(strategy, case, mesh, DTYPES[precision], step, learning_rate=1e-2 / (step + 1))
            if step == 0:
                poison = float("inf") if mesh.rank == 1 else 1.0
                _, norm = one_step(strategy, case, mesh, DTYPES[precision], 9, poison)
                assert norm in (float("inf"), -1.0) or norm != norm, norm
                assert strategy.applied_steps == 1
            states = states_of(strategy)
            if mesh.rank == 0:
                save_file(states, out / f"{kind}-{step + 1}.safetensors")
        assert strategy.applied_steps == 4


def launch(processes: int, cp: int, job: Callable[..., None], *arguments: object) -> None:
    """Run ``job(mesh, …)`` in real processes as torchrun starts them, forked so that they need not import again."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=f"{job.__name__}-{processes}-{cp}",
        max_restarts=0,
        start_method="fork",
    )
    elastic_launch(config, _in_mesh)(cp, job, *arguments)


def _in_mesh(cp: int, job: Callable[..., None], *arguments: object) -> None:
    with open_mesh(cp) as mesh:
        os.environ["LOCAL_WORLD_SIZE"] = str(1 + mesh.world // 3)  # as if these were several nodes
        job(mesh, *arguments)


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    import_deepspeed(torch.device("cpu"))
    torch.optim.AdamW([torch.zeros(1)])  # imports what it needs, seconds that forked processes are spared
    if what == "equality":
        for processes, cp in MESHES:
            out = folder / f"dp{processes // cp}-cp{cp}"
            out.mkdir()
            launch(processes, cp, equality, out)
    else:
        for run in ("uninterrupted", "resumed"):
            (folder / run).mkdir()
            launch(2, 2, resume, folder / run, folder / "uninterrupted" if run == "resumed" else None)


if __name__ == "__main__":
    main()
