"""Fixtures of all tests."""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest


@pytest.fixture(scope="session")
def worker():
    """A private TFF worker, as the scripts use it, for all tests that compute with TFF."""
    from tff_ssl import execution

    with execution.local_worker() as running:
        yield running


@pytest.fixture(scope="session")
def project_root() -> pathlib.Path:
    return pathlib.Path(__file__).parent.parent
