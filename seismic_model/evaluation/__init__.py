"""Held-out reconstruction beside baselines, and the gate between candidate and champion."""
