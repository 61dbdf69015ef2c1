"""Private means compared with NumPy, and the accountant with exact privacy profiles."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from tff_ssl.aggregation import differential_privacy as privacy
from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.errors import ConfigurationError
from tff_ssl.losses import cco
from tff_ssl.losses.means import Means
from tff_ssl.simulation import cohort

VALUE = tff.types.to_type([(np.float32, [3]), (np.float32, [2, 2])])
WEIGHT = tff.types.TensorType(np.float32)
VALUES = [
    [np.array([3, 0, 0], np.float32), np.array([[0, 4], [0, 0]], np.float32)],
    [np.array([0, 0.3, 0], np.float32), np.array([[0.4, 0], [0, 0]], np.float32)],
]


def exact_delta(epsilon, q, mean):
    """The exact delta(epsilon) of a round: N(0, 1) against (1 - q) N(0, 1) + q N(mean, 1).

    It is the larger one of the two hockey-stick divergences, by numerical integration.
    """

    def p(x):
        return stats.norm.pdf(x)

    def mixture(x):
        return (1 - q) * p(x) + q * stats.norm.pdf(x, mean)

    def divergence(a, b):
        excess = lambda x: max(0.0, a(x) - math.exp(epsilon) * b(x))  # noqa: E731
        return integrate.quad(excess, -12, 12 + mean, limit=400)[0]

    return max(divergence(mixture, p), divergence(p, mixture))


@pytest.mark.parametrize(
    ("q", "multipliers", "rounds"), [(1.0, (2.0, 3.0), 1), (1.0, (4.0, 4.0), 9), (0.2, (1.5,), 1)]
)
def test_epsilon_bounds_the_exact_one_from_above_and_closely(q, multipliers, rounds):
    delta = 1e-3
    found = privacy.Accountant(q, multipliers, delta).epsilon(rounds)
    # Without sampling, all Gaussians equal one whose mean is the root of the sum of the squares.
    mean = math.sqrt(rounds * sum(z**-2 for z in multipliers))
    assert exact_delta(found, q, mean) <= delta
    assert exact_delta(0.6 * found, q, mean) > delta


def test_two_aggregations_cost_what_one_with_their_joint_noise_costs():
    z1, z2 = 1.5, 2.5
    joint = (z1**-2 + z2**-2) ** -0.5
    two = privacy.Accountant(0.1, (z1, z2), 1e-4).epsilon(30)
    assert two == pytest.approx(privacy.Accountant(0.1, (joint,), 1e-4).epsilon(30), rel=1e-9)
    assert two > privacy.Accountant(0.1, (z1,), 1e-4).epsilon(30)


def test_epsilon_grows_with_rounds_and_is_infinite_without_noise():
    accountant = privacy.Accountant(0.1, (1.0,), 1e-4)
    spent = [accountant.epsilon(rounds) for rounds in (0, 1, 2, 10, 100)]
    assert spent[0] == 0
    assert spent == sorted(set(spent))
    assert privacy.Accountant(0.1, (1.0, 0.0), 1e-4).epsilon(1) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_noise_is_found_for_an_epsilon(epsilon):
    z = privacy.noise_for(epsilon, 20, 0.25, 2, 1e-3)
    assert 0.97 * epsilon < privacy.Accountant(0.25, (z, z), 1e-3).epsilon(20) <= epsilon
    assert privacy.noise_for(math.inf, 20, 0.25, 2, 1e-3) == 0


def mean_of(mean, expected_clients, values, weights):
    process = mean.factory(expected_clients).create(VALUE, WEIGHT)
    return process.next(process.initialize(), values, weights)


def test_a_private_mean_clips_each_client_and_ignores_weights(worker):
    result = mean_of(privacy.GaussianMean(0.0, 1.0), 4, VALUES, [np.float32(9), np.float32(1)])
    # The first client has norm 5, the second one 0.5; the mean is over four expected clients.
    np.testing.assert_allclose(result.result[0], [0.6 / 4, 0.3 / 4, 0], rtol=1e-6)
    np.testing.assert_allclose(result.result[1], [[0.4 / 4, 0.8 / 4], [0, 0]], rtol=1e-6)


@pytest.mark.slow
def test_noise_has_the_deviation_that_is_accounted_for(worker):
    size, z, clip, clients = 40_000, 1.5, 0.2, 10
    for adaptive in (False, True):
        factory = privacy.GaussianMean(z, clip, adaptive).factory(clients * (1 + 9 * adaptive))
        process = factory.create(tff.types.to_type((np.float32, [size])), WEIGHT)
        zeros = [np.zeros(size, np.float32)] * 2
        state = process.initialize()
        first = process.next(state, zeros, [np.float32(1)] * 2)
        # An adaptive clip spends a part of the privacy on the quantile, with noise K / 20.
        own = (z**-2 - (2 * 5.0) ** -2) ** -0.5 if adaptive else z
        expected = own * clip / (clients * (1 + 9 * adaptive))
        assert np.std(first.result) == pytest.approx(expected, rel=0.02)
        again = process.next(state, zeros, [np.float32(1)] * 2)
        assert np.corrcoef(first.result, again.result)[0, 1] == pytest.approx(0, abs=0.03)


def test_too_few_clients_for_an_adaptive_clip_are_refused():
    with pytest.raises(ConfigurationError, match="clients_per_round=20, at least 31"):
        privacy.GaussianMean(3.0, 1.0, adaptive=True).factory(20)


def test_post_processing_sees_the_result_only(worker):
    inner = privacy.GaussianMean(0.0, 1.0).factory(2)
    doubled = privacy.PostProcessed(inner, lambda v: tf.nest.map_structure(lambda t: 2 * t, v))
    process = doubled.create(VALUE, WEIGHT)
    weights = [np.float32(1)] * 2
    plain = mean_of(privacy.GaussianMean(0.0, 1.0), 2, VALUES, weights).result
    result = process.next(process.initialize(), VALUES, weights).result
    for a, b in zip(result, plain, strict=True):
        np.testing.assert_array_equal(a, 2 * b)


@pytest.mark.xdist_group("dcco")
@pytest.mark.slow
def test_private_dcco_without_noise_or_clipping_is_its_uniform_mean(worker, small_algorithm):
    task, clients = small_algorithm("dcco").inputs
    values = two_stage.DCCOHyperparameters(client_weighting="uniform", server_optimizer="sgd")
    free = privacy.GaussianMean(0.0, 1e4).factory(len(clients))
    private = two_stage.build_dcco(task, values, statistics_aggregator=free, update_aggregator=free)
    plain = two_stage.build_dcco(task, values)
    # A client without examples, which pads a cohort, contributes nothing.
    nobody = clients[0].take(0)
    results = [
        built.process.next(built.process.initialize(), data)
        for built, data in ((plain, clients), (private, [*clients, nobody]))
    ]
    for a, b in zip(*(tf.nest.flatten(r.state.global_model_weights) for r in results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert results[1].metrics["client_work"]["dropped_clients"] == 1


@pytest.mark.long
@pytest.mark.xdist_group("dcco")
@pytest.mark.slow
def test_uniform_weights_make_a_client_of_many_examples_count_once(worker, small_algorithm):
    task, clients = small_algorithm("dcco").inputs
    values = two_stage.DCCOHyperparameters(client_weighting="uniform", server_optimizer="sgd")
    process = two_stage.build_dcco(task, values).process
    state = process.initialize()

    def moments_about_the_origin(cohort):
        s = process.next(state, cohort).state.client_work.statistics
        covariance = s.f_g + np.outer(s.f, s.g)
        return s.f, s.f_squared + s.f**2, s.g, s.g_squared + s.g**2, covariance

    together = moments_about_the_origin(clients)
    alone = [moments_about_the_origin([client]) for client in clients]
    for mean, *own in zip(together, *alone, strict=True):
        np.testing.assert_allclose(mean, np.mean(own, 0), rtol=1e-5, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 3))
def test_plausible_statistics_have_variances_and_correlations_like_encodings(seed, noise):
    rng = np.random.default_rng(seed)
    f = tf.constant(rng.normal(size=(40, 6)), tf.float32)
    g = f + tf.constant(rng.normal(size=(40, 6)), tf.float32)
    reference = Means(0.0, 0.0)
    exact = cco.encoding_statistics(f, g, reference)
    noisy = tf.nest.map_structure(
        lambda t: t + tf.constant(rng.normal(size=t.shape) * noise, tf.float32), exact
    )
    repaired = cco.plausible(noisy)
    centred = cco.centred(repaired, reference)
    assert np.abs(cco.correlation(centred)).max() <= 1.01
    assert np.min(centred.f_squared) > 0
    np.testing.assert_array_equal(repaired.f, noisy.f)
    assert np.isfinite(cco.cco_from_statistics(centred, 20.0).loss)
    if noise == 0:  # Plausible statistics stay as they are.
        for a, b in zip(repaired, exact, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_poisson_cohorts_are_independent_draws_of_each_client():
    sample = cohort.poisson_cohorts(40, 10, seed=2)
    np.testing.assert_array_equal(sample(7), cohort.poisson_cohorts(40, 10, seed=2)(7))
    rounds = 4000
    present = np.zeros([rounds, 40])
    for r in range(rounds):
        present[r, sample(r)] = 1
    # A client's count is Binomial(4000, 1/4); a cohort's size has the variance of 40 such draws.
    assert np.abs(present.sum(0) - rounds / 4).max() < 137
    assert present.sum(1).var() == pytest.approx(40 * 0.25 * 0.75, rel=0.1)
    with pytest.raises(ConfigurationError, match="clients_per_round"):
        cohort.poisson_cohorts(10, 11, seed=0)
