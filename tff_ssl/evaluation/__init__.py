"""Evaluation of encoders: features, linear probes, the kNN monitor and fine-tuning."""
