"""Evaluations of an encoder, from flags."""
