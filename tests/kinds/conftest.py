"""Fixtures of the tests of kinds."""

from tests.scalar_network import scalars  # noqa: F401
