"""Means over a client's examples, computed in micro-batches to bound the use of memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_ssl.models.two_towers import Model

_ALL = 2**31 - 1
# Two micro-batches at a time keep two cores busy; the operations of a single one do not. The sum is
# still taken in order.
_PARALLEL_MICRO_BATCHES = 2
_SHARE_OF_MEMORY = 0.5  # The other half is for weights, images and views.
_LARGEST = 4096  # For models so small that the memory of a GPU is no bound.


def largest_that_fits(model: Model, memory_bytes: int) -> int:
    """The largest micro-batch, a power of two, whose activations fit into a device's memory.

    Memory of one example: all tensors that the forward passes of two views, and the gradient,
    compute. That is an upper bound, since most tensors are freed before the last ones are computed.
    """

    weights = model.init(0)

    @tf.function(autograph=False)
    def gradient(images):
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            z = model.apply(weights, images, training=True).z
        return tape.gradient(z, weights.trainable, unconnected_gradients="zero")

    examples = 2  # Enough for batch norm, and unlike the 1 of shapes that are broadcast.
    graph = gradient.get_concrete_function(
        tf.TensorSpec([examples, *model.image_shape], tf.float32)
    ).graph
    shapes = [tensor.shape for op in graph.get_operations() for tensor in op.outputs]
    numbers = sum(
        int(np.prod(shape)) for shape in shapes
        if shape.rank and shape.is_fully_defined() and shape[0] == examples
    )  # fmt: skip
    bytes_per_example = 4 * numbers  # Two views, and half of the numbers are of one example.
    fitting = int(_SHARE_OF_MEMORY * memory_bytes / bytes_per_example)
    return 2 ** min(max(fitting, 1).bit_length() - 1, _LARGEST.bit_length() - 1)


def mean_over_batch(
    everything: Any, function: Callable[[Any], Any], zeros: Any, batch_size: int
) -> tuple[Any, tf.Tensor]:
    """The mean over all examples of a function that averages over a batch; for use in a graph.

    Args:
      everything: Examples of a client (`read_all`), a struct of tensors [n, ...].
      function: Batch of examples -> a (nested) structure of floats, each a mean over the batch.
      zeros: Zeros in the structure and with the shapes of the result of `function`.
      batch_size: Largest number of examples in a micro-batch.

    Returns:
      The mean, which is NaN without examples, and the number of examples n, int64.
    """
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


def read_all(examples: Any) -> Any:
    """All examples of a client as one batch, which may be empty; for use in a graph.

    Examples that are one batch already, a struct of tensors [n, ...], stay as they are. Elements of
    a dataset are examples, or batches of them, which are faster to read.

    Images of 8 bits need little memory compared with the activations of one micro-batch. A loop
    over the dataset would be slower: `Dataset.reduce` prepares its function anew in every call, and
    an iterator takes 10 ms to prepare its options and functions; `get_single_element` takes 0.6 ms.
    """
    if not isinstance(examples, tf.data.Dataset):
        return examples
    batched = examples.element_spec["example_id"].shape.rank == 1
    batch = examples.rebatch(_ALL) if batched else examples.batch(_ALL)
    empty = tf.nest.map_structure(
        lambda spec: tf.zeros([0, *spec.shape[1:]], spec.dtype), batch.element_spec
    )
    # A dataset without examples has no batch, and a single element must exist.
    return batch.concatenate(tf.data.Dataset.from_tensors(empty)).take(1).get_single_element()
