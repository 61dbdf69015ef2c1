"""Threefry: random bits as a pure function of a key and a counter, for views and masks."""

import tensorflow as tf


def threefry(
    key: tuple[tf.Tensor, tf.Tensor], counter: tuple[tf.Tensor, tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Threefry2x64-20 (Salmon et al., SC 2011, "Parallel random numbers: as easy as 1, 2, 3").

    For each key, the function is a bijection of the counter. All are pairs of uint64 tensors; those
    of key and counter broadcast.
    """
    rotations = (16, 42, 12, 31, 16, 32, 24, 21)
    keys = (*key, key[0] ^ key[1] ^ tf.constant(0x1BD11BDAA9FC1A22, tf.uint64))
    x0, x1 = counter[0] + keys[0], counter[1] + keys[1]
    for i in range(20):
        left = tf.constant(rotations[i % 8], tf.uint64)
        x0 += x1
        x1 = tf.bitwise.left_shift(x1, left) | tf.bitwise.right_shift(x1, 64 - left)
        x1 ^= x0
        if i % 4 == 3:
            n = i // 4 + 1
            x0, x1 = x0 + keys[n % 3], x1 + keys[(n + 1) % 3] + tf.constant(n, tf.uint64)
    return x0, x1


def to_uint64(integers: int | tf.Tensor) -> tf.Tensor:
    """Integers as the uint64 words that `threefry` takes, of the same shape."""
    return tf.cast(tf.cast(integers, tf.int64), tf.uint64)
