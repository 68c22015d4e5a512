"""Which strategy trains a model fastest, measured on the machines that are to train it."""
