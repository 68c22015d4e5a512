"""Attention over a context-parallel group, the process mesh, and the training strategies."""
