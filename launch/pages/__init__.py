"""The pages `run.html`, `embed.html` and `compare.html`, and a run's pictures for TensorBoard."""
