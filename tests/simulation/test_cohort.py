"""Cohorts are a pure function of seed and round, and folding keeps all clients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tff_ssl.errors import ConfigurationError
from tff_ssl.simulation import cohort


def test_a_round_can_be_asked_for_in_any_order():
    sample = cohort.uniform_cohorts(50, 8, seed=3)
    again = cohort.uniform_cohorts(50, 8, seed=3)
    expected = [sample(r) for r in range(20)]
    for r in reversed(range(20)):
        np.testing.assert_array_equal(again(r), expected[r])


def test_rounds_and_seeds_differ():
    sample = cohort.uniform_cohorts(1000, 8, seed=3)
    drawn = {tuple(sample(r)) for r in range(100)}
    assert len(drawn) == 100
    assert tuple(cohort.uniform_cohorts(1000, 8, seed=4)(0)) not in drawn


def test_sampling_is_uniform_and_without_replacement():
    sample = cohort.uniform_cohorts(20, 5, seed=0)
    counts = np.zeros(20)
    for r in range(4000):
        clients = sample(r)
        assert len(set(clients)) == 5
        counts[clients] += 1
    # A count is Binomial(4000, 1/4), and 5 of its standard deviations are 137.
    assert np.abs(counts - 1000).max() < 137


@pytest.mark.parametrize("sampling", [cohort.uniform_cohorts, cohort.poisson_cohorts])
def test_large_populations_are_sampled_alike(sampling):
    population = 10 * cohort.LARGE_POPULATION
    sample = sampling(population, 1000, seed=1)
    cohorts = [sample(r) for r in range(200)]
    for r in reversed(range(200)):
        np.testing.assert_array_equal(sampling(population, 1000, seed=1)(r), cohorts[r])
        assert len(np.unique(cohorts[r])) == len(cohorts[r])
        assert cohorts[r].dtype == np.int64
    sizes = np.array([len(clients) for clients in cohorts])
    # Clients of a tenth of the population: a Binomial(200,000, 1/10); 5 deviations are 671.
    tenths = np.bincount(np.concatenate(cohorts) * 10 // population, minlength=10)
    if sampling is cohort.uniform_cohorts:
        assert (sizes == 1000).all()
    else:  # About Poisson(1000): 5 deviations of the mean are 11, of the variance 500.
        assert abs(sizes.mean() - 1000) < 11
        assert abs(sizes.var() - 1000) < 500
    assert np.abs(tenths - sizes.sum() / 10).max() < 671


def test_sampling_does_not_grow_with_the_population():
    sample = cohort.uniform_cohorts(10**15, 1000, seed=0)  # Petabytes, if there were an array.
    assert len(np.unique(sample(0))) == 1000


@pytest.mark.parametrize("clients_per_round", [0, 11])
def test_impossible_cohorts_are_refused(clients_per_round):
    with pytest.raises(ConfigurationError, match="clients_per_round"):
        cohort.uniform_cohorts(10, clients_per_round, seed=0)


@given(size=st.integers(1, 60), data=st.data())
def test_folding_keeps_every_client_once_and_groups_alike(size, data):
    groups = data.draw(st.integers(0, size))
    members = np.arange(size) * 3
    folded = cohort.fold(members, groups)
    np.testing.assert_array_equal(np.concatenate(folded), members)
    sizes = [len(group) for group in folded]
    assert len(folded) == (groups or size)
    assert max(sizes) - min(sizes) <= 1


def test_more_groups_than_clients_are_refused():
    with pytest.raises(ConfigurationError, match="--fold"):
        cohort.fold(np.arange(3), 4)
