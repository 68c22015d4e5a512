"""The figures of one optimiser step, gathered over its micro-batches and all processes."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from seismic_model.data.dataset import Dataset
from seismic_model.model.mae import Reconstruction
from seismic_model.parallel.mesh import Mesh
from seismic_model.training.speed import StepSize, take_peak_memory
from seismic_model.training.tokens import TokenBatch


class StepTally:
    """Adds up losses of one process; ``figures`` joins those of all. Time counts from its making."""

    def __init__(self, dataset: Dataset, mesh: Mesh, size: StepSize, samples: range) -> None:
        self._names = [entry.survey for entry in dataset.surveys]
        self._mesh, self._size, self._samples = mesh, size, samples
        self._losses: list[tuple[Tensor, list[int]]] = []
        self._errors_2S = torch.zeros(2, len(self._names), dtype=torch.float64, device=mesh.device)
        mesh.waiting.take()  # what was waited between two steps is of neither
        self._began = time.perf_counter()

    def add(self, batch: TokenBatch, result: Reconstruction) -> None:
        """Take in one micro-batch."""
        self._losses.append((result.loss_sum.detach(), batch.sample_ids))
        self._errors_2S += batch.survey_errors(result.prediction_BMP, len(self._names))

    def figures(self, gradient_norm: float, waited: float) -> dict[str, Any]:
        """Entries of ``metrics.jsonl`` that all processes have a part in, whatever is not finite left out. Collective.

        Args:
            gradient_norm: of the step; one that is not finite says that the step was skipped.
            waited: seconds in which this process computed nothing for want of data.
        """
        surveys, world = len(self._names), self._mesh.world
        loss_sum, doubtful = self._own_losses()
        memory = torch.zeros(world, dtype=torch.float64)
        memory[self._mesh.rank] = take_peak_memory(self._mesh.device)
        own = torch.tensor([loss_sum, waited, self._mesh.waiting.take()], dtype=torch.float64)
        parts = [own, self._errors_2S.reshape(-1).cpu(), doubtful, memory]
        joined = self._mesh.total(torch.cat(parts)).cpu()
        own, errors_2S, doubtful, memory = torch.split(joined, [len(part) for part in parts])
        loss_sum, waited, communicated = own.tolist()
        errors, counts = errors_2S.reshape(2, surveys).tolist()
        seconds = time.perf_counter() - self._began
        finite = {"loss": loss_sum / max(1.0, sum(counts)), "gradient_norm": gradient_norm}
        samples = [self._samples[place] for place in doubtful.nonzero()[:, 0].tolist()] or list(self._samples)
        return {
            **{name: value for name, value in finite.items() if math.isfinite(value)},
            "survey_error": {
                name: error / count
                for name, error, count in zip(self._names, errors, counts, strict=True)
                if count and math.isfinite(error)
            },
            "seconds": seconds,
            "voxels_per_second": self._size.voxels / seconds,
            "tokens_per_second": self._size.tokens / seconds,
            "mfu": self._size.flops / seconds / self._size.peak_flops,
            "data_wait_share": waited / world / seconds,
            "communication_share": communicated / world / seconds,
            "peak_memory": int(memory.max()),
            **({} if math.isfinite(gradient_norm) else {"skipped_samples": samples}),
            "time": time.time(),
        }

    def _own_losses(self) -> tuple[float, Tensor]:
        """Their sum over own micro-batches, and 1 at the places of own samples whose loss is not finite."""
        doubtful = torch.zeros(len(self._samples), dtype=torch.float64)
        total = 0.0
        for loss_sum, sample_ids in self._losses:
            total += float(loss_sum)
            if not math.isfinite(float(loss_sum)):
                doubtful[[self._samples.index(sample) for sample in sample_ids]] = 1
        return total, doubtful
