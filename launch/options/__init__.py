"""Builds the parts of a run from the flags."""
