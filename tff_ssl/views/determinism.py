"""Operations that keep the bits of a view independent of the batch and of graph optimization.

The order of float sums could make bits depend on the batch, so the mean of an image is made from a
sum of integers. `round_parameter` and `optimization_barrier` remove the other causes. Everything
else is elementwise arithmetic, rounded as IEEE 754 prescribes.
"""

import tensorflow as tf


def round_parameter(x: tf.Tensor) -> tf.Tensor:
    """float64 to the nearest multiple of 2**-20 in float32, which hides differences of last bits.

    Eigen approximates exp, log, sin and cos differently in whole SIMD registers and in the rest of
    a tensor, so that results depend on the batch size; and TensorFlow's graph optimizer moves
    constants through sums and products.
    """
    return tf.cast(tf.round(x * 2**20) * 2**-20, tf.float32)


def optimization_barrier(x: tf.Tensor) -> tf.Tensor:
    """x itself; the graph optimizer does not rearrange arithmetic across this operation."""
    return tf.ensure_shape(x, [None] * x.shape.rank)
