"""Routes worked out by hand, departures of clients, and traffic."""

import itertools

import networkx as nx
import numpy as np
import pytest

from tff_ssl.algorithms.denav import route as denav_route
from tff_ssl.algorithms.denav import traffic as denav_traffic
from tff_ssl.algorithms.denav.navigator import NavigatorHyperparameters
from tff_ssl.algorithms.denav.state_log import StateLog, Visits
from tff_ssl.decentralized import simulated_time, topology, traffic
from tff_ssl.decentralized.traffic import Traffic

LINE = nx.freeze(nx.path_graph(3))
VOLUMES = {0: 10, 1: 20, 2: 20}
FOUR_STEPS = NavigatorHyperparameters(steps=4, selection_limit=2)


def travel(network, steps=FOUR_STEPS, volumes=None, start=0, seed=0, **options):
    volumes = volumes or VOLUMES
    return list(denav_route.travel(network, volumes, lambda _: 1.0, start, steps, seed, **options))


def route(steps):
    return [step.client for step in steps]


def test_a_route_by_hand():
    # After step 1 (client 0): of 0 and 1,       1 + 10/20 * (0 + 1) = 1.5 and 3.
    # After step 2 (client 1): of 0, 1 and 2,    1 + 10/20 * (1/4 + 1) = 1.625, 1 + 1 = 2 and 3.
    # After step 3 (client 2): of 1 and 2,       1 + (1/4 + 1) = 2.25 and 1 + 1 = 2.
    steps = travel(lambda _: LINE, model_id=3)
    assert route(steps) == [0, 1, 2, 1]
    assert [step.sender for step in steps] == [None, 0, 1, 2]
    assert steps[0].received == StateLog(3)
    assert all(a.log == b.received for a, b in itertools.pairwise(steps))
    visits = (Visits(0, 1, 1, 1.0), Visits(1, 4, 2, 1.0), Visits(2, 3, 1, 1.0))
    assert steps[-1].log == StateLog(3, 4, 10 + 20 + 20 + 20, visits)


def test_if_the_holder_leaves_the_last_copy_goes_on():
    # Client 2 trains in step 3 and leaves. Client 1 has the copy of step 2 and compares client 0
    # with itself: 1 + 10/20 * (1/4 + 1) = 1.625 and 1 + (0 + 1) = 2, so that it trains itself.
    left = topology.without_client(LINE, 2)
    steps = travel(lambda step: left if step >= 4 else LINE)
    assert route(steps) == [0, 1, 2, 1]
    assert steps[3].sender == 1
    assert steps[3].received == steps[1].log
    assert steps[3].log == StateLog(0, 4, 50, (Visits(0, 1, 1, 1.0), Visits(1, 4, 2, 1.0)))
    sent = denav_traffic.of_steps(steps, 1000)
    assert sent.models == 2


def test_clients_that_left_and_cut_links_are_not_on_the_route():
    graph = topology.erdos_renyi(20, 0.3, seed=1)
    neighbour = topology.neighbours(graph, 0)[0]
    cut = topology.without_link(graph, 0, neighbour)
    left = topology.without_client(cut, topology.neighbours(graph, 0)[-1])

    def network(step):
        return graph if step <= 10 else cut if step <= 20 else left

    many = NavigatorHyperparameters(steps=60, route="random")
    steps = travel(network, many, dict.fromkeys(range(20), 5))
    for step in steps[1:]:
        now = network(step.step)
        assert step.client in now
        assert step.sender == step.client or now.has_edge(step.sender, step.client)
    assert len(steps) == 60


def test_a_network_without_clients_that_have_the_model_is_an_error():
    gone = topology.without_client(topology.without_client(LINE, 1), 0)
    with pytest.raises(ValueError, match="no client that has the model is left"):
        travel(lambda step: gone if step == 3 else LINE)


def test_a_torn_network_keeps_the_model_in_its_component():
    torn = topology.without_link(LINE, 1, 2)
    many = NavigatorHyperparameters(steps=30, selection_limit=1)
    assert set(route(travel(lambda _: torn, many))) == {0, 1}


def test_a_route_is_a_function_of_its_seed_and_model():
    graph, many = topology.erdos_renyi(30, 0.2, seed=0), NavigatorHyperparameters(steps=50)
    volumes = dict.fromkeys(range(30), 5)
    first = travel(lambda _: graph, many, volumes)
    assert first == travel(lambda _: graph, many, volumes)
    assert route(first) != route(travel(lambda _: graph, many, volumes, seed=1))
    assert route(first) != route(travel(lambda _: graph, many, volumes, model_id=1))


