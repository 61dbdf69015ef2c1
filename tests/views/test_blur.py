"""Gaussian blur against SciPy."""

import numpy as np
import pytest
import scipy.ndimage
import tensorflow as tf

from tests.views.inputs import fixed_draws, unit_images
from tff_ssl.views import blur
from tff_ssl.views.policies import ViewPolicy


@pytest.mark.parametrize(("size", "radius"), [(12, 1), (32, 1), (60, 3), (224, 11)])
def test_blur_equals_scipy(size, radius):
    x = unit_images(2, size)
    policy = ViewPolicy(blur=(1.0, 0.1))
    odd = tf.constant([0, 1], tf.int64)
    actual = blur.gaussian_blur(policy, fixed_draws(sigma=[0.6, 0.6]), odd, tf.constant(x))
    sigma = 0.1 + 0.6 * 1.9
    expected = scipy.ndimage.gaussian_filter(
        x[0].astype(np.float64), (sigma, sigma, 0), mode="reflect", truncate=radius / sigma
    )
    np.testing.assert_allclose(actual[0], expected, atol=1e-5)
    np.testing.assert_array_equal(actual[1], x[1])


def test_narrow_images_are_blurred_with_a_smaller_kernel():
    x, policy = unit_images(2, 60)[:, :, :2], ViewPolicy(blur=(1.0, 1.0))
    odd = tf.constant([0, 1], tf.int64)
    actual = blur.gaussian_blur(policy, fixed_draws(sigma=[0.6, 0.6]), odd, tf.constant(x))
    sigma = 0.1 + 0.6 * 1.9
    expected = scipy.ndimage.gaussian_filter(
        x[0].astype(np.float64), (sigma, sigma, 0), mode="reflect", truncate=2 / sigma
    )
    np.testing.assert_allclose(actual[0], expected, atol=1e-5)
