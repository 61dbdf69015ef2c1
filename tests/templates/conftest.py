"""Fixtures of these tests."""

from tests.scalar_network import scalars  # noqa: F401
