"""Lower bounds of epsilon by canaries."""

import math

import numpy as np
import pytest
import tensorflow_federated as tff
from scipy import stats

from tff_ssl.aggregation import differential_privacy as privacy
from tff_ssl.analysis import privacy_audit

VALUE, WEIGHT = tff.types.to_type((np.float32, [3])), tff.types.TensorType(np.float32)


def test_without_delta_the_bound_is_that_of_a_binomial_test():
    for canaries, guesses, right in ((100, 40, 38), (50, 50, 31), (9, 4, 4)):
        epsilon = privacy_audit.epsilon_lower_bound(canaries, guesses, right, 0.0, 0.9)
        share = 1 / (1 + math.exp(-epsilon))
        # Clopper and Pearson's lower limit of the share of right guesses.
        limit = stats.binomtest(right, guesses, alternative="greater").proportion_ci(0.9).low
        assert share == pytest.approx(max(limit, 0.5), rel=1e-6)
    assert privacy_audit.epsilon_lower_bound(100, 40, 20, 0.0) == 0


def test_delta_weakens_the_bound_by_the_sum_of_the_theorem():
    m, r, v, epsilon, delta = 30, 12, 11, 0.8, 1e-3
    chance = math.exp(epsilon) / (1 + math.exp(epsilon))

    def probability(count):
        return math.comb(r, count) * chance**count * (1 - chance) ** (r - count)

    at_least = sum(probability(k) for k in range(v, r + 1))
    alpha = max(sum(probability(v - j) for j in range(1, i + 1)) / i for i in range(1, v + 1))
    expected = at_least + 2 * m * delta * alpha
    assert privacy_audit.largest_chance(m, r, v, epsilon, delta) == pytest.approx(expected)
    bounds = [privacy_audit.epsilon_lower_bound(m, r, r, d) for d in (0.0, 1e-4, 1e-3)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[2] > 0


def test_the_bound_of_randomized_response_holds():
    # Answers are right with probability e^epsilon / (1 + e^epsilon): the tightest mechanism.
    rng, epsilon, canaries = np.random.default_rng(0), 1.0, 400
    bounds = []
    for _ in range(200):
        included = rng.random(canaries) < 0.5
        honest = rng.random(canaries) < 1 / (1 + math.exp(-epsilon))
        audited = privacy_audit.Audited(included, (included == honest) + 0.1 * rng.random(canaries))
        right = privacy_audit.right_guesses(audited, canaries)
        bounds.append(privacy_audit.epsilon_lower_bound(canaries, canaries, right, 0.0))
    assert np.mean(np.array(bounds) > epsilon) < 0.1  # 0.05, but for chance.
    assert np.median(bounds) > 0.7


class CountsGroups(privacy._QueryOfClients):
    """A query that takes groups without a client for clients, as an earlier release did."""

    def preprocess_record(self, params, record):
        return self._inner.preprocess_record(params, record[0])


def audit_clip(query, expected_clients, noise, canaries=200):
    """Audits the adaptive clip: each canary is the ninth client of one round, or is left out."""
    mean = privacy.GaussianMean(noise, 1.0, adaptive=True)
    original, privacy._QueryOfClients = privacy._QueryOfClients, query
    try:
        process = mean.factory(expected_clients).create(VALUE, WEIGHT)
    finally:
        privacy._QueryOfClients = original
    included = np.random.default_rng(4).random(canaries) < 0.5
    scores = np.zeros(canaries)
    state, value = process.initialize(), np.full(3, 0.1, np.float32)
    for k, is_in in enumerate(included):
        clients, groups = 8 + is_in, 16 if is_in else 8  # A cohort has a multiple of 8 groups.
        weights = [np.float32(1)] * clients + [np.float32(0)] * (groups - clients)
        values = [value] * clients + [np.zeros(3, np.float32)] * (groups - clients)
        output = process.next(state, values, weights)
        # More contributions below the clip let it shrink.
        scores[k] = -np.log(output.measurements["dp_query_metrics"]["clip"])
    return privacy_audit.Audited(included, scores)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "holds"), [(privacy._QueryOfClients, True), (CountsGroups, False)]
)
def test_an_aggregator_that_counts_groups_without_clients_is_caught(worker, query, holds):
    noise, delta = 1.5, 1e-5
    announced = privacy.Accountant(1.0, (noise,), delta).epsilon(1)
    audited = audit_clip(query, 16.0, noise)
    right = privacy_audit.right_guesses(audited, 140)
    bound = privacy_audit.epsilon_lower_bound(len(audited.scores), 140, right, delta)
    assert (bound < announced) == holds, (bound, announced)


@pytest.mark.long
@pytest.mark.slow
def test_private_dcco_keeps_the_announced_epsilon_and_the_audit_would_see_too_little_noise(worker):
    canaries, rounds, rate, delta = 120, 4, 0.5, 1e-4
    announced = privacy.Accountant(rate, (4.0, 4.0), delta).epsilon(rounds)
    bounds = []
    for noise in (4.0, 0.02):  # The noise has no seed. 0.25 is seen in most runs, not in all.
        mean = privacy.GaussianMean(noise, 0.01)
        audited = privacy_audit.audit_dcco(canaries, rounds, rate, mean, seed=1)
        right = privacy_audit.right_guesses(audited, 60)
        bounds.append(privacy_audit.epsilon_lower_bound(canaries, 60, right, delta))
    assert bounds[0] < announced < bounds[1], (bounds, announced)
