"""The seed of a graph's draws, which is a constant, or an input of the graph.

A simulation traces its graphs for one seed. A client package takes the seed as an input, so that
its graphs are traced once: while `from_input` is active, every draw that is traced uses the input.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf

_INPUT: contextvars.ContextVar[tf.Tensor | None] = contextvars.ContextVar("seed", default=None)


@contextlib.contextmanager
def from_input(seed: tf.Tensor) -> Iterator[None]:
    """Lets the graphs that are traced inside draw from this seed, int64, in [0, 2**31)."""
    token = _INPUT.set(seed)
    try:
        yield
    finally:
        _INPUT.reset(token)


def current(seed: int) -> tf.Tensor:
    """The seed for draws, int64: the graph's input, if it takes one, or else `seed`."""
    given = _INPUT.get()
    return tf.constant(seed, tf.int64) if given is None else given
