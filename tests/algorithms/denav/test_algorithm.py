"""DeNAV's training: routes and values worked out by hand, Algorithm 2 along them, departures."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest

from datasets import client_store
from datasets.image_dataset import Split
from tests.scalar_network import build_once
from tff_ssl.algorithms.denav import algorithm
from tff_ssl.algorithms.denav.route import travel
from tff_ssl.decentralized import simulated_time, topology
from tff_ssl.decentralized.events import Leave, with_events
from tff_ssl.decentralized.schedule import ClientNetwork
from tff_ssl.kinds.decentralized.simulation import DecentralizedSimulation
from tff_ssl.kinds.protocol import RunSetting

pytestmark = pytest.mark.xdist_group("denav")

LINE = nx.freeze(nx.path_graph(3))
SIZES, PIXELS = (1, 2, 2), (10, 20, 40)
HALF = {
    "client_optimizer": "sgd", "client_learning_rate": 0.5, "client_momentum": 0.0,
    "client_weight_decay": 0.0, "local_epochs": 1, "batch_size": 0, "average_neighbours": False,
}  # fmt: skip


@pytest.fixture
def stored(tmp_path):
    """(sizes, pixels) -> data of clients; all examples of a client have the same single pixel."""

    def make(sizes, pixels):
        client = np.repeat(np.arange(len(sizes)), sizes)
        images = np.array(pixels, np.uint8)[client].reshape(-1, 1, 1, 1)
        split = Split(images, np.zeros(len(images), np.int32), np.arange(len(images)))
        store = tmp_path / "clients.sqlite"
        client_store.write_store(
            store, split, [np.flatnonzero(client == k) for k in range(len(sizes))]
        )
        return client_store.StoredClientData(store).group_dataset_computation

    return make


def hyperparameters(**values):
    return algorithm.DeNAVHyperparameters(**{**HALF, **values})


def plan(network=LINE, sizes=SIZES, steps=4, events=(), seed=0, **values):
    clients = ClientNetwork(with_events(network, events, steps), sizes, seed)
    return algorithm.DeNAVSchedule(clients, 1000, hyperparameters(**values), steps)


def starting_at(monkeypatch, *clients):
    monkeypatch.setattr(algorithm.DeNAVSchedule, "_draw_starts", lambda self, seed: list(clients))


def run(scalars, stored, folder, planned, steps, values, measure):
    """Runs all steps: the simulation, its last state, metrics, and a measure after each step."""
    task, _ = scalars
    built = build_once(algorithm.build_denav, task("nt_xent", steps), values)
    simulation = DecentralizedSimulation(built, planned, stored(SIZES, PIXELS), folder)
    state, measures, metrics_of_steps = simulation.initialize(0), [], []
    for r in range(steps):
        state, metrics = simulation.run_round(state, r)
        measures.append(measure(simulation, state))
        metrics_of_steps.append(metrics)
    return simulation, state, metrics_of_steps, measures


def global_model(simulation, state):
    return simulation.encoder_weights(state).trainable[0]


@pytest.mark.slow
def test_a_model_is_trained_where_it_goes_and_every_client_keeps_its_copy(
    scalars, stored, tmp_path, monkeypatch
):
    # The route 0, 1, 2, 1 is worked out in test_route. A step halves the distance to the
    # client's pixel: 0 -> 5 -> 12.5 -> 26.25 -> 23.125.
    starting_at(monkeypatch, 0)
    values = hyperparameters(selection_limit=2, computing_ranks=1)
    planned = plan(selection_limit=2, computing_ranks=1)
    assert planned.routes == [[0, 1, 2, 1]]
    simulation, last, measured, seen = run(
        scalars, stored, tmp_path, planned, 4, values, global_model
    )
    assert seen == [5.0, 12.5, 26.25, 23.125]
    assert [metrics["dropped_clients"] for metrics in measured] == [0] * 4
    # (5 - 20)^2 / 2 twice, for w and b, at the beginning of step 2.
    assert measured[1]["loss"] == pytest.approx(225)
    assert [metrics["transmissions"] for metrics in measured] == [0, 1, 1, 1]
    assert [metrics["examples_trained"] for metrics in measured] == [
        SIZES[client] for client in planned.routes[0]
    ]
    client_models = [simulation.encoder_weights(last, str(k)).trainable[0] for k in range(3)]
    assert client_models == [5.0, 23.125, 26.25]
    assert simulation.encoder_weights(last).non_trainable[0] == 20  # The last client's own mean.
    rows = (tmp_path / "client_metrics.csv").read_text().splitlines()
    assert rows[0].startswith("round,client,model,sender,loss")
    assert [row.split(",")[:4] for row in rows[1:]] == [
        ["1", "0", "0", "-1"], ["2", "1", "0", "0"], ["3", "2", "0", "1"], ["4", "1", "0", "2"],
    ]  # fmt: skip
    # There is one file for each copy: old ones are deleted.
    simulation.on_checkpoint(last)
    simulation.on_checkpoint(last)
    assert len(list(tmp_path.glob("client_states/*/*"))) == 3


def plain_algorithm_2(steps, routes, logs, bound):
    """The values of C models after each step, in plain Python."""
    copies = {}  # (client, model) -> (value, log)
    values, history = [0.0] * len(routes), []
    for s in range(steps):
        trained = []
        for c, route in enumerate(routes):
            client, (received, _) = route[s], logs[c][s]
            models, w_volume, w_stale = [values[c]], [received.volume], [received.steps]
            for other in range(len(routes)):
                if other != c and (client, other) in copies:
                    value, log = copies[client, other]
                    if abs(log.steps - received.steps) <= bound:
                        models.append(value)
                        w_volume.append(log.volume)
                        w_stale.append(log.steps)
            products = [v * t for v, t in zip(softmax(w_volume), softmax(w_stale), strict=True)]
            start = sum(w * m for w, m in zip(softmax(products), models, strict=True))
            trained.append((client, c, (start + PIXELS[client]) / 2, logs[c][s][1]))
        for client, c, value, log in trained:
            copies[client, c] = (value, log)
            values[c] = value
        history.append(list(values))
    return history


def softmax(values):
    powers = [math.exp(v - max(values)) for v in values]
    return [p / sum(powers) for p in powers]


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0, 1, 5])
def test_parallel_models_mix_by_algorithm_2(scalars, stored, tmp_path, bound):
    values = hyperparameters(models=2, staleness_bound=bound, selection_limit=3)
    planned = plan(steps=6, models=2, staleness_bound=bound, selection_limit=3)
    ranks = simulated_time.draw_ranks(3, 10, 0)

    def time(k):
        return simulated_time.training_time(SIZES[k], ranks[k], 10)

    routes = [
        list(
            travel(
                lambda _: LINE,
                dict(enumerate(SIZES)),
                time,
                route[0],
                values.for_navigator(6),
                0,
                c,
            )
        )
        for c, route in enumerate(planned.routes)
    ]
    assert planned.routes == [[step.client for step in steps] for steps in routes]
    assert planned.routes[0][0] != planned.routes[1][0]
    logs = [[(step.received, step.log) for step in steps] for steps in routes]
    history = plain_algorithm_2(6, planned.routes, logs, bound)

    def travelling(simulation, state):
        at = [3 * c + route[int(state.done) - 1] for c, route in enumerate(planned.routes)]
        return [simulation.mean_model(state, np.eye(6)[slot]).trainable[0] for slot in at]

    *_, seen = run(scalars, stored, tmp_path, planned, 6, values, travelling)
    np.testing.assert_allclose(seen, history, rtol=1e-5)
    alone = plain_algorithm_2(6, planned.routes, logs, -1)
    assert (alone != history) == (bound > 0)


def test_a_client_that_holds_two_models_trains_one_after_the_other(monkeypatch):
    # Client 1 has 4 examples and client 2 has 7; all are equally fast, and have one local epoch.
    planned = plan(sizes=(1, 4, 7), steps=4, computing_ranks=1, models=3)
    routes = [[0, 1, 2, 1], [0, 1, 2, 1], [1, 2, 1, 1]]
    steps = [[step._replace(client=k) for step, k in zip(row, route, strict=True)]
             for row, route in zip(planned._steps_of_models, routes, strict=True)]  # fmt: skip
    monkeypatch.setattr(planned, "_steps_of_models", steps)
    assert [planned.round(r).time for r in range(4)] == [4, 8, 14, 12]


def test_simulated_times_of_parallel_models_against_a_plain_sum():
    graph = topology.erdos_renyi(12, 0.3, seed=1)
    sizes = tuple(np.random.default_rng(0).integers(5, 60, 12).tolist())
    planned = plan(graph, sizes, 40, models=3, selection_limit=10, local_epochs=2)
    ranks, meetings = simulated_time.draw_ranks(12, 10, 0), 0
    for r in range(40):
        busy = np.zeros(12)
        for route in planned.routes:
            busy[route[r]] += 2 * sizes[route[r]] / (1 + (ranks[route[r]] - 1) / 9)
        meetings += len({route[r] for route in planned.routes}) < 3
        assert planned.round(r).time == pytest.approx(busy.max())
    assert meetings > 5


def test_the_simulated_time_of_local_steps_is_that_of_their_examples():
    # Three batches of 4: three passes over 4 examples, and three fifths of a pass over 20.
    pair = nx.freeze(nx.path_graph(2))
    planned = plan(pair, (4, 20), 4, computing_ranks=1, local_steps=3, batch_size=4)
    assert {0, 1} <= set(planned.routes[0])
    assert {planned.round(r).time for r in range(4)} == {12.0}


def test_rows_of_weights_are_means_over_copies():
    graph = topology.erdos_renyi(12, 0.3, seed=1)
    for aggregation in ("staleness", "volume", "average", "none"):
        planned = plan(graph, (5,) * 12, 40, models=3, aggregation=aggregation, selection_limit=10)
        mixed = 0
        for r in range(40):
            first, second = planned.round(r).operations
            np.testing.assert_allclose(first.weights.sum(axis=1), 1)
            assert first.targets == second.slots
            mixed += np.count_nonzero(first.weights) - 3
        assert (mixed > 10) == (aggregation != "none")
        np.testing.assert_allclose(planned.evaluated(40).sum(), 1)


def test_before_fine_tuning_a_client_averages_with_its_neighbours(monkeypatch):
    starting_at(monkeypatch, 0)
    planned = plan(selection_limit=2, computing_ranks=1, average_neighbours=True)
    # Route 0, 1, 2, 1. After two steps client 2 has no copy.
    np.testing.assert_allclose(planned.evaluated(2, 1), [1 / 2, 1 / 2, 0])
    np.testing.assert_allclose(planned.evaluated(4, 1), [1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(planned.evaluated(4), [1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(planned.evaluated(4, 0), [1 / 2, 1 / 2, 0])
    # After the first step, client 2 and its neighbour have no copy; client 0 is two hops away.
    np.testing.assert_allclose(planned.evaluated(1, 2), [1, 0, 0])


def test_if_a_client_leaves_only_its_own_training_is_lost(scalars, stored, tmp_path, monkeypatch):
    # Client 2 trains in step 3 and leaves before step 4: it continues from client 1's copy of
    # step 2, 12.5. Clients 0 and 1, with times 1 and 2, have scores 1 + 1/2 (1/4 + 1) = 1.625 and
    # 1 + (0 + 1/2). Client 0 trains the model: (12.5 + 10) / 2.
    starting_at(monkeypatch, 0)
    leaves, values = [Leave(4, 2)], {"selection_limit": 2, "computing_ranks": 1}
    planned = plan(events=leaves, **values)
    assert planned.routes == [[0, 1, 2, 0]]
    _, _, measured, seen = run(
        scalars, stored, tmp_path, planned, 4, hyperparameters(**values), global_model
    )
    assert seen[2:] == [26.25, 11.25]
    assert measured[3]["transmissions"] == 1
    with pytest.raises(ValueError, match="client 2 has left"):
        planned.evaluated(4, 2)
    planned = plan(events=leaves, **values, average_neighbours=True)
    np.testing.assert_allclose(planned.evaluated(4, 1), [1 / 2, 1 / 2, 0])


@pytest.mark.slow
@pytest.mark.parametrize("route", ["score", "random"])
@pytest.mark.parametrize(("limit", "forced"), [(1, True), (2, True), (3, False)])
def test_a_limit_that_forces_every_selection_is_announced(scalars, route, limit, forced):
    # Z M = 3, 6 and 9 selections for the 6 steps. With 6, every client is selected exactly twice.
    task, _ = scalars
    built = algorithm.build_denav(
        task("nt_xent", 6), hyperparameters(selection_limit=limit, route=route)
    )
    network = ClientNetwork(with_events(nx.complete_graph(3), (), 6), (1, 2, 7), 0)
    run = built.plan_run(RunSetting(SIZES, 6, network=network))
    first, *warnings = run.describe().splitlines()
    assert first.startswith("6 rounds on a network")
    assert len(warnings) == (forced and route == "score")
    for warning in warnings:
        assert warning.startswith(f"warning: selection_limit={limit} on 3 clients allows")
        assert warning.endswith("--hparam=selection_limit=3")
    if limit == 2 and route == "score":
        (travelled,) = plan(nx.complete_graph(3), (1, 2, 7), 6, selection_limit=2).routes
        assert sorted(travelled) == [0, 0, 1, 1, 2, 2]


def test_the_counts_of_table_3():
    """5000 epochs of 100 clients at connectivity 0.15: 1000 steps, but a model may stay."""
    graph = topology.erdos_renyi(100, 0.15, seed=0)
    rng = np.random.default_rng(0)
    sizes = rng.integers(50, 1000, 100).tolist()
    planned = plan(graph, sizes, 1000, local_epochs=5, selection_limit=10)
    rounds = [planned.round(r) for r in range(1000)]
    epochs = 5 * sum(len(r.operations[1].clients) for r in rounds)
    sent = sum(r.traffic.models for r in rounds)
    (route,) = planned.routes
    assert epochs == 5000
    assert sent == sum(a != b for a, b in itertools.pairwise(route))
    assert 800 < sent < 1000


def test_more_models_than_clients_and_unknown_settings_are_refused():
    with pytest.raises(ValueError, match="models must be at most the number of clients, 3"):
        plan(models=4)
    for bad, named in (
        ({"models": 0}, "models"),
        ({"staleness_bound": -1}, "staleness_bound"),
        ({"aggregation": "best"}, "aggregation"),
        ({"route": "shortest"}, "route"),
        ({"local_epochs": 0}, "local_epochs"),
    ):
        with pytest.raises(ValueError, match=named):
            hyperparameters(**bad)


def test_the_defaults_are_those_of_table_6():
    values = algorithm.DeNAVHyperparameters()
    assert (values.local_epochs, values.selection_limit, values.staleness_bound) == (5, 3, 5)
    assert (values.models, values.mask_ratio, values.aggregation) == (1, 0.75, "staleness")
    assert values.for_navigator(200).steps == 200
    assert values.for_navigator(7).selection_limit == 3
