"""Training passes that XLA compiles.

XLA fuses operations, so that a GPU starts fewer kernels. It compiles a function anew for every
shape of its arguments. Batches are therefore padded to a few sizes, and the outputs cut off again.
The results are equal up to rounding.
"""

import bisect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Four sizes between a power of two and the next one: at most a fifth of a batch is padding.
_SIZES = (1, 2, 3, *(part << shift for shift in range(28) for part in (4, 5, 6, 7)))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors, compiled by XLA at the first call with tensors of new shapes."""
    return tf.function(function, autograph=False, jit_compile=True, reduce_retracing=True)


def padded(images: tf.Tensor) -> tf.Tensor:
    """The images and as many black ones as make their number one of a few sizes."""
    rows = images.shape[0]
    if rows is not None:
        missing = _SIZES[bisect.bisect_left(_SIZES, rows)] - rows
    else:
        rows = tf.shape(images)[0]
        missing = tf.gather(_SIZES, tf.searchsorted(_SIZES, [rows])[0]) - rows
    return tf.pad(images, [[0, missing], *[[0, 0]] * (images.shape.rank - 1)])
