"""A server, and clients of different architectures."""
