"""A server, and clients that keep nothing between rounds."""
