"""CCO against an independent NumPy calculation, finite differences and closed forms."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_ssl.losses import cco, segments
from tff_ssl.losses.means import Means
from tff_ssl.objectives.statistics import (
    STATISTICS_LOSSES,
    combined_statistics,
    statistics_of_batch,
)

CCO = STATISTICS_LOSSES["cco"]
ORIGIN = Means(0.0, 0.0)


def numpy_cco(f, g, lambda_):
    """Eq. 1 with correlation coefficients from NumPy's corrcoef, in float64."""
    d = f.shape[1]
    c = np.corrcoef(f.T, g.T)[:d, d:]
    off_diagonal = c[~np.eye(d, dtype=bool)]
    return np.sum((1 - np.diag(c)) ** 2) + lambda_ * np.sum(off_diagonal**2) / (d - 1)


def pairs(n=20, d=6, seed=0):
    rng = np.random.default_rng(seed)
    f = rng.normal(0.5, 2.0, (n, d))
    g = 0.7 * f + rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) - 1.0
    return f.astype(np.float32), g.astype(np.float32)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(4, 40), d=st.integers(2, 9), seed=st.integers(0, 1000))
def test_equals_numpy(n, d, seed):
    f, g = pairs(n, d, seed)
    expected = numpy_cco(f.astype(float), g.astype(float), 20.0)
    assert float(cco.cco(f, g, 20.0).loss) == pytest.approx(expected, rel=2e-3)


def test_terms_add_up():
    terms = cco.cco(*pairs(), 20.0)
    assert float(terms.loss) == pytest.approx(float(terms.on_diagonal + 20 * terms.off_diagonal))


def test_gradient_equals_finite_differences():
    f, g = (tf.constant(x, tf.float64) for x in pairs(12, 4))
    with tf.GradientTape() as tape:
        tape.watch([f, g])
        loss = cco.cco(f, g, 20.0).loss
    gradients = tape.gradient(loss, [f, g])
    step = 1e-6
    for index, (x, gradient) in enumerate(zip((f, g), gradients, strict=True)):
        for position in [(0, 0), (5, 2), (11, 3)]:
            moved = []
            for sign in (1, -1):
                y = x.numpy().copy()
                y[position] += sign * step
                moved.append(cco.cco(*((y, g) if index == 0 else (f, y)), 20.0).loss)
            expected = (moved[0] - moved[1]) / (2 * step)
            assert float(gradient[position]) == pytest.approx(float(expected), rel=1e-5)


def test_equal_and_uncorrelated_encodings_have_loss_0():
    f = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], np.float32)
    assert float(cco.cco(f, f, 20.0).loss) == pytest.approx(0.0, abs=1e-6)


def test_copies_of_one_unit_cost_lambda_times_d():
    f = np.random.default_rng(0).normal(size=(50, 1)).astype(np.float32).repeat(5, axis=1)
    terms = cco.cco(f, f, 20.0)
    # All correlations are 1: d (d - 1) of them off the diagonal, over d - 1.
    assert float(terms.off_diagonal) == pytest.approx(5.0, rel=1e-4)
    assert float(terms.on_diagonal) == pytest.approx(0.0, abs=1e-6)


def test_paper_normalization_at_1024_dimensions_is_barlow_twins_with_0_0196():
    f, g = pairs(64, 1024)
    d = 1024
    c = np.corrcoef(f.T, g.T)[:d, d:]
    barlow = np.sum((1 - np.diag(c)) ** 2) + 0.01955 * np.sum(c[~np.eye(d, dtype=bool)] ** 2)
    assert float(cco.cco(f, g, 20.0).loss) == pytest.approx(barlow, rel=1e-3)


def test_statistics_of_a_union_are_the_weighted_mean():
    f, g = pairs(20)
    reference = Means(f[0], g[1])
    whole = cco.encoding_statistics(f, g, reference)
    parts = [
        (3, cco.encoding_statistics(f[:3], g[:3], reference)),
        (17, cco.encoding_statistics(f[3:], g[3:], reference)),
    ]
    for i, expected in enumerate(whole):
        mean = sum(n / 20 * statistics[i] for n, statistics in parts)
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)


def test_centred_statistics_are_those_of_numpy_for_any_reference():
    f, g = pairs(30)
    covariance = np.cov(f.T, g.T, bias=True)
    for reference in (ORIGIN, Means(f[0], g[1])):
        centred = cco.centred(cco.encoding_statistics(f, g, reference), reference)
        expected = (f.mean(0), f.var(0), g.mean(0), g.var(0), covariance[:6, 6:])
        for actual, value in zip(centred, expected, strict=True):
            np.testing.assert_allclose(actual, value, rtol=1e-4, atol=1e-5)


def numpy_gradient(f, g, lambda_):
    """Gradient of Eq. 1 with respect to F and G in float64; `VARIANCE_EPSILON` is left out."""
    n, d = f.shape
    f, g = f - f.mean(0), g - g.mean(0)
    f_std, g_std = f.std(0), g.std(0)
    f, g = f / f_std, g / g_std
    c = f.T @ g / n
    slope = 2 * lambda_ * c / (d - 1)
    slope[np.diag_indices(d)] = -2 * (1 - np.diag(c))
    by_f = (g @ slope.T - f * np.sum(slope * c, 1)) / f_std / n
    by_g = (f @ slope - g * np.sum(slope * c, 0)) / g_std / n
    return by_f, by_g


