"""Objectives: what a client, or a centralized step, minimizes on a batch."""
