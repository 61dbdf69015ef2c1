"""Fixtures of the tests of templates."""

from tests.scalar_network import scalars  # noqa: F401
