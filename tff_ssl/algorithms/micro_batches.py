"""Means over a client's examples, a few at a time, so that memory does not grow with them."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def mean_over_examples(
    examples: tf.data.Dataset, function: Callable[[Any], Any], zeros: Any, batch_size: int
) -> tuple[Any, tf.Tensor]:
    """The mean over examples of what `function` averages over a batch; for use in a `tf.function`.

    Args:
      examples: A client's examples: structs with an `example_id`.
      function: A batch of n examples -> a (nested) structure of floats that is a mean over them.
      zeros: A structure of zeros like `function`'s.
      batch_size: The largest n.

    Returns:
      The mean, NaN if there is no example; and the number of examples, int64.
    """
    total, samples = zeros, tf.constant(0, tf.int64)
    # An iterator, since Dataset.reduce prepares its function anew in every call.
    for batch in iter(examples.batch(batch_size)):
        n = tf.shape(batch["example_id"])[0]
        total = tf.nest.map_structure(
            lambda t, v, n=n: t + tf.cast(n, t.dtype) * v, total, function(batch)
        )
        samples += tf.cast(n, tf.int64)
    return tf.nest.map_structure(lambda t: t / tf.cast(samples, t.dtype), total), samples
