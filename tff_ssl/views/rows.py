"""Steps that change each row of a batch by one of several functions."""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

# (some rows, function that selects the same rows of a tensor) -> the changed rows.
Change = Callable[[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]], tf.Tensor]
# (rows, number of each row's change, changes) -> the changed rows.
ChangeRows = Callable[[tf.Tensor, tf.Tensor, Sequence[Change]], tf.Tensor]


def unchanged(x: tf.Tensor, _: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """The rows themselves."""
    return x


def change_parts(x: tf.Tensor, choice: tf.Tensor, changes: Sequence[Change]) -> tf.Tensor:
    """Computes each change for its rows only; `choice` has integers, or bool for two, [rows]."""
    choice = tf.cast(choice, tf.int32)
    numbers = tf.dynamic_partition(tf.range(tf.shape(x)[0]), choice, len(changes))
    parts = tf.dynamic_partition(x, choice, len(changes))
    changed = [
        change(part, functools.partial(tf.gather, indices=rows))
        for change, part, rows in zip(changes, parts, numbers, strict=True)
    ]
    return tf.ensure_shape(tf.dynamic_stitch(numbers, changed), x.shape)


def change_all(x: tf.Tensor, choice: tf.Tensor, changes: Sequence[Change]) -> tf.Tensor:
    """`change_parts` with tensors of known sizes: computes all changes for all rows."""
    choice = tf.cast(choice, tf.int32)[:, None, None, None]
    result = changes[0](x, tf.identity)
    for number, change in enumerate(changes[1:], start=1):
        result = tf.where(tf.equal(choice, number), change(x, tf.identity), result)
    return result