def test_with_the_limit_that_eq_6_asks_for_all_clients_take_part():
    rng = np.random.default_rng(0)
    graph = topology.erdos_renyi(30, 0.2, seed=0)
    volumes = dict(enumerate(rng.integers(20, 200, 30).tolist()))
    many = NavigatorHyperparameters(steps=90, selection_limit=90 // 30)
    navigated = route(travel(lambda _: graph, many, volumes))
    wandering = NavigatorHyperparameters(steps=90, route="random")
    at_random = route(travel(lambda _: graph, wandering, volumes))
    assert len(set(navigated)) > len(set(at_random))
    # In the first quarter of the route, clients have more examples than average.
    assert np.mean([volumes[k] for k in navigated[:22]]) > 1.2 * np.mean(list(volumes.values()))


# Traffic


def test_traffic_of_a_route_by_hand():
    steps = travel(lambda _: LINE)
    # Three transmissions of 1000 bytes, with logs of 1, 2 and 3 clients: 24 bytes, and 32 for each
    # client. Questions go to client 1; to 0 and 2; to 1. Each crosses one link, as does its answer.
    # A question has two numbers; an answer has n and the neighbours, two for 1, one for 0 and 2.
    expected = Traffic(3, 3000 + 3 * 24 + 6 * 32, 8, 8 * (4 * 2 + 3 + 2 + 2 + 3))
    assert denav_traffic.of_steps(steps, 1000) == expected


def test_a_model_that_stays_is_not_sent():
    alone = topology.complete(1)
    steps = travel(lambda _: alone, volumes={0: 5})
    assert route(steps) == [0, 0, 0, 0]
    assert denav_traffic.of_steps(steps, 1000) == Traffic()


def test_rounds_of_gossip_and_all_reduce():
    # A star of 4 has 3 links, used both ways. A leaf's model goes to the centre and from there to
    # the two other leaves, which are 3 transmissions, as for the centre's model.
    assert traffic.gossip(topology.star(4), 10) == Traffic(6, 60)
    assert traffic.all_reduce(topology.star(4), 10) == Traffic(4 * 3, 120)
    assert traffic.all_reduce(topology.complete(7), 10).models == 7 * 6
    # With a cut link, models stay in their component, of which one is a path of three clients.
    torn = topology.without_link(topology.star(4), 0, 3)
    assert traffic.all_reduce(torn, 10).models == 3 * 2
    # From a leaf of the tree 0-1, 0-2, 1-3 to itself, the other leaf and its parent.
    assert denav_traffic.synchronization(topology.tree(4), [3, 2, 1], 100) == Traffic(4, 4 * 124)
    assert Traffic(1, 2, 3, 4) + Traffic(10, 20, 30, 40) == Traffic(11, 22, 33, 44)


@pytest.mark.parametrize(
    ("epochs", "denav", "gossip"),
    [(5000, 1000, 14850), (15000, 3000, 44550), (25000, 5000, 74250)],
)
def test_the_published_counts(epochs, denav, gossip):
    """Table 3: 100 clients, connectivity 0.15, 5 local epochs (Table 6)."""
    # 5000 epochs: 1000 steps of one client with 5 epochs; 10 rounds of 100 clients with 5, in each
    # of which 100 clients send to 99 * 0.15 = 14.85 neighbours.
    assert denav_traffic.published_transmissions(epochs, 5) == denav
    assert traffic.published_gossip(epochs, 5, 100, 0.15) == pytest.approx(gossip)


def test_counts_on_real_networks_are_near_the_published_ones():
    limit = 1000 // 100
    thousand = NavigatorHyperparameters(steps=1000, selection_limit=limit)
    rng = np.random.default_rng(0)
    volumes = dict(enumerate(rng.integers(50, 1000, 100).tolist()))
    ranks = simulated_time.draw_ranks(100, 10, seed=0)
    gossip = []
    for seed in range(3):
        graph = topology.erdos_renyi(100, 0.15, seed)
        gossip.append(10 * traffic.gossip(graph, 1).models)
        assert gossip[-1] == 10 * sum(degree for _, degree in graph.degree)
    assert np.mean(gossip) == pytest.approx(14850, rel=0.06)  # Two deviations of the mean.

    def times(client):
        return simulated_time.training_time(5.0 * volumes[client], ranks[client], 10)

    steps = list(denav_route.travel(lambda _: graph, volumes, times, 0, thousand, seed=0))
    clients = route(steps)
    sent = denav_traffic.of_steps(steps, 1).models
    assert sent == sum(a != b for a, b in itertools.pairwise(clients))
    # Less than one for each step: a client with many examples keeps the model for a while.
    assert 800 < sent < denav_traffic.published_transmissions(5000, 5)


def test_epochs_that_are_no_whole_number_of_rounds_are_refused():
    with pytest.raises(ValueError, match="5002 epochs are not a whole number of steps of 5"):
        denav_traffic.published_transmissions(5002, 5)
    with pytest.raises(ValueError, match="5100 epochs are not a whole number of rounds of 500"):
        traffic.published_gossip(5100, 5, 100, 0.15)
