"""Does a training run take what ``sfm plan`` says?

    python -m benchmarks.planner [--json]

FLOPs: those that PyTorch counts in forward and backward of the real model, beside those of the planner; also spread
over processes, where the counts of all are added. Memory: what the CPU allocator holds at the worst moment of one whole
training step (model, strategy, forward, backward, optimiser) in the fullest process, beside the planner's sum for the
CPU's operators. Rows say which configurations were looked at while the planner was written ("derived") and which were
chosen before and only measured after ("held out"); goals count the latter. Published: what is public of the system
that this one follows, beside what the planner makes of it. No GPU is needed, and none is judged.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from benchmarks.common import CannotMeasureError, Goal, Measured, run, say
from benchmarks.crew import Crew, CrewError
from benchmarks.memory import peak_memory
from seismic_model.config import MODEL_SIZES, ModelConfig, RunConfig
from seismic_model.model.mae import MaskedAutoencoder
from seismic_model.model.masking import Masking, Shard, TokenLayout
from seismic_model.parallel import strategies
from seismic_model.parallel.attention import attention_over
from seismic_model.parallel.mesh import Mesh, arrange
from seismic_model.planner.flops import Tokens, tokens_of, work_of
from seismic_model.planner.layout import Layout, Precision
from seismic_model.planner.memory import memory_of
from seismic_model.planner.parameters import parameters_of

FLOP_GOAL, MEMORY_GOAL = 0.02, 0.15  # largest error, as a share of what was measured

aten = torch.ops.aten

OF_A_SIZE = {
    name: size.model_copy(update={"decoder": "self", "reference_spacing": None}) for name, size in MODEL_SIZES.items()
}


def _forward(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(q, k, v)  # type: ignore[no-any-return, no-untyped-call]


def _backward(grad: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(grad, q, k, v)  # type: ignore[no-any-return, no-untyped-call]


COUNTED_TOO = {  # the counter knows CUDA's fused attention only; it hands over shapes
    aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
}

# bytes that the CPU's attention takes for itself in backward, the same for all shapes with 768 tokens or more
SCRATCH: dict[Precision, int] = {"float32": 1_049_600, "bfloat16": 1_742_980}


@dataclass(frozen=True)
class Case:
    """One training configuration, in ``world`` processes."""

    config: RunConfig
    world: int
    looked_at: bool  # while the planner was written

    @property
    def layout(self) -> Layout:
        """As the planner knows it."""
        c = self.config
        groups = self.world // c.cp
        return Layout(
            gpus=self.world,
            node=self.world,
            ring=c.cp // c.ulysses,
            ulysses=c.ulysses,
            strategy=c.strategy,
            checkpointing=c.activation_checkpointing,
            precision="bfloat16" if c.precision == "bfloat16" else "float32",
            crops=c.batch // groups // c.accumulation,
            accumulation=c.accumulation,
        )

    @property
    def tokens(self) -> Tokens:
        """Of one crop."""
        c = self.config
        return tokens_of(c.model, c.window, c.keep_ratio, c.decode_share)

    @property
    def name(self) -> str:
        """Short, for tables."""
        c = self.config
        m = c.model
        return (
            f"{m.width}x{m.depth}/{m.decoder_width}x{m.decoder_depth} {m.decoder}, {self.tokens.whole} tokens, "
            f"keep {c.keep_ratio:g}, share {c.decode_share:g}, {c.activation_checkpointing}, {c.precision}, "
            f"{c.strategy}, {self.world} = dp {self.world // c.cp} x ring {c.cp // c.ulysses} x ulysses {c.ulysses}"
        )


def case(model: ModelConfig, edge: int, world: int = 1, *, looked_at: bool = False, **settings: Any) -> Case:
    """A window of edge × edge × 2 edge patches; one crop a group unless ``batch`` says otherwise."""
    i, x, z = (n * p for n, p in zip((edge, edge, 2 * edge), model.patch, strict=True))
    groups = world // settings.get("cp", 1)
    named = {"lake": "file:///nowhere", "run": "planner", "dataset": "none", "dataset_sha256": "0" * 64, "steps": 1}
    plain = {"model": model, "window": (i, x, z), "batch": groups, "strategy": "ddp"}
    config = RunConfig.model_validate(named | plain | settings)
    return Case(config, world, looked_at)


def model(width: int, depth: int, heads: int, decoding: tuple[int, int, int], **more: Any) -> ModelConfig:
    """With patches of 4 × 4 × 4 and a decoder over all tokens unless told otherwise."""
    named = dict(zip(("decoder_width", "decoder_depth", "decoder_heads"), decoding, strict=True))
    plain = {"patch": (4, 4, 4), "decoder": "self", "width": width, "depth": depth, "heads": heads}
    return ModelConfig.model_validate(plain | named | more)


def flop_cases() -> list[Case]:
    """Both decoders, all kinds of recomputation, several sizes, and spread over processes."""
    plain, small = model(96, 3, 4, (48, 2, 4)), OF_A_SIZE["small"]
    cases = [
        case(
            shape.model_copy(update={"decoder": decoder}),
            edge,
            activation_checkpointing=again,
            keep_ratio=keep,
            decode_share=share,
        )
        for shape, edge, keep, share in (
            (plain, 4, 0.25, 1),
            (plain.model_copy(update={"registers": 5}), 6, 0.1, 0.4),
        )
        for decoder in ("self", "cross")
        for again in ("none", "selective", "full")
    ]
    cases += [
        case(small, 4),
        case(small.model_copy(update={"patch_normalisation": True}), 4, decode_share=0.5),
        case(OF_A_SIZE["tiny"], 8, keep_ratio=0.6),
    ]
    cases += [
        case(plain, 5, world, cp=world, ulysses=ulysses, activation_checkpointing="full")
        for world, ulysses in ((2, 1), (2, 2), (4, 2))
    ]
    return cases


def memory_cases() -> list[Case]:
    """Those that were looked at, and those that were not."""
    seen = model(96, 4, 4, (48, 3, 4))
    derived = [
        case(
            seen.model_copy(update={"decoder": decoder}), 8, looked_at=True, activation_checkpointing=again, precision=p
        )
        for p in ("float32", "bfloat16")
        for decoder in ("self", "cross")
        for again in ("none", "selective", "full")
    ]
    broad = model(256, 3, 4, (128, 2, 4))
    derived += [
        case(broad, 2, 2, looked_at=True, strategy=strategy, precision=p)
        for strategy, p in (("ddp", "float32"), ("fsdp2", "float32"), ("fsdp2", "bfloat16"), ("zero1", "bfloat16"))
    ]
    derived.append(case(OF_A_SIZE["small"], 6, looked_at=True))
    narrow = model(48, 4, 4, (32, 3, 4))  # so that nearly all is activations
    derived += [
        case(narrow, 15, 4, looked_at=True, cp=4, precision="bfloat16", activation_checkpointing="full"),
        case(narrow, 15, 4, looked_at=True, cp=4, ulysses=2, activation_checkpointing="full"),
    ]
    wide, deep = model(128, 6, 4, (64, 2, 2)), model(64, 3, 2, (96, 5, 4))
    cross, tall = (m.model_copy(update={"decoder": "cross"}) for m in (wide, deep))
    held_out = [
        case(wide, 8, keep_ratio=0.5),
        case(wide, 9, precision="bfloat16", activation_checkpointing="selective"),
        case(deep, 8, activation_checkpointing="full", decode_share=0.5),
        case(deep, 10, precision="bfloat16", keep_ratio=0.1),
        case(cross, 8, keep_ratio=0.1),
        case(cross, 10, activation_checkpointing="full"),
        case(tall, 9, precision="bfloat16", activation_checkpointing="selective", decode_share=0.3),
        case(tall.model_copy(update={"registers": 8, "patch_normalisation": True}), 8),
        case(OF_A_SIZE["tiny"], 8, batch=2),
        case(model(192, 8, 6, (96, 4, 4)), 5),
        case(deep, 6, batch=6, accumulation=2),
        case(wide, 8, 2, cp=2),
        case(cross, 10, 2, cp=2, precision="bfloat16"),
        case(wide, 10, 2, cp=2, ulysses=2, activation_checkpointing="full"),
        case(tall, 10, 2, cp=2, ulysses=2),
        case(wide, 8, 2, strategy="fsdp2"),
        case(tall, 8, 2, strategy="fsdp2", precision="bfloat16", activation_checkpointing="selective"),
        case(deep, 8, 2, strategy="fsdp2", batch=4, accumulation=2),
        case(cross, 8, 2, strategy="zero1", precision="bfloat16"),
        case(deep, 10, 4, cp=4, ulysses=2, activation_checkpointing="selective"),
        case(narrow, 13, 2, cp=2),
        case(narrow, 13, 2, cp=2, ulysses=2, precision="bfloat16", activation_checkpointing="selective"),
        case(narrow, 14, 4, cp=4, ulysses=2, precision="bfloat16", activation_checkpointing="full"),
        case(narrow.model_copy(update={"decoder": "cross"}), 16, 4, cp=4, activation_checkpointing="full"),
        case(narrow.model_copy(update={"decoder": "cross"}), 15, 4, cp=4, ulysses=4),
        case(cross, 6, 2, strategy="zero2"),
        case(wide, 6, 2, strategy="zero2", precision="bfloat16"),
        case(wide, 6, 2, strategy="zero3"),
        case(tall, 6, 2, strategy="zero3", precision="bfloat16"),
    ]
    return derived + held_out


def counted_flops(measured: Case) -> int:
    """What this process multiplies in forward and backward of one micro-batch."""
    mesh = _mesh(measured)
    net = MaskedAutoencoder(measured.config.model, 0, measured.config.activation_checkpointing)
    with FlopCounterMode(display=False, custom_mapping=COUNTED_TOO) as counter:
        _loss(net, measured, mesh)[0].backward()  # type: ignore[no-untyped-call]
    return int(counter.get_total_flops())


def held_bytes(measured: Case) -> int:
    """What this process holds at the worst moment of one training step."""
    mesh, config = _mesh(measured), measured.config
    os.environ["LOCAL_RANK"] = str(mesh.rank)  # which DeepSpeed asks for
    gc.collect()  # what is left of the case before must not be given back while this one is counted
    with redirect_stdout(sys.stderr), peak_memory() as memory:  # DeepSpeed talks
        net = MaskedAutoencoder(config.model, 0, config.activation_checkpointing)
        strategy = strategies.build(net, config, mesh)
        for _ in range(config.accumulation):
            loss, _batch = _loss(strategy.model, measured, mesh)
            strategy.backward(loss, torch.tensor(1000))
        strategy.step(1e-3)
    return memory.peak_bytes


def _loss(net: torch.nn.Module, measured: Case, mesh: Mesh) -> tuple[torch.Tensor, Any]:
    """The loss of one micro-batch of noise, and what the training loop holds until backward is done."""
    config, layout = measured.config, TokenLayout(measured.config.window, measured.config.model.patch)
    masking = Masking(config.keep_ratio, config.seed, config.decode_share)
    shard = Shard.of(layout, masking, mesh.cp_rank, mesh.cp)
    masks = shard.draw(0, range(measured.layout.crops))
    shape = (measured.layout.crops, len(shard.tokens), config.model.patch_voxels)
    patches_BLP = torch.randn(shape, dtype=strategies.DTYPES[config.precision])
    live_BLP = torch.ones(shape, dtype=torch.bool)
    result = net(patches_BLP, live_BLP, masks, shard, attention_over(mesh))
    return result.loss_sum, (patches_BLP, live_BLP, result)


def _mesh(measured: Case) -> Mesh:
    return arrange(measured.config.cp, measured.config.ulysses, torch.device("cpu"))


def flop_row(measured: Case, found: int) -> dict[str, Any]:
    """Measured beside forecast, of all processes of a group together."""
    parts = work_of(measured.config.model, measured.tokens, measured.layout.checkpointing).values()
    return _row("FLOPs", measured, found, measured.layout.crops * sum(part.total for part in parts))


def memory_row(measured: Case, found: int) -> dict[str, Any]:
    """Measured beside forecast, of the fullest process."""
    scratch = SCRATCH[measured.layout.precision]
    parts = memory_of(measured.config.model, measured.tokens, measured.layout, scratch=scratch)
    return _row("memory", measured, found, sum(parts.values())) | {"parts": parts}


def _row(kind: Literal["FLOPs", "memory"], measured: Case, found: int, forecast: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "configuration": measured.name,
        "set": "derived" if measured.looked_at else "held out",
        "measured": found,
        "forecast": forecast,
        "error": forecast / found - 1,
    }


def published_rows() -> list[dict[str, Any]]:
    """What is public of the reference, and the arithmetic in this project's notes, beside the planner's figures."""
    huge, large = MODEL_SIZES["huge"], MODEL_SIZES["1.8b"]
    deeper = large.model_copy(update={"depth": 54})
    before, after = (640, 640, 1024), (1536, 1536, 2048)

    def flops(shape: ModelConfig, keep: float = 0.25) -> dict[str, int]:
        work = work_of(shape.model_copy(update={"decoder": "self"}), tokens_of(shape, after, keep), "none")
        return {part: each.forward + each.backward for part, each in work.items()}

    def decoder_share(keep: float) -> float:
        parts = flops(huge, keep)
        return sum(n for part, n in parts.items() if part.startswith("decoder")) / sum(parts.values())

    figures = [
        ("tokens of 640x640x1024", 102_400, tokens_of(huge, before, 0.25).whole),
        ("tokens of 1536x1536x2048", 1_179_648, tokens_of(huge, after, 0.25).whole),
        ("growth in voxels", 4.5, math.prod(after) / math.prod(before)),
        ("PFLOP a sample, 663 M, 25 % kept", 112, sum(flops(huge).values()) / 1e15),
        ("PFLOP a sample, 1.83 B, 25 % kept", 166, sum(flops(deeper).values()) / 1e15),
        ("decoder's share, 25 % kept", 0.61, decoder_share(0.25)),
        ("decoder's share, 10 % kept", 0.90, decoder_share(0.10)),
        ("parameters of huge", 663e6, sum(parameters_of(huge).values())),
        ("parameters of 1.8b", 1.83e9, sum(parameters_of(large).values())),
    ]
    return [
        {
            "kind": "published",
            "configuration": name,
            "set": "",
            "measured": said,
            "forecast": found,
            "error": found / said - 1,
        }
        for name, said, found in figures
    ]


def measure() -> Measured:
    """All rows. Raises ``CannotMeasureError``."""
    rows = published_rows()
    try:
        for world in (1, 2, 4):
            with Crew(world) as crew:
                for each in (each for each in flop_cases() if each.world == world):
                    rows.append(flop_row(each, sum(crew.ask(counted_flops, each))))
                    say(f"{rows[-1]['error']:+.2%} FLOPs: {each.name}")
                for each in (each for each in memory_cases() if each.world == world):
                    rows.append(memory_row(each, max(crew.ask(held_bytes, each))))
                    say(f"{rows[-1]['error']:+.1%} memory: {each.name}")
    except CrewError as error:
        raise CannotMeasureError(str(error)) from error
    return Measured(rows, goals(rows))


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """The largest error of each kind over the rows that were held out."""
    worst = {
        kind: max(abs(row["error"]) for row in rows if row["kind"] == kind and row["set"] == "held out")
        for kind in ("FLOPs", "memory")
    }
    held_out = sum(row["kind"] == "memory" and row["set"] == "held out" for row in rows)
    return [
        Goal("largest error of FLOPs", worst["FLOPs"], "share", FLOP_GOAL, "lower"),
        Goal("largest error of memory, held-out configurations", worst["memory"], "share", MEMORY_GOAL, "lower"),
        Goal("held-out configurations of memory", held_out, "", 10, "higher"),
    ]


def tabulate(rows: list[dict[str, Any]]) -> Table:
    """For people."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("kind", "set", "configuration"):
        table.add_column(column)
    for column in ("measured", "forecast", "error"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row["kind"],
            row["set"],
            row["configuration"],
            *(f"{row[key]:,.4g}" for key in ("measured", "forecast")),
            f"{row['error']:+.1%}",
        )
    return table


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return run("planner", measure, tabulate, as_json=parser.parse_args().json)


if __name__ == "__main__":
    raise SystemExit(main())
