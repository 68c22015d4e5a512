"""Short trainings on made surveys, for benchmarks that compare what a model has learned."""
