"""Means of paired encodings, about which their second moments are taken."""

from typing import NamedTuple

import tensorflow as tf


class Means(NamedTuple):
    """A point for each of two encodings, such as the means of a batch or of an earlier cohort.

    Each is float32 [d], or [n, d] with one for each example.
    """

    f: tf.Tensor
    g: tf.Tensor


def zero(d: int) -> Means:
    """The origin of d-dimensional encodings."""
    return Means(tf.zeros([d]), tf.zeros([d]))


def of_batch(f: tf.Tensor, g: tf.Tensor) -> Means:
    """Means of paired encodings, [n, d] each, without a gradient."""
    return Means(tf.stop_gradient(tf.reduce_mean(f, 0)), tf.stop_gradient(tf.reduce_mean(g, 0)))
