"""Sums within clients, for batches that hold examples of several clients (a folded group)."""

from typing import NamedTuple

import tensorflow as tf


class Segments(NamedTuple):
    """The segment of each of n examples, int32 [n], and the sizes of k segments, float32 [k]."""

    ids: tf.Tensor
    sizes: tf.Tensor


def one(n: tf.Tensor) -> Segments:
    """All n examples in one segment."""
    return Segments(tf.zeros([n], tf.int32), tf.reshape(tf.cast(n, tf.float32), [1]))


def by_client(client: tf.Tensor) -> Segments:
    """One segment per client, from the examples' client indices, int64 [n] in any order."""
    _, ids, counts = tf.unique_with_counts(client)
    return Segments(ids, tf.cast(counts, tf.float32))


def total(values: tf.Tensor, segments: Segments) -> tf.Tensor:
    """Sums over the examples of each segment, [n, ...] -> [k, ...]."""
    return tf.math.unsorted_segment_sum(values, segments.ids, tf.shape(segments.sizes)[0])


def mean(values: tf.Tensor, segments: Segments) -> tf.Tensor:
    """Means over the examples of each segment, [n, ...] -> [k, ...]."""
    values = tf.convert_to_tensor(values)
    sizes = tf.reshape(segments.sizes, [-1] + [1] * (values.shape.rank - 1))
    return total(values, segments) / sizes


def together(segments: Segments) -> tf.Tensor:
    """Whether two examples share a segment, bool [n, n]."""
    return tf.equal(segments.ids[:, tf.newaxis], segments.ids[tf.newaxis, :])


def squared_cross_norm(f: tf.Tensor, g: tf.Tensor, segments: Segments) -> tf.Tensor:
    """|| F^T G / n ||^2 (Frobenius) of the n examples of each segment, [n, d] each -> [k].

    It is computed from Gram matrices: ||F^T G||^2 = sum_ij (F F^T)_ij (G G^T)_ij. For clients with
    fewer examples than encodings have dimensions, this is cheaper than k matrices of d x d.
    """
    products = tf.matmul(f, f, transpose_b=True) * tf.matmul(g, g, transpose_b=True)
    products = tf.where(together(segments), products, 0.0)
    return total(tf.reduce_sum(products, 1), segments) / tf.square(segments.sizes)
