"""Gossip, all-reduce and DFedAvg: values by hand, means, batch norms and departures."""

import networkx as nx
import numpy as np
import pytest

from datasets import client_store
from datasets.image_dataset import Split
from tests.scalar_network import build_once
from tff_ssl.algorithms import gossip
from tff_ssl.decentralized import topology, traffic
from tff_ssl.decentralized.events import Cut, Leave, with_events
from tff_ssl.decentralized.mixing import metropolis_weights, neighbour_weights
from tff_ssl.decentralized.schedule import ClientNetwork
from tff_ssl.kinds.decentralized.simulation import DecentralizedSimulation

pytestmark = pytest.mark.xdist_group("gossip")

PIXELS = (10, 20, 40, 90)
HALF = {
    "client_optimizer": "sgd", "client_learning_rate": 0.5, "client_momentum": 0.0,
    "client_weight_decay": 0.0, "local_epochs": 1, "batch_size": 0,
    "learning_rate_schedule": "constant",
}  # fmt: skip


@pytest.fixture
def simulate(scalars, tmp_path):
    """Runs clients of one pixel each; returns (measure, metrics) after each round.

    The measure is a function of the simulation and its state.
    """
    task, _ = scalars

    def run(graph, rounds, measure, cls=gossip.GossipHyperparameters, events=(), **values):
        number = len(graph)
        images = np.array(PIXELS[:number], np.uint8).reshape(-1, 1, 1, 1)
        split = Split(images, np.zeros(number, np.int32), np.arange(number))
        (tmp_path / "c").unlink(missing_ok=True)
        client_store.write_store(tmp_path / "c", split, list(np.arange(number)[:, np.newaxis]))
        given = cls(**{**HALF, **values})
        built = build_once(gossip.build_gossip, task("nt_xent", rounds), given)
        network = with_events(graph, events, rounds)
        planned = built.schedule(ClientNetwork(network, [1] * number, 0))
        data = client_store.StoredClientData(tmp_path / "c").group_dataset_computation
        simulation = DecentralizedSimulation(built, planned, data, tmp_path / "run")
        state, measured = simulation.initialize(0), []
        for r in range(rounds):
            state, metrics = simulation.run_round(state, r)
            measured.append((measure(simulation, state), metrics))
        return measured

    return run


def models(simulation, state):
    """w, b and m of every client, [clients, 3]."""
    rows = []
    for slot in range(len(state.versions)):
        model = simulation.mean_model(state, np.eye(len(state.versions))[slot])
        rows.append([*model.trainable, *model.non_trainable])
    return np.array(rows, np.float64)


def plain(mixings, number, unmixed=()):
    """The models in NumPy: halfway to the pixel, then mixing of all columns but `unmixed`."""
    values, pixels = np.zeros((number, 3)), np.array(PIXELS[:number], np.float64)
    for mixing in mixings:
        trained = (values + pixels[:, np.newaxis]) / 2
        trained[:, 2] = pixels  # The moving average after the last step.
        values = mixing @ trained
        values[:, list(unmixed)] = trained[:, list(unmixed)]
    return values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("passes", "expected"), [({"local_epochs": 4}, 12), ({"local_steps": 2}, 6)]
)
def test_the_examples_of_a_round_count_once_for_each_pass(simulate, passes, expected):
    ((_, metrics),) = simulate(nx.path_graph(3), 1, models, **passes)
    assert (metrics["samples"], metrics["examples_trained"]) == (3, expected)


def test_a_round_on_a_path_by_hand(simulate):
    # After training: 5, 10, 20. Means over the neighbours: 15 / 2, 35 / 3, 30 / 2.
    ((after, metrics),) = simulate(nx.path_graph(3), 1, models, mixing="neighbours")
    np.testing.assert_allclose(after[:, 0], [7.5, 35 / 3, 15], rtol=1e-6)
    np.testing.assert_allclose(after[:, 2], [15, 70 / 3, 30], rtol=1e-6)
    assert metrics["transmissions"] == 4
    assert metrics["clients"] == metrics["samples"] == 3
    assert metrics["bytes"] == 4 * 3 * 4  # A model has three float32.


@pytest.mark.slow
@pytest.mark.parametrize("mixing", gossip.MIXINGS)
def test_rounds_equal_a_plain_loop(simulate, mixing):
    graph = topology.tree(4)
    seen = simulate(graph, 3, models, mixing=mixing)
    weights = {
        "neighbours": neighbour_weights(graph, 4),
        "metropolis": metropolis_weights(graph, 4),
        "all_reduce": np.full((4, 4), 0.25),
    }
    if mixing in weights:
        np.testing.assert_allclose(seen[-1][0], plain([weights[mixing]] * 3, 4), rtol=1e-5)
    count = traffic.all_reduce if mixing == "all_reduce" else traffic.gossip
    assert seen[0][1]["transmissions"] == count(graph, 1).models


def test_the_first_received_model_is_one_neighbours(simulate):
    ((after, metrics),) = simulate(topology.complete(4), 1, models)
    trained = np.array(PIXELS) / 2
    for k in range(4):
        assert any(
            after[k, 0] == pytest.approx((trained[k] + trained[j]) / 2) for j in range(4) if j != k
        )
    assert (
        metrics["transmissions"] == 12
    )  # All clients send to all others, whichever model arrives first.


