"""Fixtures of the tests of algorithms."""

from tests.scalar_network import scalars  # noqa: F401
