"""Where a training job runs: one small interface, one module for each place."""
