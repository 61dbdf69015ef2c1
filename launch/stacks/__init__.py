"""Federated stacks that run a client package outside TFF."""
