"""Evaluation of a frozen encoder: features, linear probes, and the kNN monitor."""
