"""The loop, checkpoints and metrics of one training run."""
