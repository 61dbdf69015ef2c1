"""A server, and clients that keep a state between rounds."""
