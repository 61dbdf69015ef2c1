"""Encoders, heads and dual encoders as pure functions of their weights."""
