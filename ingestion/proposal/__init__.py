"""A survey spec proposed for a file, with the evidence for every value."""
