"""Means over a client's examples do not depend on micro-batches, and clients may be empty."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.templates import micro_batches

IMAGES = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)


def examples(count):
    fields = {"example_id": np.arange(count), "image": IMAGES[:count]}
    # `batch` and `unbatch` leave the number of examples unknown, as a store's query does.
    return tf.data.Dataset.from_tensor_slices(fields).batch(4).unbatch()


@pytest.mark.parametrize("count", [0, 1, 11])
def test_all_examples_are_read_in_order(count):
    read = tf.function(lambda: micro_batches.read_all(examples(count)))()
    np.testing.assert_array_equal(read["example_id"], np.arange(count))
    np.testing.assert_array_equal(read["image"], IMAGES[:count])
    assert read["example_id"].dtype == tf.int64


@pytest.mark.parametrize("batch_size", [1, 4, 11, 20])
def test_the_mean_does_not_depend_on_the_micro_batches(batch_size):
    def mean_square(batch):
        return {"square": tf.reduce_mean(tf.square(batch["image"]), 0)}

    @tf.function
    def mean():
        zeros = {"square": tf.zeros([3])}
        everything = micro_batches.read_all(examples(11))
        return micro_batches.mean_over_batch(everything, mean_square, zeros, batch_size)

    value, count = mean()
    assert count == 11
    np.testing.assert_allclose(value["square"], (IMAGES**2).mean(0), rtol=1e-6)
