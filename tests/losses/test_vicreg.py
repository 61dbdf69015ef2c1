"""VICReg against an independent NumPy calculation and finite differences."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_ssl.losses import segments, vicreg
from tff_ssl.losses.means import Means
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, statistics_of_batch


def statistics(f, g):
    return statistics_of_batch(STATISTICS_LOSSES["vicreg"], f, g)


def numpy_vicreg(f, g, weights=(25.0, 25.0, 1.0)):
    """Eq. 6 in float64; variances divide by n."""
    d = f.shape[1]
    invariance = np.mean((f - g) ** 2)
    variance = covariance = 0.0
    for x in (f, g):
        c = np.cov(x.T, bias=True)
        variance += np.mean(np.maximum(0, 1 - np.sqrt(np.diag(c) + 1e-4)))
        covariance += np.sum(c[~np.eye(d, dtype=bool)] ** 2) / d
    return np.dot(weights, (invariance, variance, covariance))


def pairs(n, d, seed, scale=0.7):
    rng = np.random.default_rng(seed)
    f = scale * rng.normal(0.5, 1.0, (n, d))
    return f.astype(np.float32), (f + rng.normal(0, 0.3, (n, d))).astype(np.float32)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 30), d=st.integers(2, 9), seed=st.integers(0, 1000))
def test_equals_numpy(n, d, seed):
    f, g = pairs(n, d, seed)
    actual = vicreg.vicreg_from_statistics(statistics(f, g))
    expected = numpy_vicreg(f.astype(float), g.astype(float))
    assert float(actual.loss) == pytest.approx(expected, rel=1e-3)


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(2, 6), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_within_clients_equals_each_client_alone(sizes, seed):
    f, g = pairs(sum(sizes), 7, seed)
    client = np.repeat(np.arange(len(sizes)) * 10 + 3, sizes)
    actual = vicreg.vicreg_within_clients(f, g, segments.by_client(tf.constant(client)))
    for k, number in enumerate(np.unique(client)):
        rows = client == number
        expected = numpy_vicreg(f[rows].astype(float), g[rows].astype(float))
        assert float(actual.loss[k]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("offset", [10.0, 100.0, 1000.0])
def test_a_large_mean_costs_no_digits(offset):
    f, g = (x + np.float32(offset) for x in pairs(30, 6, 0))
    expected = numpy_vicreg(f.astype(float), g.astype(float))
    loss = vicreg.vicreg_from_statistics(statistics(f, g)).loss
    assert float(loss) == pytest.approx(expected, rel=2e-5)


def test_gradient_equals_finite_differences():
    f, g = (tf.constant(x) for x in pairs(12, 4, 0, scale=0.4))

    def loss(f, g):
        return vicreg.vicreg_from_statistics(statistics(f, g)).loss

    with tf.GradientTape() as tape:
        tape.watch([f, g])
        value = loss(f, g)
    gradients = tape.gradient(value, [f, g])
    for index, gradient in enumerate(gradients):
        for position in [(0, 0), (5, 2), (11, 3)]:
            moved = []
            for sign in (1, -1):
                both = [f.numpy().astype(float), g.numpy().astype(float)]
                both[index][position] += sign * 1e-5
                moved.append(numpy_vicreg(*both))
            expected = (moved[0] - moved[1]) / 2e-5
            assert float(gradient[position]) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_statistics_of_a_union_are_weighted_means():
    f, g = pairs(10, 3, 1)
    reference = Means(f[0], g[1])
    parts = [vicreg.encoding_statistics(f[a:b], g[a:b], reference) for a, b in ((0, 3), (3, 10))]
    whole = vicreg.encoding_statistics(f, g, reference)
    for a, b, w in zip(*parts, whole, strict=True):
        np.testing.assert_allclose(0.3 * a + 0.7 * b, w, rtol=1e-4, atol=1e-5)


def test_equal_uncorrelated_encodings_of_std_1_have_loss_0():
    f = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], np.float32)
    terms = vicreg.vicreg_from_statistics(statistics(f, f))
    assert float(terms.loss) == pytest.approx(0.0, abs=1e-5)
    collapsed = vicreg.vicreg_from_statistics(statistics(0 * f, 0 * f))
    assert float(collapsed.loss) == pytest.approx(25 * 2 * (1 - 0.01), rel=1e-4)
    assert float(vicreg.encoding_std(statistics(2 * f, f))) == pytest.approx(2)
