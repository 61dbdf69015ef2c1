"""BYOL's and SimSiam's losses against closed forms, and their stopped gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.losses import cosine

RNG = np.random.default_rng(0)
P1, P2, Z1, Z2 = (tf.constant(x, tf.float32) for x in RNG.normal(size=(4, 5, 3)))


def numpy_cosine(a, b):
    return np.sum(a * b, 1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_values():
    forth, back = numpy_cosine(P1.numpy(), Z2.numpy()), numpy_cosine(P2.numpy(), Z1.numpy())
    np.testing.assert_allclose(cosine.byol(P1, P2, Z1, Z2), 4 - 2 * forth - 2 * back, rtol=1e-5)
    np.testing.assert_allclose(cosine.simsiam(P1, P2, Z1, Z2), -(forth + back) / 2, rtol=1e-5)


def test_byol_in_both_directions_is_the_sum_of_two():
    forth, back = cosine.byol_one_direction(P1, Z2), cosine.byol_one_direction(P2, Z1)
    np.testing.assert_allclose(forth, 2 - 2 * numpy_cosine(P1.numpy(), Z2.numpy()), rtol=1e-5)
    np.testing.assert_allclose(cosine.byol(P1, P2, Z1, Z2), forth + back, rtol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(Z2)
        value = cosine.byol_one_direction(P1, Z2)
    assert tape.gradient(value, Z2) is None


def test_byol_is_the_squared_distance_of_unit_vectors():
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (P1, P2, Z1, Z2)]
    expected = np.sum((unit[0] - unit[3]) ** 2, 1) + np.sum((unit[1] - unit[2]) ** 2, 1)
    np.testing.assert_allclose(cosine.byol(P1, P2, Z1, Z2), expected, rtol=1e-5)


@pytest.mark.parametrize("loss", [cosine.byol, cosine.simsiam])
def test_no_gradient_flows_into_the_other_branch(loss):
    with tf.GradientTape() as tape:
        tape.watch([P1, P2, Z1, Z2])
        value = tf.reduce_sum(loss(P1, P2, Z1, Z2))
    p1, p2, z1, z2 = tape.gradient(value, [P1, P2, Z1, Z2])
    assert z1 is None
    assert z2 is None
    assert np.linalg.norm(p1) > 0.01
    assert np.linalg.norm(p2) > 0.01
