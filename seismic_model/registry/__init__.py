"""Candidates and champions in MLflow: registering, reviewing, loading."""
