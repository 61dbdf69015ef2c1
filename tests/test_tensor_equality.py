"""The tests' own check that no code compares tensors by `==` or `!=` (see `conftest.py`)."""

import pytest
import tensorflow as tf


def _compare(text, module):
    """Evaluates `text` about a tensor x, as if it stood in a module."""
    return eval(text, {"__name__": module, "x": tf.constant([1, 2])})


@pytest.mark.parametrize("module", ["tff_ssl.losses.example", "launch.example"])
@pytest.mark.parametrize("text", ["x == 1", "x != 1", "1 == x", "x in [0, x]"])
def test_code_that_compares_tensors_fails(text, module):
    with pytest.raises(AssertionError, match=r"use tf\.equal"):
        _compare(text, module)


def test_so_does_code_in_a_graph():
    with tf.Graph().as_default(), pytest.raises(AssertionError, match=r"use tf\.equal"):
        _compare("x == 1", "tff_ssl.losses.example")


def test_tests_and_other_packages_may_compare_tensors():
    assert _compare("x == 1", "tests.example").numpy().tolist() == [True, False]
