"""A network of clients without a server."""
