"""What the model's step is compared with."""
