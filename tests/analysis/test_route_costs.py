"""Costs of DeNAV's routes: sums by hand, and intervals."""

import networkx as nx
import numpy as np
import pytest

from tff_ssl.algorithms.denav import navigator
from tff_ssl.algorithms.denav.navigator import NavigatorHyperparameters
from tff_ssl.analysis import route_costs
from tff_ssl.decentralized import topology


def test_the_costs_of_a_route_that_can_be_told_by_hand():
    # Of two linked clients, each may be selected once: the route is one and then the other.
    graph = nx.complete_graph(2)
    once = NavigatorHyperparameters(steps=2, selection_limit=1, computing_ranks=2)
    costs = route_costs.costs_of(graph, [10, 30], [1, 2], once, seed=0)
    # A client of the highest rank needs half the time.
    assert costs == route_costs.RouteCosts(10 + 30 / 2, 1.0, 1.0, 1)


def test_a_lone_client_is_never_left():
    graph = nx.empty_graph(1)
    costs = route_costs.costs_of(graph, [7], [1], NavigatorHyperparameters(steps=5), seed=3)
    assert costs == route_costs.RouteCosts(35.0, 1.0, 1.0, 0)


@pytest.mark.long
@pytest.mark.slow
def test_the_terms_of_the_formula_do_what_they_are_for():
    def costs(seed):
        sizes = np.random.default_rng(seed).integers(1, 100, 30)
        graph = topology.erdos_renyi(30, 0.3, seed)
        return route_costs.of_all_formulas(graph, sizes.tolist(), seed, 60, 3)

    summary = route_costs.summarize([costs(seed) for seed in range(80)])
    assert set(summary) == set(navigator.FORMULAS)
    ours = summary[navigator.OURS]
    assert ours["time"] == (0.0, 0.0, 0.0)
    assert ours["volume"].low > 1.1
    random = summary["Random selection"]
    assert random["volume"].low < 1 < random["volume"].high
    without_volume = summary["Formula w/o data volume"]
    assert without_volume["volume"].high < ours["volume"].low
    assert without_volume["time"].high < 0
    assert summary["Formula w/o computing resources"]["time"].low > 0


def test_an_interval_is_that_of_students_t():
    found = route_costs.interval([1.0, 2.0, 3.0])
    # The 0.975 quantile of Student's t with two degrees of freedom is 4.30265.
    half = 4.30265 / np.sqrt(3)
    assert found == pytest.approx((2.0, 2 - half, 2 + half), rel=1e-5)
