"""Objectives, one file each, in plain TensorFlow."""
