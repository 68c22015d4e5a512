"""A forecast as JSON for programs and as text for people."""

from __future__ import annotations

from typing import Any

from seismic_model.planner.forecast import Forecast

_GB = 1e9


def facts(forecast: Forecast, samples: int | None) -> dict[str, Any]:
    """Everything that ``sfm plan --json`` says; bytes, seconds and FLOPs as they are."""
    task, layout, machine = forecast.task, forecast.layout, forecast.machine
    said: dict[str, Any] = {
        "window": list(task.window),
        "tokens": {
            "whole": task.tokens.whole,
            "visible": task.tokens.visible,
            "registers": task.tokens.registers,
            "decoded": task.tokens.decoded,
        },
        "parameters": task.parameters | {"total": sum(task.parameters.values())},
        "flops_per_sample": {
            part: {"forward": work.forward, "backward": work.backward, "recompute": work.recompute}
            for part, work in forecast.work.items()
        },
        "layout": {
            "gpus": layout.gpus,
            "dp": layout.dp,
            "cp": layout.cp,
            "ring": layout.ring,
            "ulysses": layout.ulysses,
            "strategy": layout.strategy,
            "activation_checkpointing": layout.checkpointing,
            "precision": layout.precision,
            "batch": forecast.batch,
            "crops_at_a_time": layout.crops,
            "accumulation": layout.accumulation,
        },
        "memory_per_gpu": dict(forecast.memory) | {"total": forecast.memory_total, "usable": machine.memory},
        "communication_per_step": [
            {
                "name": each.name,
                "bytes_sent_per_gpu": round(each.bytes_sent),
                "seconds": each.seconds,
                "exposed_seconds": each.exposed_seconds,
                "hides": each.hides,
            }
            for each in forecast.transfers
        ],
        "step": {
            "seconds": forecast.step_seconds,
            "compute_seconds": forecast.compute_seconds,
            "busy_seconds": forecast.busy_seconds,
            "samples_per_second": forecast.samples_per_second,
            "tokens_per_second": forecast.samples_per_second * task.tokens.whole,
            "mfu": forecast.mfu,
            "reading_seconds": forecast.batch * forecast.crop_reading_seconds,
        },
        "assumptions": {name: {"value": value, "source": source} for name, value, source in machine.lines()},
    }
    if samples is not None:
        said["data_set"] = {
            "samples": samples,
            "days": forecast.hours(samples) / 24,
            "price_usd": forecast.price(samples),
            "price_per_gpu_hour_usd": machine.price_per_hour,
        }
    return said


def text(said: dict[str, Any]) -> str:
    """The same for a terminal."""
    layout, step, tokens = said["layout"], said["step"], said["tokens"]
    window = " x ".join(map(str, said["window"]))
    lines = [
        f"window      {window} voxels, {tokens['whole']:,} tokens: {tokens['visible']:,} visible, "
        f"{tokens['decoded']:,} decoded, {tokens['registers']} registers",
        f"layout      {layout['gpus']} GPUs = dp {layout['dp']} x cp {layout['cp']} (ring {layout['ring']} x ulysses "
        f"{layout['ulysses']}), {layout['strategy']}, {layout['precision']}, "
        f"checkpointing {layout['activation_checkpointing']}, {layout['batch']} crops a step "
        f"({layout['crops_at_a_time']} at a time for each group)",
        f"step        {step['seconds']:.3g} s, {step['samples_per_second']:.4g} crops/s, "
        f"{step['tokens_per_second']:.3g} tokens/s, MFU {step['mfu']:.0%}; "
        + (
            f"reading takes {step['reading_seconds']:.3g} s at a time"
            if step["reading_seconds"] <= step["busy_seconds"]
            else f"the GPUs wait for S3, and are busy for {step['busy_seconds']:.3g} s"
        ),
    ]
    if data_set := said.get("data_set"):
        lines.append(
            f"data set    {data_set['samples']:,} crops: {data_set['days']:.3g} days, {data_set['price_usd']:,.0f} USD "
            f"at {data_set['price_per_gpu_hour_usd']:g} USD a GPU and hour"
        )
    memory = said["memory_per_gpu"]
    lines += ["", f"memory of a GPU, {memory['total'] / _GB:.1f} of {memory['usable'] / _GB:.1f} GB usable"]
    lines += [f"  {part:30}{size / _GB:8.2f} GB" for part, size in memory.items() if part not in ("total", "usable")]
    lines += ["", "FLOPs of a crop" + " " * 11 + f"{'forward':>12}{'backward':>12}{'recompute':>12}"]
    for part, work in said["flops_per_sample"].items():
        lines.append(f"  {part:24}" + "".join(f"{work[key]:12.3g}" for key in ("forward", "backward", "recompute")))
    lines += ["", "communication of a GPU in a step" + f"{'sent GB':>12}{'seconds':>12}{'not hidden':>12}"]
    for each in said["communication_per_step"]:
        lines.append(
            f"  {each['name']:30}{each['bytes_sent_per_gpu'] / _GB:12.3g}{each['seconds']:12.3g}"
            + ("      hides" if each["hides"] else f"{each['exposed_seconds']:12.3g}")
        )
    lines += ["", f"parameters  {said['parameters']['total']:,}"]
    lines += [f"  {part:24}{count:16,}" for part, count in said["parameters"].items() if part != "total"]
    lines += ["", "assumed (nothing of it measured on a GPU by this project)"]
    lines += [f"  {name:26}{each['value']:<12.4g}{each['source']}" for name, each in said["assumptions"].items()]
    return "\n".join(lines)
