"""The figures of one optimiser step, gathered over its micro-batches and all processes."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from seismic_model.data.dataset import Dataset
from seismic_model.model.mae import Reconstruction
from seismic_model.parallel.mesh import Mesh
from seismic_model.training.tokens import TokenBatch


class StepTally:
    """Adds up losses of one process; ``figures`` joins those of all. Time counts from its making.

    Attributes:
        doubtful_samples: ids of the samples in micro-batches whose loss was not finite on this process.
    """

    def __init__(self, dataset: Dataset, mesh: Mesh) -> None:
        self._names = [entry.survey for entry in dataset.surveys]
        self._mesh = mesh
        self._began = time.perf_counter()
        self._loss_sum = 0.0
        self._errors_2S = torch.zeros(2, len(self._names), dtype=torch.float64)
        self.doubtful_samples: list[int] = []

    def add(self, batch: TokenBatch, result: Reconstruction) -> None:
        """Take in one micro-batch."""
        loss_sum = float(result.loss_sum.detach())
        self._loss_sum += loss_sum
        self._errors_2S += batch.survey_errors(result.prediction_BMP, len(self._names)).cpu()
        if not math.isfinite(loss_sum):
            self.doubtful_samples += batch.sample_ids

    def figures(self, voxels: int, waited: float) -> dict[str, Any]:
        """Entries of ``metrics.jsonl`` that all processes have a part in. Collective.

        Args:
            voxels: of all crops of the step.
            waited: seconds that this process waited for data.
        """
        own = torch.tensor([self._loss_sum, waited], dtype=torch.float64)
        everywhere = self._mesh.total(torch.cat([own, self._errors_2S.reshape(-1)])).tolist()
        (loss_sum, waited), errors = everywhere[:2], everywhere[2 : 2 + len(self._names)]
        counts = everywhere[2 + len(self._names) :]
        seconds = time.perf_counter() - self._began
        return {
            "loss": loss_sum / max(1.0, sum(counts)),
            "survey_error": {
                name: error / count
                for name, error, count in zip(self._names, errors, counts, strict=True)
                if count and math.isfinite(error)
            },
            "seconds": seconds,
            "voxels_per_second": voxels / seconds,
            "data_wait_share": waited / self._mesh.world / seconds,
            "time": time.time(),
        }
