"""Simulation of federated runs on one machine, and the centralized baselines."""
