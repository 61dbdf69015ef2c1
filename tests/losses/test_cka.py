"""Linear CKA against its definition by n x n kernels, and its invariances."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.losses.cka import linear_cka

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 8)) @ np.diag(np.linspace(1, 4, 8)) + RNG.normal(size=8)
Y = X[:, :5] ** 2 + RNG.normal(size=(50, 5))


def cka(x, y, **options):
    actual = linear_cka(tf.constant(x, tf.float32), tf.constant(y, tf.float32), **options)
    assert actual.dtype == tf.float32
    assert actual.shape == []
    return float(actual)


def kernel_cka(x, y, centred):
    """Kornblith et al. 2019, Eq. 2 and 3, with kernels [n, n]."""
    n = len(x)
    h = np.eye(n) - 1 / n if centred else np.eye(n)

    def hsic(k, other):
        return np.trace(k @ h @ other @ h) / (n - 1) ** 2

    k, other = x @ x.T, y @ y.T
    return hsic(k, other) / np.sqrt(hsic(k, k) * hsic(other, other))


@pytest.mark.parametrize("uncentred", [False, True])
@pytest.mark.parametrize("n", [50, 3])  # More inputs than features, and fewer.
def test_equals_the_definition_with_kernels(n, uncentred):
    expected = kernel_cka(X[:n], Y[:n], not uncentred)
    assert 0.05 < expected < 0.97
    assert cka(X[:n], Y[:n], uncentred=uncentred) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("uncentred", [False, True])
def test_is_one_for_itself_and_symmetric(uncentred):
    assert cka(X, X, uncentred=uncentred) == pytest.approx(1, abs=1e-5)
    there, back = cka(X, Y, uncentred=uncentred), cka(Y, X, uncentred=uncentred)
    assert there == pytest.approx(back, rel=1e-5)


def test_does_not_depend_on_rotation_scale_and_offset():
    rotation, _ = np.linalg.qr(RNG.normal(size=(8, 8)))
    for scale in (1e-3, -1, 1e6):
        assert cka(X, scale * X @ rotation) == pytest.approx(1, abs=1e-5)
        assert cka(scale * X @ rotation, Y) == pytest.approx(cka(X, Y), rel=1e-4)
        assert cka(X, scale * X @ rotation, uncentred=True) == pytest.approx(1, abs=1e-5)
    assert cka(X + 3, Y - 5) == pytest.approx(cka(X, Y), rel=1e-4)
    # It depends on an offset if uncentred, and on a scale per feature.
    assert cka(X + 3, Y, uncentred=True) != pytest.approx(cka(X, Y, uncentred=True), rel=1e-2)
    assert cka(X, X * np.linspace(0, 3, 8)) < 0.97


def test_features_of_orthogonal_directions_have_similarity_0():
    x = np.zeros((4, 2))
    x[:, 0] = [1, -1, 1, -1]
    y = np.zeros((4, 3))
    y[:, 2] = [1, 1, -1, -1]
    assert cka(x, y) == 0


def test_features_that_do_not_vary_give_zero_and_finite_gradients():
    x, y = tf.constant(np.full((50, 8), 3.0), tf.float32), tf.constant(Y, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        value = linear_cka(x, y)
    assert float(value) == 0
    assert all(np.all(np.isfinite(g)) for g in tape.gradient(value, [x, y]))


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_two_networks_whose_features_do_not_vary_have_similarity_0(scale):
    rng = np.random.default_rng(0)
    x, y = (np.tile(scale * rng.normal(size=(1, d)), (300, 1)) for d in (64, 32))
    assert cka(x, y) == cka(x, x) == 0


def test_nothing_of_size_n_by_n_is_formed():
    n, d, e = 97, 5, 3
    graph = linear_cka_graph(n, d, e)
    sizes = [t.shape.num_elements() for op in graph.get_operations() for t in op.outputs]
    assert max(sizes) == n * d


def linear_cka_graph(n, d, e):
    function = tf.function(linear_cka)
    return function.get_concrete_function(
        tf.TensorSpec([n, d], tf.float32), tf.TensorSpec([n, e], tf.float32)
    ).graph
