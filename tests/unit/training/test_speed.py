"""What MFU is taken over."""

from __future__ import annotations

import pytest
import torch

from seismic_model.training.speed import peak_flops, take_peak_memory

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def test_a_known_gpu_is_held_against_its_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "NVIDIA H100 80GB HBM3")
    assert peak_flops(GPU, "bfloat16") == pytest.approx(989.5e12)
    assert peak_flops(GPU, "float32") == pytest.approx(67e12)


def test_a_cpu_is_held_against_what_it_reaches() -> None:
    assert 1e8 < peak_flops(CPU, "float32") < 1e14


def test_the_peak_holds_what_was_allocated_and_is_gone() -> None:
    before = take_peak_memory(CPU)
    ballast = torch.ones(before // 4)  # as many bytes again
    del ballast
    assert take_peak_memory(CPU) > before
