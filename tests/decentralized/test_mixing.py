"""Mixing matrices: properties on random networks, and small cases calculated by hand."""

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_ssl.decentralized import mixing, topology


@st.composite
def regular_networks(draw):
    degree = draw(st.integers(1, 5))
    num_clients = draw(st.integers(degree + 1, 14))
    num_clients += degree * num_clients % 2
    return nx.random_regular_graph(degree, num_clients, seed=draw(st.integers(0, 1000)))


@st.composite
def networks(draw):
    """Networks that may have several components and clients that have left."""
    num_clients = draw(st.integers(1, 14))
    seed = draw(st.integers(0, 1000))
    graph = topology.erdos_renyi(num_clients, draw(st.floats(0, 1)), seed)
    rng = np.random.default_rng(seed)
    for client in rng.permutation(num_clients)[: draw(st.integers(0, num_clients // 2))]:
        graph = topology.without_client(graph, int(client))
    return graph, num_clients


def random_models(num_clients, seed=0):
    rng = np.random.default_rng(seed)
    return [[rng.normal(size=(2, 3)), rng.normal(size=4)] for _ in range(num_clients)]


def mix(models, weights):
    return [list(model) for model in zip(*mixing.combine(models, weights), strict=True)]


def mean_of(models):
    return [np.mean(arrays, axis=0) for arrays in zip(*models, strict=True)]


def assert_same(model, other):
    for a, b in zip(model, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(graph=regular_networks())
def test_averaging_conserves_the_mean_on_a_regular_network(graph):
    models = random_models(len(graph))
    mixed = mix(models, mixing.neighbour_weights(graph, len(graph)))
    assert_same(mean_of(mixed), mean_of(models))


@settings(max_examples=40, deadline=None)
@given(drawn=networks())
def test_metropolis_weights_conserve_the_mean_on_any_network(drawn):
    graph, num_clients = drawn
    models = random_models(num_clients)
    weights = mixing.metropolis_weights(graph, num_clients)
    np.testing.assert_allclose(weights, weights.T)
    assert_same(mean_of(mix(models, weights)), mean_of(models))


@settings(max_examples=40, deadline=None)
@given(drawn=networks(), seed=st.integers(0, 100))
def test_rows_are_averages_over_the_client_and_those_it_is_linked_to(drawn, seed):
    graph, num_clients = drawn
    rng = np.random.default_rng(seed)
    examples = rng.integers(1, 50, num_clients)
    linked = np.eye(num_clients, dtype=bool)
    reached = np.eye(num_clients, dtype=bool)
    for a in graph:
        for b in graph:
            linked[a, b] |= graph.has_edge(a, b)
            reached[a, b] = nx.has_path(graph, a, b)
    for weights, allowed in (
        (mixing.neighbour_weights(graph, num_clients), linked),
        (mixing.neighbour_weights(graph, num_clients, examples), linked),
        (mixing.metropolis_weights(graph, num_clients), linked),
        (mixing.first_received_weights(graph, num_clients, rng), linked),
        (mixing.all_reduce_weights(graph, num_clients), reached),
        (mixing.all_reduce_weights(graph, num_clients, examples), reached),
    ):
        assert weights.min() > -1e-12
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        assert not weights[~allowed].any()


@settings(max_examples=20, deadline=None)
@given(num_clients=st.integers(1, 12), seed=st.integers(0, 1000))
def test_all_reduce_is_the_exact_mean(num_clients, seed):
    graph = topology.erdos_renyi(num_clients, 0.3, seed)
    models = random_models(num_clients, seed)
    for model in mix(models, mixing.all_reduce_weights(graph, num_clients)):
        assert_same(model, mean_of(models))


def test_a_path_of_three_by_hand():
    graph, third = nx.path_graph(3), 1 / 3
    np.testing.assert_allclose(
        mixing.neighbour_weights(graph, 3),
        [[0.5, 0.5, 0], [third, third, third], [0, 0.5, 0.5]],
    )
    # The columns sum to 5/6, 4/3 and 5/6, so the mean of the models is not conserved.
    np.testing.assert_allclose(
        mixing.neighbour_weights(graph, 3, [1, 3, 4]),
        [[1 / 4, 3 / 4, 0], [1 / 8, 3 / 8, 4 / 8], [0, 3 / 7, 4 / 7]],
    )
    # The weight is 1 / (1 + 2) for both links, 1 - 1/3 for the ends and 1 - 2/3 for the middle.
    np.testing.assert_allclose(
        mixing.metropolis_weights(graph, 3),
        [[2 / 3, third, 0], [third, third, third], [0, third, 2 / 3]],
    )
    np.testing.assert_allclose(
        mixing.all_reduce_weights(graph, 3, [1, 3, 4]), [[1 / 8, 3 / 8, 4 / 8]] * 3
    )


def test_a_star_does_not_conserve_the_mean_with_equal_weights():
    models = [[np.array([10.0])], [np.array([0.0])], [np.array([2.0])]]
    mixed = mix(models, mixing.neighbour_weights(topology.star(3), 3))
    assert_same([np.concatenate([model[0] for model in mixed])], [np.array([4.0, 5.0, 6.0])])


def test_the_first_received_model_is_that_of_any_neighbour():
    graph, rng = topology.star(4), np.random.default_rng(0)
    drawn = [mixing.first_received_weights(graph, 4, rng) for _ in range(60)]
    for weights in drawn:
        np.testing.assert_array_equal(np.sort(weights, axis=1), [[0, 0, 0.5, 0.5]] * 4)
        np.testing.assert_array_equal(np.diag(weights), [0.5] * 4)
        np.testing.assert_array_equal(weights[1:, 0], [0.5] * 3)
    assert np.all(sum(drawn)[0, 1:] > 0)


def test_a_client_that_left_keeps_its_model_and_gives_it_to_nobody():
    graph = topology.without_client(topology.complete(3), 1)
    models = [[np.array([0.0])], [np.array([7.0])], [np.array([4.0])]]
    for weights in (
        mixing.neighbour_weights(graph, 3),
        mixing.metropolis_weights(graph, 3),
        mixing.all_reduce_weights(graph, 3),
        mixing.first_received_weights(graph, 3, np.random.default_rng(0)),
    ):
        assert [model[0][0] for model in mix(models, weights)] == [2.0, 7.0, 2.0]


def test_repeated_averaging_comes_to_the_mean():
    models = random_models(9)
    weights = mixing.metropolis_weights(topology.tree(9), 9)
    mixed = mix(models, np.linalg.matrix_power(weights, 600))
    for model in mixed:
        assert_same(model, mean_of(models))


def test_mixing_keeps_dtypes():
    models = [[np.float32([1]), np.float64([1])], [np.float32([2]), np.float64([2])]]
    mixed = mix(models, np.full((2, 2), 0.5))
    assert [array.dtype for array in mixed[0]] == [np.float32, np.float64]