@pytest.mark.parametrize("offset", [10.0, 100.0, 1000.0])
def test_a_large_mean_costs_no_digits(offset):
    """Two clients, whose reference is off by a tenth of a deviation, as an earlier mean may be."""
    f, g = (x + np.float32(offset) for x in pairs(40))
    exact = f.astype(float), g.astype(float)
    expected = numpy_cco(*exact, 20.0)
    gradients = numpy_gradient(*exact, 20.0)
    size = np.linalg.norm(gradients)
    reference = Means(*(np.float32(x.mean(0) + 0.1 * x.std(0)) for x in exact))
    parts = [slice(0, 15), slice(15, 40)]
    local = [CCO.of_batch(f[part], g[part], reference) for part in parts]
    mean = tf.nest.map_structure(lambda a, b: (15 * a + 25 * b) / 40, *local)
    aggregated = CCO.centred(mean, reference)
    for part in parts:
        encodings = [tf.constant(f[part]), tf.constant(g[part])]
        with tf.GradientTape() as tape:
            tape.watch(encodings)
            combined = combined_statistics(CCO, *encodings, aggregated)
            loss = cco.cco_from_statistics(combined, 20.0).loss
        assert float(loss) == pytest.approx(expected, rel=2e-5)
        for actual, whole in zip(tape.gradient(loss, encodings), gradients, strict=True):
            # The loss of the client's mean has the gradient of the union's, times 40 over n_k.
            share = len(encodings[0]) / 40
            np.testing.assert_allclose(share * actual, whole[part], rtol=0, atol=2e-5 * size)
    encodings = [tf.constant(f), tf.constant(g)]
    with tf.GradientTape() as tape:
        tape.watch(encodings)
        loss = cco.cco(*encodings, 20.0).loss
    assert float(loss) == pytest.approx(expected, rel=2e-5)
    for actual, whole in zip(tape.gradient(loss, encodings), gradients, strict=True):
        np.testing.assert_allclose(actual, whole, rtol=0, atol=2e-5 * size)
    within = cco.cco_within_clients(*encodings, segments.one(40), 20.0).loss
    assert float(within[0]) == pytest.approx(expected, rel=2e-5)


def test_combined_statistics_have_aggregated_values_and_local_gradients():
    f, g = (tf.constant(x) for x in pairs(8))
    aggregated = statistics_of_batch(CCO, *pairs(30, seed=1))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(f)
        combined = combined_statistics(CCO, f, g, aggregated)
        combined_sum = tf.reduce_sum(combined.f_g) + tf.reduce_sum(combined.f_squared)
        about = [f - aggregated.f, g - aggregated.g]
        products = tf.transpose(about[0]) @ about[1]
        local_sum = (tf.reduce_sum(products) + tf.reduce_sum(tf.square(about[0]))) / 8
    for value, expected in zip(combined, aggregated, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        tape.gradient(combined_sum, f), tape.gradient(local_sum, f), rtol=1e-4, atol=1e-6
    )


def test_gradient_with_earlier_statistics_equals_the_closed_form():
    """The on-diagonal gradient after a shift of all encodings by `moved`; 0 without a shift."""
    f, g = pairs(n=64, d=1)
    earlier = statistics_of_batch(CCO, tf.constant(f), tf.constant(g))
    c = cco.correlation(earlier).numpy().item()
    for moved in (0.0, 0.3):
        shifted = [tf.constant(f + np.float32(moved)), tf.constant(g + np.float32(moved))]
        centre = Means(earlier.f + moved, earlier.g + moved)
        for follows in (False, True):
            with tf.GradientTape() as tape:
                tape.watch(shifted)
                statistics = combined_statistics(
                    CCO, *shifted, earlier, centre if follows else None
                )
                loss = tf.reduce_sum(tf.square(1 - cco.correlation(statistics)))
            gradient, _ = tape.gradient(loss, shifted)
            error = 0.0 if follows else moved
            expected = -2 * (1 - c) * (error / np.sqrt(f.var() * g.var()) - c * error / f.var())
            np.testing.assert_allclose(tf.reduce_sum(gradient), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("n", [1, 5])
def test_encodings_that_do_not_vary_give_finite_values_and_gradients(n):
    f = tf.ones([n, 3])
    with tf.GradientTape() as tape:
        tape.watch(f)
        terms = cco.cco(f, f, 20.0)
    assert float(terms.on_diagonal) == pytest.approx(3.0)
    assert np.all(np.isfinite(tape.gradient(terms.loss, f)))


def test_encoding_std_equals_numpy_and_sees_collapse():
    f, g = pairs(200)
    statistics = statistics_of_batch(CCO, f, g)
    assert float(cco.encoding_std(statistics)) == pytest.approx(f.std(0).mean(), rel=1e-4)
    collapsed = statistics_of_batch(CCO, tf.ones([9, 4]), tf.ones([9, 4]))
    assert float(cco.encoding_std(collapsed)) == pytest.approx(0.0, abs=1e-4)


def test_one_dimension_is_refused():
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        cco.cco(tf.zeros([3, 1]), tf.zeros([3, 1]), 20.0)


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(3, 12), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_within_clients_equals_each_client_alone(sizes, seed):
    f, g = pairs(sum(sizes), 5, seed)
    client = np.repeat(np.arange(len(sizes)) * 7 + 1, sizes)
    actual = cco.cco_within_clients(f, g, segments.by_client(tf.constant(client)), 20.0)
    for k, number in enumerate(np.unique(client)):
        rows = client == number
        expected = numpy_cco(f[rows].astype(float), g[rows].astype(float), 20.0)
        assert float(actual.loss[k]) == pytest.approx(expected, rel=5e-3)
