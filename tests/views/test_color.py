"""Color jitter, grayscale and solarization against colorsys and NumPy."""

import colorsys
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.views.inputs import fixed_draws, unit_images
from tff_ssl.views import color
from tff_ssl.views.policies import POLICIES, ViewPolicy


def _per_pixel(function, x: np.ndarray) -> np.ndarray:
    return np.array([function(*pixel) for pixel in x.reshape(-1, 3)]).reshape(x.shape)


def _amount(value: float) -> tf.Tensor:
    return tf.constant(value, tf.float32, [1, 1, 1, 1])


@pytest.mark.parametrize("amount", [-0.5, -0.13, 0.0, 0.1, 0.4])
def test_hue_equals_colorsys(amount):
    x = unit_images()
    x[0, 0] = np.round(x[0, 0])  # pure colors, black and white
    x[0, 1] = x[0, 1, :, :1]  # grays

    def turn(r, g, b):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return colorsys.hsv_to_rgb((h + amount) % 1.0, s, v)

    actual = color.adjust_hue(tf.constant(x), _amount(amount))
    np.testing.assert_allclose(actual, _per_pixel(turn, x), atol=2e-6)


@pytest.mark.parametrize("amount", [0.0, 0.6, 1.0, 1.8])
def test_saturation_equals_colorsys(amount):
    x = unit_images()
    x[0, 0] = np.round(x[0, 0])

    def saturate(r, g, b):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return colorsys.hsv_to_rgb(h, min(s * amount, 1.0), v)

    actual = color.adjust_saturation(tf.constant(x), _amount(amount))
    np.testing.assert_allclose(actual, _per_pixel(saturate, x), atol=2e-6)


def test_contrast_equals_numpy():
    x = unit_images(3)
    mean = x.mean(axis=(1, 2), keepdims=True, dtype=np.float64)
    actual = color.adjust_contrast(tf.constant(x), tf.constant([[[[0.3]]], [[[1.0]]], [[[1.7]]]]))
    factor = np.array([0.3, 1.0, 1.7])[:, None, None, None]
    np.testing.assert_allclose(actual, mean + factor * (x - mean), atol=2e-6)


def test_jitter_applies_each_adjustment_once_in_the_drawn_order():
    permutations = list(itertools.permutations(range(4)))
    x = np.repeat(unit_images(), 25, axis=0)
    uniforms = {"brightness": 0.9, "contrast": 0.8, "saturation": 0.1, "hue": 0.9}
    draws = fixed_draws(
        order=[*((i + 0.5) / 24 for i in range(24)), 0.0], jitter=[0.79] * 24 + [0.81], **uniforms
    )
    actual = color.jitter(POLICIES["byol"], draws, tf.constant(x)).numpy()
    np.testing.assert_array_equal(actual[24], x[24])
    steps = [
        lambda v: v + 0.32,
        lambda v: color.adjust_contrast(v, _amount(1.24)),
        lambda v: color.adjust_saturation(v, _amount(0.84)),
        lambda v: color.adjust_hue(v, _amount(0.08)),
    ]
    for image, order in zip(actual, permutations, strict=False):
        expected = tf.constant(x[:1])
        for step in order:
            expected = np.clip(steps[step](expected), 0, 1)
        np.testing.assert_allclose(image, expected[0], atol=1e-5)
    assert len({image.tobytes() for image in actual}) > 12  # the order matters


def test_brightness_as_a_factor():
    policy = ViewPolicy(jitter=1.0, brightness=0.8, brightness_is_factor=True)
    x = unit_images()
    actual = color.jitter(policy, fixed_draws(brightness=0.25), tf.constant(x))
    np.testing.assert_allclose(actual, 0.6 * x, atol=1e-6)


def test_grayscale_is_the_luma():
    x = unit_images(2)
    actual = color.to_grayscale(POLICIES["byol"], fixed_draws(grayscale=[0.1, 0.3]), tf.constant(x))
    luma = x[0] @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(actual[0], np.repeat(luma[..., None], 3, axis=-1), atol=1e-6)
    np.testing.assert_array_equal(actual[1], x[1])


def test_solarize_inverts_bright_pixels_of_odd_views():
    x = np.array([0.0, 0.4, 0.5, 0.9, 1.0], np.float32).reshape(1, 1, 5, 1).repeat(2, axis=0)
    odd = tf.constant([0, 1], tf.int64)
    actual = color.solarize(POLICIES["byol"], fixed_draws(solarize=[0.1, 0.1]), odd, tf.constant(x))
    np.testing.assert_array_equal(actual[0], x[0])
    np.testing.assert_allclose(np.ravel(actual[1]), [0.0, 0.4, 0.5, 0.1, 0.0], atol=1e-6)
