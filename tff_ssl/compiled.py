"""Functions that XLA compiles, and batches of the sizes for which it does.

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


def padded(batch: tf.Tensor) -> tf.Tensor:
    """The batch and as many rows of zeros as make its size one of a few."""
    rows = batch.shape[0]
    if rows is not None:
        missing = _SIZES[bisect.bisect_left(_SIZES, rows)] - rows
    else:
        rows = tf.shape(batch)[0]
        missing = tf.gather(_SIZES, tf.searchsorted(_SIZES, [rows])[0]) - rows
    return tf.pad(batch, [[0, missing], *[[0, 0]] * (batch.shape.rank - 1)])