def test_averaging_conserves_the_mean_on_a_regular_network(simulate):
    # The mean over clients moves halfway to the mean pixel, 40, as if there were no averaging.
    seen = simulate(topology.cycle(4), 3, models, mixing="neighbours")
    np.testing.assert_allclose([m[:, 0].mean() for m, _ in seen], [20, 30, 35], rtol=1e-6)
    assert np.ptp(seen[-1][0][:, 0]) > 1


def test_local_batch_norms_stay_with_their_clients(simulate):
    graph = topology.cycle(4)
    seen = simulate(graph, 2, models, gossip.DFedAvgHyperparameters)
    expected = plain([neighbour_weights(graph, 4)] * 2, 4, unmixed=(1, 2))
    np.testing.assert_allclose(seen[-1][0], expected, rtol=1e-5)
    np.testing.assert_allclose(seen[-1][0][:, 2], PIXELS)


@pytest.mark.parametrize("batch_norm", ["local", "averaged"])
def test_a_client_is_evaluated_with_its_own_batch_norms_where_they_stay(simulate, batch_norm):
    def evaluated(simulation, state):
        """All clients, the evaluated model of client 1, and that of the run."""
        of_client, of_run = (simulation.encoder_weights(state, k) for k in ("1", None))
        return models(simulation, state), *(
            [*model.trainable, *model.non_trainable] for model in (of_client, of_run)
        )

    values = {"mixing": "neighbours", "batch_norm": batch_norm}
    ((every, of_client, of_run), _) = simulate(nx.path_graph(4), 1, evaluated, **values)[-1]
    for client, found in ((1, of_client), (0, of_run)):
        expected = every[max(0, client - 1) : client + 2].mean(0)
        if batch_norm == "local":  # b, an offset, and m, a moving average, are the norm's.
            expected[1:] = every[client, 1:]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
def test_after_a_departure_and_a_cut_gossip_goes_on_and_nothing_is_lost(simulate):
    # A ring of four; client 3 leaves before round 2, the link 0-1 is cut before round 3.
    ring = topology.cycle(4)
    events = [Leave(2, 3), Cut(3, 0, 1)]
    seen = simulate(ring, 4, models, mixing="neighbours", events=events)
    left = topology.without_client(ring, 3)
    cut = topology.without_link(left, 0, 1)
    mixings = [neighbour_weights(g, 4) for g in (ring, left, cut, cut)]
    assert [metrics["clients"] for _, metrics in seen] == [4, 3, 3, 3]
    assert [metrics["transmissions"] for _, metrics in seen] == [8, 4, 2, 2]
    # Client 3 keeps its last model; client 0, without any link, continues alone.
    np.testing.assert_array_equal(seen[-1][0][3], seen[0][0][3])
    expected = np.zeros((4, 3))
    pixels = np.array(PIXELS, np.float64)[:, np.newaxis]
    for mixing, present in zip(mixings, (4, 3, 3, 3), strict=True):
        trained = (expected + pixels) / 2
        trained[:, 2] = pixels[:, 0]
        trained[present:] = expected[present:]
        expected = mixing @ trained
    np.testing.assert_allclose(seen[-1][0], expected, rtol=1e-5)


@pytest.mark.slow
def test_the_evaluated_model(simulate):
    def evaluated(simulation, state):
        """The evaluated w, and the w of all clients."""
        every = models(simulation, state)[:, 0]
        return simulation.encoder_weights(state).trainable[0], every

    path, leaves = nx.path_graph(4), [Leave(2, 0)]
    (w, every), _ = simulate(path, 1, evaluated, evaluated="mean")[-1]
    assert w == pytest.approx(every.mean())
    (w, every), _ = simulate(path, 2, evaluated, events=leaves, evaluated="mean")[-1]
    assert w == pytest.approx(every[1:].mean())
    # The first remaining client, and its neighbour.
    (w, every), _ = simulate(path, 2, evaluated, events=leaves)[-1]
    assert w == pytest.approx((every[1] + every[2]) / 2)
    (w, every), _ = simulate(path, 1, evaluated, average_neighbours=False)[-1]
    assert w == every[0]


def test_the_counts_of_table_3_on_a_real_network():
    """5000 epochs of 100 clients at connectivity 0.15: 10 rounds of 5 epochs each."""
    counts = []
    for seed in range(3):
        graph = topology.erdos_renyi(100, 0.15, seed)
        network = ClientNetwork(lambda _, graph=graph: graph, [10] * 100, seed)
        planned = gossip.GossipSchedule(network, 1, gossip.GossipHyperparameters())
        rounds = [planned.round(r) for r in range(10)]
        assert sum(5 * len(r.operations[0].clients) for r in rounds) == 5000
        counts.append(sum(r.traffic.models for r in rounds))
        assert counts[-1] == 10 * 2 * graph.number_of_edges()
    assert np.mean(counts) == pytest.approx(14850, rel=0.06)


def test_bad_hyperparameters_are_refused():
    for bad, named in (
        ({"mixing": "ring"}, "mixing"),
        ({"batch_norm": "none"}, "batch_norm"),
        ({"evaluated": "best"}, "evaluated"),
        ({"client_weighting": "examples"}, "client_weighting must be uniform"),
        ({"computing_ranks": 0}, "computing_ranks"),
    ):
        with pytest.raises(ValueError, match=named):
            gossip.GossipHyperparameters(**bad)
