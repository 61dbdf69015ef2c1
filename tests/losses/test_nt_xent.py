"""NT-Xent against an independent NumPy calculation."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_ssl.losses import nt_xent, segments


def numpy_nt_xent(z1, z2, temperature):
    """SimCLR's Eq. 1, one anchor after the other, in float64; per example, mean of two anchors."""
    z = np.concatenate([z1, z2])
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    n = len(z1)
    losses = []
    for i in range(2 * n):
        positive = (i + n) % (2 * n)
        others = [np.exp(z[i] @ z[k] / temperature) for k in range(2 * n) if k != i]
        losses.append(-np.log(np.exp(z[i] @ z[positive] / temperature) / sum(others)))
    return (np.array(losses[:n]) + np.array(losses[n:])) / 2


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    temperature=st.sampled_from([0.1, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
def test_equals_numpy_within_each_client(sizes, temperature, seed):
    rng = np.random.default_rng(seed)
    z1, z2 = rng.normal(size=(2, sum(sizes), 6))
    client = np.repeat(rng.permutation(len(sizes)), sizes)
    actual = nt_xent.nt_xent(
        tf.constant(z1, tf.float32),
        tf.constant(z2, tf.float32),
        segments.by_client(tf.constant(client)),
        temperature,
    )
    for k in np.unique(client):
        rows = client == k
        expected = numpy_nt_xent(z1[rows], z2[rows], temperature)
        np.testing.assert_allclose(actual.numpy()[rows], expected, rtol=1e-4, atol=1e-5)


def test_one_example_has_no_negatives_and_no_loss():
    z = tf.constant([[1.0, 2.0]])
    assert float(nt_xent.nt_xent(z, -z, segments.one(1), 0.1)[0]) == pytest.approx(0, abs=1e-5)


def test_the_scale_of_the_projections_does_not_matter():
    rng = np.random.default_rng(0)
    z1, z2 = (tf.constant(z, tf.float32) for z in rng.normal(size=(2, 5, 4)))
    one = segments.one(5)
    np.testing.assert_allclose(
        nt_xent.nt_xent(3 * z1, 0.2 * z2, one, 0.5), nt_xent.nt_xent(z1, z2, one, 0.5), rtol=1e-4
    )


def test_further_negatives_are_those_of_every_anchor():
    rng = np.random.default_rng(0)
    z1, z2 = rng.normal(size=(2, 4, 3))
    rows = rng.normal(size=(5, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    z = np.concatenate([z1, z2])
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    losses = []
    for i in range(8):
        others = [np.exp(z[i] @ z[k] / 0.5) for k in range(8) if k != i]
        others += [np.exp(z[i] @ row / 0.5) for row in rows]
        losses.append(-np.log(np.exp(z[i] @ z[(i + 4) % 8] / 0.5) / sum(others)))
    z1, z2 = (tf.constant(x, tf.float32) for x in (z1, z2))
    # Rows of zeros are no negatives.
    negatives = tf.constant(np.concatenate([rows, np.zeros([3, 3])]), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(negatives)
        actual = nt_xent.nt_xent(z1, z2, segments.one(4), 0.5, negatives)
    np.testing.assert_allclose(actual, np.mean([losses[:4], losses[4:]], 0), rtol=1e-4)
    assert tape.gradient(actual, negatives) is None
    without = nt_xent.nt_xent(z1, z2, segments.one(4), 0.5)
    np.testing.assert_allclose(
        nt_xent.nt_xent(z1, z2, segments.one(4), 0.5, negatives[5:]), without, rtol=1e-6
    )
