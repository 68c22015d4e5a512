"""What a training run takes, before anything is launched: parameters, FLOPs, memory, communication, time and price.

Plain arithmetic on a ``ModelConfig``; nothing here imports torch.
"""

from seismic_model.planner.flops import flops_per_sample

__all__ = ["flops_per_sample"]
