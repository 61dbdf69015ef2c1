"""The mathematical parts of which algorithms are made."""
