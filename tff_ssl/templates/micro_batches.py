"""Means over a client's examples, a few at a time, so that memory does not grow with them."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_ALL = 2**31 - 1
# Two micro-batches at a time keep two cores busy where an operation of one does not; the sum is
# taken in order all the same.
_PARALLEL_MICRO_BATCHES = 2


def mean_over_examples(
    examples: tf.data.Dataset, function: Callable[[Any], Any], zeros: Any, batch_size: int
) -> tuple[Any, tf.Tensor]:
    """The mean over examples of what `function` averages over a batch; for use in a graph.

    The examples themselves are read all at once, which for images of 8 bits is little beside the
    activations of one micro-batch. A loop over the dataset would be slower: `Dataset.reduce`
    prepares its function anew in every call, and an iterator's loop does one step after the other.

    Args:
      examples: A client's examples: structs with an `example_id`.
      function: A batch of n examples -> a (nested) structure of floats that is a mean over them.
      zeros: A structure of zeros like `function`'s.
      batch_size: The largest n.

    Returns:
      The mean, NaN if there is no example; and the number of examples, int64.
    """
    everything = read_all(examples)
    samples = tf.shape(everything["example_id"])[0]

    def add(start, total):
        batch = tf.nest.map_structure(lambda t: t[start : start + batch_size], everything)
        n = tf.minimum(batch_size, samples - start)
        total = tf.nest.map_structure(
            lambda t, value: t + tf.cast(n, t.dtype) * value, total, function(batch)
        )
        return start + batch_size, total

    _, total = tf.while_loop(
        lambda start, _: start < samples,
        add,
        (0, zeros),
        parallel_iterations=_PARALLEL_MICRO_BATCHES,
    )
    mean = tf.nest.map_structure(lambda t: t / tf.cast(samples, t.dtype), total)
    return mean, tf.cast(samples, tf.int64)


def read_all(examples: tf.data.Dataset) -> Any:
    """All examples of a client as one batch, which may be empty; for use in a graph."""
    batches = iter(examples.batch(_ALL))
    first = batches.get_next_as_optional()
    empty = tf.nest.map_structure(
        lambda spec: tf.zeros([0, *spec.shape[1:]], spec.dtype), batches.element_spec
    )
    return tf.cond(first.has_value(), first.get_value, lambda: empty)
