"""Feature extraction against direct calculation."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.evaluation import features


def random_images(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 4, 3, 2), dtype=np.uint8)


def channel_sums(images):
    return tf.reduce_sum(tf.cast(images, tf.float32), axis=[1, 2])


@pytest.mark.parametrize(("n", "batch_size"), [(1, 8), (7, 8), (8, 8), (9, 8), (25, 8), (5, 1)])
def test_extract_keeps_all_rows_in_order(n, batch_size):
    images = random_images(n)
    result = features.extract(channel_sums, images, batch_size)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, images.sum(axis=(1, 2), dtype=np.float32))


def test_extract_traces_a_plain_function_once():
    shapes = []

    def encode(images):
        shapes.append(images.shape)
        return channel_sums(images)

    features.extract(encode, random_images(25), batch_size=8)
    assert shapes == [(8, 4, 3, 2)]


def test_extract_does_not_retrace_a_tf_function_with_other_weights(monkeypatch):
    traces = []

    @tf.function
    def encode(weights, images):
        traces.append(images.shape)
        return weights * channel_sums(images)

    monkeypatch.setattr(tf, "function", None)  # Another wrapper would be traced.
    images = random_images(20)
    for factor in (1.0, 2.0, 3.0):
        result = features.extract(functools.partial(encode, tf.constant(factor)), images, 8)
        np.testing.assert_array_equal(result, factor * images.sum(axis=(1, 2), dtype=np.float32))
    assert len(traces) == 1


def test_extract_turns_half_precision_into_float32():
    result = features.extract(lambda x: tf.cast(channel_sums(x), tf.bfloat16), random_images(3))
    assert result.dtype == np.float32


def test_extract_refuses_wrong_shapes():
    with pytest.raises(ValueError, match=r"features \[2, d\].*found shape \[2, 4, 3\]"):
        features.extract(lambda x: tf.cast(x[..., 0], tf.float32), random_images(2))
    with pytest.raises(ValueError, match="uint8"):
        features.extract(channel_sums, random_images(2).astype(np.float32))
    with pytest.raises(ValueError, match="n >= 1"):
        features.extract(channel_sums, random_images(0))
    with pytest.raises(ValueError, match="batch_size"):
        features.extract(channel_sums, random_images(2), batch_size=0)


def test_raw_pixels():
    images = np.array([[[[0], [255]]], [[[51], [102]]]], np.uint8)  # [2, 1, 2, 1]
    result = features.raw_pixels(images)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, [[0.0, 1.0], [0.2, 0.4]], rtol=1e-6)
