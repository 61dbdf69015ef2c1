"""Evaluations of an encoder with the settings of flags."""
