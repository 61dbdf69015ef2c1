"""Analyses of trained models and of the papers' theory."""
