"""Flower's deployment runtime: SuperLink and SuperNodes around a client package."""
