"""Hetero-SSFL's proximal term against the plain formula with n x n kernels, in float64."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_ssl.losses import alignment


def plain_cka(a, clients, weights, centred=True):
    """CKA of the kernels as matrices: <HKH, HLH> / (|HKH| |HLH|)."""
    n = len(a)
    h = np.eye(n) - 1 / n if centred else np.eye(n)
    k = h @ (a @ a.T) @ h
    mean = h @ sum(w * c @ c.T for w, c in zip(weights, clients, strict=True)) @ h
    return np.sum(k * mean) / (np.linalg.norm(k) * np.linalg.norm(mean))


def plain_rbf(a, centred=True, width=None):
    """The kernel of radial basis functions, from all distances; and its width s."""
    distances = np.linalg.norm(a[:, None] - a[None], axis=2)
    if width is None:
        pairs = np.sort(distances[np.triu_indices(len(a), 1)])
        width = 0.8 * pairs[len(pairs) // 2]
    h = np.eye(len(a)) - 1 / len(a) if centred else np.eye(len(a))
    return h @ np.exp(-(distances**2) / (2 * width**2)) @ h, width


def representations(n, widths, seed, offset=0.5):
    rng = np.random.default_rng(seed)
    return [rng.normal(offset, 1.0, (n, d)).astype(np.float32) for d in widths]


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 40),
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    seed=st.integers(0, 1000),
    centred=st.booleans(),
)
def test_equals_the_plain_formula(n, widths, seed, centred):
    a, *clients = representations(n, widths, seed)
    weights = np.random.default_rng(seed).uniform(0.1, 2, len(clients))
    actual = alignment.cka_with_mean_kernel(a, alignment.stack(clients, weights), centred)
    expected = plain_cka(a.astype(float), [c.astype(float) for c in clients], weights, centred)
    assert float(actual) == pytest.approx(expected, abs=1e-5)
    term = alignment.proximal_term(a, alignment.stack(clients, weights), 0.5, centred)
    assert float(term) == pytest.approx(0.5 * (1 - expected), abs=1e-5)


@pytest.mark.parametrize("centred", [True, False])
def test_gradient_equals_finite_differences(centred):
    a, *clients = representations(7, [3, 4, 2], 0)
    weights = [0.3, 0.7]
    stacked = alignment.stack(clients, weights)
    a = tf.constant(a)
    with tf.GradientTape() as tape:
        tape.watch(a)
        value = alignment.proximal_term(a, stacked, 0.5, centred)
    gradient = tape.gradient(value, a).numpy()
    clients = [c.astype(float) for c in clients]
    for position in np.ndindex(7, 3):
        moved = []
        for sign in (1, -1):
            x = a.numpy().astype(float)
            x[position] += sign * 1e-5
            moved.append(0.5 * (1 - plain_cka(x, clients, weights, centred)))
        expected = (moved[0] - moved[1]) / 2e-5
        assert gradient[position] == pytest.approx(expected, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("centred", [True, False])
def test_the_rbf_kernel_equals_the_plain_formula(centred, scale):
    for n in (2, 7, 8):
        (a,) = representations(n, [3], n)
        expected, _ = plain_rbf(a.astype(float), centred)
        actual = alignment.rbf_kernel(tf.constant(scale * a, tf.float32), centred).numpy()
        np.testing.assert_allclose(actual, expected, atol=1e-5)
        factor = alignment.factor(tf.constant(expected, tf.float32)).numpy().astype(float)
        np.testing.assert_allclose(factor @ factor.T, expected, atol=1e-5)
        assert not np.triu(factor, 1).any()


@pytest.mark.parametrize("centred", [True, False])
def test_with_the_rbf_kernel_value_and_gradient_are_those_of_the_plain_formula(centred):
    a, other = representations(7, [3, 4], 0)
    mean, _ = plain_rbf(other.astype(float), centred)
    stacked = alignment.factor(tf.constant(mean, tf.float32))
    # In gradients, the width of the kernel is a constant share of the norm.
    share = plain_rbf(a.astype(float))[1] / np.linalg.norm(a - a.mean(0))

    def plain(x):
        k, _ = plain_rbf(x, centred, share * np.linalg.norm(x - x.mean(0)))
        return 0.5 * (1 - np.sum(k * mean) / (np.linalg.norm(k) * np.linalg.norm(mean)))

    a = tf.constant(a)
    with tf.GradientTape() as tape:
        tape.watch(a)
        value = alignment.proximal_term(a, stacked, 0.5, centred, "rbf")
    assert float(value) == pytest.approx(plain(a.numpy().astype(float)), abs=1e-5)
    gradient = tape.gradient(value, a).numpy()
    for position in np.ndindex(7, 3):
        step = np.zeros((7, 3))
        step[position] = 1e-5
        x = a.numpy().astype(float)
        expected = (plain(x + step) - plain(x - step)) / 2e-5
        assert gradient[position] == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_step_along_the_gradient_brings_clients_together():
    a, *clients = (tf.constant(x) for x in representations(20, [4, 6, 5], 1))
    stacked = alignment.stack(clients, [0.5, 0.5])
    before = float(alignment.cka_with_mean_kernel(a, stacked))
    for _ in range(50):
        with tf.GradientTape() as tape:
            tape.watch(a)
            value = alignment.proximal_term(a, stacked, 1.0)
        a -= 5.0 * tape.gradient(value, a)
    assert float(alignment.cka_with_mean_kernel(a, stacked)) > before + 0.1


def test_no_gradient_flows_into_the_mean_kernel():
    a, *clients = (tf.constant(x) for x in representations(9, [3, 4, 5], 2))
    with tf.GradientTape() as tape:
        tape.watch([a, *clients])
        value = alignment.proximal_term(a, alignment.stack(clients, [0.5, 0.5]), 1.0)
    gradient, *others = tape.gradient(value, [a, *clients])
    assert float(tf.reduce_max(tf.abs(gradient))) > 1e-3
    assert others == [None, None]


def test_known_properties():
    a, b = representations(30, [5, 8], 3)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0].astype(np.float32)
    itself = alignment.stack([a], [1.0])
    other = alignment.stack([b], [1.0])
    assert float(alignment.cka_with_mean_kernel(a, itself)) == pytest.approx(1, abs=1e-5)
    value = float(alignment.cka_with_mean_kernel(a, other))
    assert 0 < value < 0.9
    for changed in (a @ rotation, 1e-4 * a, 1e4 * a, a + 7):
        actual = float(alignment.cka_with_mean_kernel(changed, other))
        assert actual == pytest.approx(value, rel=1e-3)
    shifted = float(alignment.cka_with_mean_kernel(a + 7, other, centred=False))
    assert shifted != pytest.approx(value, rel=1e-2)
    # All weight on the client itself, or on the other one; and equal ratios of weights.
    both = [alignment.stack([a, b], weights) for weights in ([1, 0], [0, 1], [0.2, 0.6], [1, 3])]
    actual = [float(alignment.cka_with_mean_kernel(a, stacked)) for stacked in both]
    assert actual[:2] == pytest.approx([1, value], abs=1e-5)
    assert actual[2] == pytest.approx(actual[3], abs=1e-5)


# 123.4 in float32, with differences in the last bit.
ROUNDED = 123.4 + 8e-6 * (np.arange(18).reshape(6, 3) % 2)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("collapsed", [np.zeros((6, 3)), np.full((6, 3), 123.4), ROUNDED])
def test_collapsed_representations_have_distance_1_and_no_gradient(collapsed, kernel):
    a = tf.constant(collapsed, tf.float32)
    (other,) = representations(6, [4], 0)
    with tf.GradientTape() as tape:
        tape.watch(a)
        value = alignment.proximal_term(a, alignment.stack([other], [1.0]), 0.5, kernel=kernel)
    assert float(value) == 0.5
    np.testing.assert_array_equal(tape.gradient(value, a), np.zeros((6, 3)))
    # A collapsed mean kernel has the same effect.
    assert float(alignment.proximal_term(other, alignment.stack([a], [1.0]), 0.5)) == 0.5


@pytest.mark.parametrize("shape", [(5, 2100), (2100, 5), (1500, 1300), (1, 1)])
def test_kernel_norms_from_blocks(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    small = x.T @ x if shape[0] > shape[1] else x @ x.T
    expected = np.sum(np.square(small.astype(np.float64)))
    assert float(alignment.squared_kernel_norm(tf.constant(x))) == pytest.approx(expected, rel=1e-4)


def test_bad_arguments_are_refused():
    a, b = representations(4, [2, 3], 0)
    with pytest.raises(ValueError, match="1 weights for 2 clients"):
        alignment.stack([a, b], [1.0])
    with pytest.raises(ValueError, match="must not be negative, and not all 0"):
        alignment.stack([a, b], [1.0, -1.0])
    with pytest.raises(ValueError, match="must not be negative, and not all 0"):
        alignment.stack([a, b], [0.0, 0.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def unknown(x):
        return alignment.squared_kernel_norm(x)

    with pytest.raises(ValueError, match=r"need a known shape \[n, d\]"):
        unknown(a)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 40),
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1e-12, 1.0, 1e12]),
    rank=st.sampled_from([0, 1, 2, 100]),
)
def test_the_mixed_factor_has_the_kernel_and_is_no_larger(n, widths, seed, scale, rank):
    rng = np.random.default_rng(seed)
    columns = sum(widths)
    b = rng.normal(size=(n, min(rank, n))) @ rng.normal(size=(min(rank, n), columns))
    b = (scale * b).astype(np.float32)
    factor = alignment.mixed(tf.constant(b)).numpy().astype(float)
    assert factor.shape == (n, min(n, columns))
    kernel = b.astype(float) @ b.T.astype(float)
    error = np.linalg.norm(factor @ factor.T - kernel)
    bound = (n + 16) * 2**-24 if columns >= n else 1e-6
    # The smallest scale leaves float32 few digits.
    assert error <= (bound + 2e-6) * np.linalg.norm(kernel)


@pytest.mark.parametrize("columns", [6, 20])
def test_the_mixed_factor_is_a_function_of_the_kernel(columns):
    rng = np.random.default_rng(0)
    b = rng.normal(size=(12, columns)).astype(np.float32)
    turned = (b @ np.linalg.qr(rng.normal(size=(columns, columns)))[0]).astype(np.float32)
    factor = alignment.mixed(tf.constant(b)).numpy()
    np.testing.assert_allclose(alignment.mixed(tf.constant(turned)), factor, atol=1e-4)
    if columns < 12:  # The thin U S, with the largest entry of a column above zero.
        u, s, _ = np.linalg.svd(b.astype(float), full_matrices=False)
        signs = np.sign(np.take_along_axis(u, np.abs(u).argmax(0)[None], 0))
        np.testing.assert_allclose(factor, u * s * signs, atol=1e-5)
    else:
        np.testing.assert_allclose(factor, np.linalg.cholesky(b.astype(float) @ b.T), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("outlier", [1.0, 1e6])
def test_blocks_of_a_kernel_of_rank_1_have_a_finite_factor(outlier):
    b = np.ones((1500, 1600), np.float32)
    b[7] *= outlier
    factor = alignment.mixed(tf.constant(b)).numpy().astype(float)
    kernel = b.astype(float) @ b.T.astype(float)
    assert np.linalg.norm(factor @ factor.T - kernel) <= 1e-4 * np.linalg.norm(kernel)


def test_a_normalized_kernel_has_norm_1():
    (a,) = representations(20, [4], 0)
    for centred in (True, False):
        unit = alignment.of_unit_kernel(tf.constant(300 * a), centred).numpy()
        x = a - a.mean(0) if centred else a
        kernel = x @ x.T
        np.testing.assert_allclose(unit @ unit.T, kernel / np.linalg.norm(kernel), atol=1e-5)
    np.testing.assert_array_equal(alignment.of_unit_kernel(tf.ones([5, 2])), np.zeros((5, 2)))
