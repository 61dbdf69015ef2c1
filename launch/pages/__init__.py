"""The pages `run.html` and `compare.html`, and a run's pictures for TensorBoard."""
