"""The exact solutions of both problems against gradients, descent and duality; the data."""

import numpy as np
import pytest
from scipy import optimize

from tff_ssl.analysis import linear_theory as theory


def samples_of(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(0.5, 2, d)


def draw(num_sources, dimension, counts=None, seed=0):
    counts = counts or theory.default_counts(num_sources, dimension)
    rng = np.random.default_rng(seed)
    return theory.draw_sources(num_sources, dimension, theory.SampleCounts(*counts), rng)


def dec_ssl_loss(w, samples):
    """-tr(w X w^T) + 1/2 ||w w^T||_F^2 with the second moments X = mean_i x_i x_i^T."""
    return -np.square(samples @ w.T).sum() / len(samples) + 0.5 * np.square(w @ w.T).sum()


def gradient(w, samples):
    """The gradient of `dec_ssl_loss`, -2 w X + 2 w w^T w."""
    return -2 * w @ (samples.T @ samples) / len(samples) + 2 * w @ w.T @ w


# Dec-SSL


def test_the_gradient_used_here_is_that_of_the_loss():
    samples, w = samples_of(20, 4), samples_of(3, 4, seed=1)
    differences = optimize.approx_fprime(
        w.ravel(), lambda flat: dec_ssl_loss(flat.reshape(3, 4), samples), 1e-7
    )
    np.testing.assert_allclose(differences, gradient(w, samples).ravel(), atol=1e-4)


def test_the_loss_is_the_mean_over_the_augmentation_noise():
    samples, w = samples_of(5, 4), 0.5 * samples_of(2, 4, seed=1)
    rng = np.random.default_rng(2)
    first, second = (samples + rng.standard_normal((200_000, 5, 4)) for _ in range(2))
    drawn = -np.einsum("rnm,rnm->", first @ w.T, second @ w.T) / first.shape[0] / 5
    drawn += 0.5 * np.linalg.norm(w.T @ w) ** 2
    assert dec_ssl_loss(w, samples) == pytest.approx(drawn, abs=0.02)


# Dense SVD and Lanczos, few samples in many dimensions and many samples in few.
@pytest.mark.parametrize(("n", "d", "m"), [(30, 6, 2), (12, 40, 5), (100, 60, 4), (50, 300, 7)])
def test_the_solution_is_the_best_low_rank_part_of_the_second_moments(n, d, m):
    samples = samples_of(n, d)
    w = theory.dec_ssl_solution(samples, m)
    assert w.shape == (m, d)
    np.testing.assert_allclose(gradient(w, samples), 0, atol=1e-10)
    values, vectors = np.linalg.eigh(samples.T @ samples / n)
    best = (vectors[:, -m:] * values[-m:]) @ vectors[:, -m:].T
    np.testing.assert_allclose(w.T @ w, best, atol=1e-10)
    assert dec_ssl_loss(w, samples) == pytest.approx(-0.5 * (values[-m:] ** 2).sum())


def test_no_descent_from_anywhere_gets_lower():
    samples = samples_of(30, 5)
    least = dec_ssl_loss(theory.dec_ssl_solution(samples, 2), samples)
    for start in np.random.default_rng(0).standard_normal((10, 10)):
        solution = optimize.minimize(
            lambda flat: dec_ssl_loss(flat.reshape(2, 5), samples),
            start,
            jac=lambda flat: gradient(flat.reshape(2, 5), samples).ravel(),
        )
        assert solution.fun >= least - 1e-9
        assert solution.fun == pytest.approx(least, abs=1e-6)  # There are no other local minima.


def test_more_rows_than_samples_are_zero():
    samples = samples_of(3, 8)
    w = theory.dec_ssl_solution(samples, 5)
    np.testing.assert_allclose(w.T @ w, samples.T @ samples / 3, atol=1e-12)
    np.testing.assert_array_equal(w[3:], 0)


def test_the_global_solution_minimizes_the_weighted_sum_of_the_sources_losses():
    first, second = samples_of(30, 5), samples_of(10, 5, seed=1) @ np.diag([3, 1, 1, 1, 1])
    w = theory.dec_ssl_solution(np.concatenate([first, second]), 2)
    slope = 0.75 * gradient(w, first) + 0.25 * gradient(w, second)
    np.testing.assert_allclose(slope, 0, atol=1e-10)
    assert np.abs(gradient(w, first)).max() > 0.1


# Dec-SLRep


@pytest.mark.parametrize(
    ("num_sources", "dimension", "counts"), [(2, 40, (15, 2)), (3, 90, (80, 3))]
)
def test_the_conditions_of_optimality_hold(num_sources, dimension, counts):
    samples, labels = draw(num_sources, dimension, counts)[1]
    c, n = 2 * num_sources, len(labels)
    solution = theory.dec_slrep_solution(samples, labels, c)
    w, a = solution.v @ solution.u, solution.multipliers
    pulls = np.zeros_like(w)
    products = []
    for i in range(n):
        for other in range(c):
            if other != labels[i]:
                margin = (w[labels[i]] - w[other]) @ samples[i]
                assert margin > 1 - 1e-9
                products.append(a[i, other] * (margin - 1))
                pulls[labels[i]] += a[i, other] * samples[i]
                pulls[other] -= a[i, other] * samples[i]
    assert a.min() >= 0
    np.testing.assert_allclose(products, 0, atol=1e-9)
    np.testing.assert_allclose(pulls, w, atol=1e-9)
    assert np.square(w).sum() == pytest.approx(a.sum(), abs=1e-9)  # No duality gap.
    assert solution.kkt_residual < 1e-9


def test_the_layers_are_balanced_and_no_other_factors_have_less_norm():
    source = draw(2, 30)[0]
    solution = theory.dec_slrep_solution(source.samples, source.labels, 4)
    u, v = solution.u, solution.v
    np.testing.assert_allclose(u @ u.T, v.T @ v, atol=1e-12)

    def norm(u, v):
        return np.square(u @ u.T).sum() + np.square(v.T @ v).sum()

    assert norm(u, v) == pytest.approx(2 * np.square(v @ u).sum())
    for change in np.random.default_rng(0).standard_normal((20, 4, 4)):
        mix = np.eye(4) + 0.2 * change
        assert norm(mix @ u, v @ np.linalg.inv(mix)) > norm(u, v)


def test_two_samples_have_the_solution_calculated_by_hand():
    samples = np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
    solution = theory.dec_slrep_solution(samples, np.array([0, 1]), 2)
    np.testing.assert_allclose(solution.v @ solution.u, [[0.25, 0, 0], [-0.25, 0, 0]], atol=1e-12)
    # u^T u is the root of w^T w.
    np.testing.assert_allclose(theory.correlations(solution.u), [0.125**0.5, 0, 0], atol=1e-12)


def test_classes_without_samples_share_their_scores():
    source = draw(3, 60)[0]
    solution = theory.dec_slrep_solution(source.samples, source.labels, 6)
    w = solution.v @ solution.u
    np.testing.assert_allclose(w[3], w[5], atol=1e-10)
    np.testing.assert_allclose(w.sum(axis=0), 0, atol=1e-10)


def test_the_features_are_the_root_whatever_the_rank():
    source = draw(3, 60)[0]
    solution = theory.dec_slrep_solution(source.samples, source.labels, 6)
    assert np.linalg.matrix_rank(solution.u) == 4  # 4 classes with samples, 1 without, less 1.
    assert theory.representability(solution.u).sum() == pytest.approx(4)


def test_the_pooled_data_of_all_sources_are_not_separable():
    sources = draw(2, 16, (150, 1))
    samples = np.concatenate([source.samples for source in sources])
    labels = np.concatenate([source.labels for source in sources])
    with pytest.raises(ValueError, match="separates"):
        theory.dec_slrep_solution(samples, labels, 4)


def test_repeated_samples_change_nothing():
    source = draw(2, 20)[0]
    once = theory.dec_slrep_solution(source.samples, source.labels, 4)
    twice = theory.dec_slrep_solution(
        np.repeat(source.samples, 2, axis=0), np.repeat(source.labels, 2), 4
    )
    np.testing.assert_allclose(twice.v @ twice.u, once.v @ once.u, atol=1e-8)


def test_labels_out_of_range_are_an_error():
    for labels in ([0, 4], [-1, 0], [0, 1, 2]):
        with pytest.raises(ValueError, match=r"0\.\.3"):
            theory.dec_slrep_solution(np.eye(2), np.array(labels), 4)


# Definition 3.1


def test_representability_of_all_space_of_one_direction_and_of_none():
    np.testing.assert_allclose(theory.representability(samples_of(5, 5)), 1)
    np.testing.assert_allclose(theory.representability(np.array([[-3.0, 0, 0]])), [1, 0, 0])
    np.testing.assert_array_equal(theory.representability(np.zeros((2, 3))), 0)


def test_representability_is_the_diagonal_of_the_projection():
    w = samples_of(3, 7)
    w = np.concatenate([w, w[:1] - w[1:2]])  # A fourth row that adds no direction.
    projection = w.T @ np.linalg.pinv(w.T)
    np.testing.assert_allclose(theory.representability(w), np.diag(projection), atol=1e-12)


# Appendix E.1


def test_sources_have_the_classes_and_the_sizes_of_the_appendix():
    sources = draw(3, 50, (20, 2))
    for k, source in enumerate(sources):
        counts = np.zeros(6, int)
        counts[::2] = 2
        counts[[2 * k, 2 * k + 1]] = 20
        np.testing.assert_array_equal(np.bincount(source.labels, minlength=6), counts)
        assert source.samples.shape == (44, 50)
        assert source.samples.dtype == np.float64
        assert source.labels.dtype == np.int64


def test_the_first_directions_have_the_moments_of_the_appendix():
    d, n = 32, 40_000
    tau, mu = d**0.2, d**-0.2
    samples, labels = theory.draw_source(
        1, 2, d, theory.SampleCounts(n, n), np.random.default_rng(0)
    )
    means = {2: [-tau / 2, 1], 3: [-tau / 2, -1], 0: [1, 0]}
    variances = {2: [tau**2 / 4 + mu**2, mu**2], 3: [tau**2 / 4 + mu**2, mu**2], 0: [mu**2] * 2}
    for label, mean in means.items():
        x = samples[labels == label]
        np.testing.assert_allclose(x[:, :2].mean(axis=0), mean, atol=0.03)
        np.testing.assert_allclose(x[:, :2].var(axis=0), variances[label], atol=0.03)
        np.testing.assert_allclose(x[:, 2:].mean(axis=0), 0, atol=0.02)
        np.testing.assert_allclose(x[:, 2:].var(axis=0), mu**2, atol=0.02)


def test_the_two_frequent_classes_draw_their_own_noise():
    source = draw(2, 50, (20, 1))[0]
    first, second = source.samples[:20], source.samples[20:40]
    assert np.abs(np.corrcoef(first[:, 2:].ravel(), second[:, 2:].ravel())[0, 1]) < 0.15


def test_a_seed_gives_one_data_set():
    first, again, other = (draw(2, 20, seed=seed)[1].samples for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_default_counts_are_those_of_the_orders():
    assert theory.default_counts(3, 1024) == (512, 1)
    assert theory.default_counts(3, 8000) == (4000, 2)
    assert theory.default_counts(2, 1) == (1, 1)


@pytest.mark.parametrize(
    ("source", "dimension", "counts"),
    [(2, 5, (1, 1)), (-1, 5, (1, 1)), (0, 1, (1, 1)), (0, 5, (0, 1))],
)
def test_impossible_sources_are_an_error(source, dimension, counts):
    with pytest.raises(ValueError, match=r"No source|needs a sample"):
        theory.draw_source(
            source, 2, dimension, theory.SampleCounts(*counts), np.random.default_rng(0)
        )


# Theorem 3.2 and Proposition 4.1


@pytest.mark.slow
def test_unlabeled_sources_learn_the_others_directions_and_labeled_ones_do_not():
    results = {d: theory.compare(draw(2, d), 4) for d in (64, 512)}
    others = ~np.eye(2, dtype=bool)
    for d, result in results.items():
        assert result.kkt_residual < 1e-9
        assert result.ssl_local[others].min() > 1 - 4 * d**-0.8
        assert result.ssl_global.min() > 1 - 4 * d**-0.8
        assert result.slrep_local[others].max() < d**-0.1 / 2
        assert np.diag(result.slrep_local).min() > 0.6
        assert result.slrep_representability[others].max() < result.ssl_local[others].min() / 2
    assert results[512].ssl_local[others].min() > results[64].ssl_local[others].min()
    assert results[512].slrep_local[others].max() < results[64].slrep_local[others].max()
