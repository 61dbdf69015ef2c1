"""The papers' experiments as data with the claims that they decide, and tools of research."""
