"""Norm layers and weight standardization against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models import layers


@pytest.mark.parametrize("shape", [(3, 5, 4, 8), (6, 8)])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_group_norm_equals_numpy(shape, groups):
    rng = np.random.default_rng(0)
    x = rng.normal(2.0, 3.0, shape).astype(np.float32)
    scale, offset = rng.normal(size=(2, 8)).astype(np.float32)
    grouped = x.reshape(shape[0], -1, groups, 8 // groups)
    mean = grouped.mean((1, 3), keepdims=True)
    variance = grouped.var((1, 3), keepdims=True)
    expected = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(shape) * scale + offset
    actual = layers.group_norm(*map(tf.constant, (x, scale, offset)), groups)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_group_norm_refuses_groups_that_do_not_divide():
    with pytest.raises(ValueError, match="3 groups do not divide 8 channels"):
        layers.group_norm(tf.zeros([1, 2, 2, 8]), tf.ones([8]), tf.zeros([8]), 3)


def test_group_norm_does_not_mix_examples():
    x = tf.random.stateless_normal([4, 6, 6, 8], [1, 2])
    together = layers.group_norm(x, tf.ones([8]), tf.zeros([8]), 2)
    alone = layers.group_norm(x[2:3], tf.ones([8]), tf.zeros([8]), 2)
    np.testing.assert_allclose(together[2:3], alone, rtol=1e-6, atol=1e-6)


def test_standardized_weights_have_mean_0_and_deviation_1_per_output():
    weight = tf.random.stateless_normal([3, 3, 5, 7], [0, 1], mean=4.0, stddev=2.0)
    standardized = layers.standardize_weight(weight).numpy().reshape(-1, 7)
    np.testing.assert_allclose(standardized.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(standardized.std(0), 1.0, rtol=1e-5)


def test_he_normal_has_variance_2_over_fan_in():
    spec = layers.ParameterSpec("w", (3, 3, 64, 128), "he_normal", True)
    values = layers.initialize(spec, tf.constant([0, 1], tf.int64)).numpy()
    assert values.var() == pytest.approx(2 / (9 * 64), rel=0.02)
