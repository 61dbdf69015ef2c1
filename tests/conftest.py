"""Fixtures of all tests."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest


def pytest_sessionfinish():
    """Takes away TFF's default context, which complains when it is collected at the exit."""
    if "tensorflow_federated" in sys.modules:
        from tff_ssl import execution  # noqa: F401


@pytest.fixture(scope="session")
def worker():
    """A private TFF worker, as the scripts use it, for all tests that compute with TFF."""
    from tff_ssl import execution

    with execution.local_worker() as running:
        yield running


@pytest.fixture(scope="session")
def project_root() -> pathlib.Path:
    return pathlib.Path(__file__).parent.parent
