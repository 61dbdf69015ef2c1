"""What builds, runs and judges the experiments."""
