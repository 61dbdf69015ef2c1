"""Partition of a batch's rows into groups, and its inverse, for steps that change some rows."""

import tensorflow as tf


def partition_rows(
    x: tf.Tensor, group: tf.Tensor, count: int = 2
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Divides the rows of x into groups, given by integers in [0, count), or bool for two, [rows].

    The results are row numbers, int32 [rows of the group], and rows of x, for each group.
    """
    group = tf.cast(group, tf.int32)
    rows = tf.range(tf.shape(x)[0])
    return tf.dynamic_partition(rows, group, count), tf.dynamic_partition(x, group, count)


def join_rows(row_numbers: list[tf.Tensor], parts: list[tf.Tensor], like: tf.Tensor) -> tf.Tensor:
    """The inverse of `partition_rows`; the result has the static shape of `like`."""
    return tf.ensure_shape(tf.dynamic_stitch(row_numbers, parts), like.shape)
