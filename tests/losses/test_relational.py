"""FedX's relational loss against its definition in NumPy, and its properties."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.losses.relational import relational

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 5, 3))
OTHERS = RNG.normal(size=(7, 3))


def loss(a, b, others, temperature, mixture_temperature, divergence="code"):
    arrays = (tf.constant(x, tf.float32) for x in (a, b, others))
    return relational(*arrays, temperature, mixture_temperature, divergence).numpy()


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def by_hand(divergence, temperature, mixture_temperature):
    def unit(x):
        return x / np.linalg.norm(x)

    losses = []
    for a, b in zip(A, B, strict=True):
        s = [np.array([unit(x) @ unit(o) for o in OTHERS]) for x in (a, b)]
        q = [softmax(x / temperature) for x in s]
        m = (softmax(s[0] / mixture_temperature) + softmax(s[1] / mixture_temperature)) / 2
        pairs = [(m, x) if divergence == "code" else (x, m) for x in q]
        losses.append(sum(np.sum(p * np.log(p / r)) for p, r in pairs) / 2)
    return losses


@pytest.mark.parametrize("divergence", ["code", "js"])
@pytest.mark.parametrize("temperatures", [(0.5, 0.5), (0.5, 0.2), (0.2, 0.5)])
def test_the_definition(divergence, temperatures):
    got = loss(A, B, OTHERS, *temperatures, divergence)
    np.testing.assert_allclose(got, by_hand(divergence, *temperatures), rtol=1e-4)


def test_it_is_zero_for_equal_views_or_a_single_other_image():
    np.testing.assert_allclose(loss(A, A, OTHERS, 0.1, 0.1), 0, atol=1e-6)
    np.testing.assert_allclose(loss(A, B, OTHERS[:1], 0.1, 0.3), 0, atol=1e-6)
    # With a sharper mixture, equal views are drawn to a sharper distribution.
    assert loss(A, A, OTHERS, 0.5, 0.1).min() > 1e-3


def test_symmetries():
    expected = loss(A, B, OTHERS, 0.3, 0.2)
    np.testing.assert_allclose(loss(B, A, OTHERS, 0.3, 0.2), expected, rtol=1e-5)
    np.testing.assert_allclose(loss(A, B, OTHERS[::-1], 0.3, 0.2), expected, rtol=1e-5)
    np.testing.assert_allclose(loss(3 * A, 0.5 * B, 2 * OTHERS, 0.3, 0.2), expected, rtol=1e-4)


def test_it_is_finite_where_probabilities_vanish():
    x = tf.constant([[1.0, 0.0]])
    y = tf.constant([[0.0, 1.0]])
    with tf.GradientTape() as tape:
        tape.watch((x, y))
        value = relational(x, y, tf.concat([x, -x, y, -y], 0), 0.005, 0.005)
    assert np.isfinite(value.numpy()).all()
    assert all(np.isfinite(g.numpy()).all() for g in tape.gradient(value, (x, y)))
