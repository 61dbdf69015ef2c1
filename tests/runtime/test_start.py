"""`tff_ssl.runtime.start`, which chooses between the runtimes."""

import doctest

import pytest
import tensorflow_federated as tff

from tff_ssl import runtime
from tff_ssl.errors import ConfigurationError
from tff_ssl.runtime import in_process, local_worker


@pytest.mark.slow
def test_the_example_of_the_docstring():
    assert doctest.testmod(runtime) == (0, 4)


@pytest.mark.parametrize(
    ("asked", "seconds", "chosen"),
    [
        ("auto", None, "in_process"),
        ("auto", 60.0, "worker"),
        ("worker", None, "worker"),
        ("in_process", None, "in_process"),
    ],
)
def test_choice(monkeypatch, asked, seconds, chosen):
    for module, name in ((local_worker, "worker"), (in_process, "in_process")):
        monkeypatch.setattr(module, "start", lambda *_, name=name, **__: name)
    assert runtime.start(asked, call_seconds=seconds) == chosen


def test_the_context_of_before_is_back():
    stack = tff.framework.get_context_stack()
    before = stack.current
    with runtime.start("in_process") as running:
        assert stack.current is running.context
    assert stack.current is before


@pytest.mark.parametrize(("name", "seconds"), [("in_process", 60.0), ("remote", None)])
def test_what_cannot_be(name, seconds):
    with pytest.raises(ConfigurationError, match=f"runtime='{name}' with call_seconds={seconds}"):
        runtime.start(name, call_seconds=seconds)
