"""How a SEG-Y file is arranged, and what its samples are: from bytes to numbers."""
