"""SCAFFOLD against Algorithm 1 of the paper in NumPy, and against FedAvg where they are equal."""

import types

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.algorithms import fedbn, scaffold

pytestmark = pytest.mark.xdist_group("scaffold")

A, SIZES = (4.0, 8.0), (1, 3)  # The pixels of the two clients, and how often each has its own.
OPTIONS = {"client_learning_rate": 0.1, "local_epochs": 3}


def new_states(algorithm, count):
    return [tf.nest.map_structure(np.asarray, algorithm.initial_client_state(0))] * count


def run(algorithm, data, cohorts):
    """The server's model and all clients' states after rounds of these cohorts, one for each."""
    server, states = algorithm.process.initialize(), new_states(algorithm, len(data))
    for cohort in cohorts:
        output = algorithm.process.next(
            server, [states[k] for k in cohort], [data[k] for k in cohort]
        )
        server = output.state
        for k, state in zip(cohort, output.client_states, strict=True):
            states[k] = state
        yield server.model, list(states)


def by_hand(cohorts, weights, participation, eta_g, decay=0.0, eta_l=0.1, steps=3):
    """Algorithm 1 for the loss (w - a_k)^2 / 2 + decay w^2 / 2, whose gradient is one line."""
    x, c, m, c_k = 0.0, 0.0, 0.0, [0.0, 0.0]
    for cohort in cohorts:
        y, delta = {}, {}
        for k in cohort:
            y[k] = x
            for _ in range(steps):
                gradient = y[k] - A[k] + decay * y[k]
                y[k] = y[k] - eta_l * (gradient - c_k[k] + c)
            new = c_k[k] - c + (x - y[k]) / (steps * eta_l)
            delta[k], c_k[k] = new - c_k[k], new
        share = {k: weights[k] / sum(weights[j] for j in cohort) for k in cohort}
        x = x + eta_g * sum(share[k] * (y[k] - x) for k in cohort)
        c = c + participation * sum(share[k] * delta[k] for k in cohort)
        m = sum(share[k] * A[k] for k in cohort)
        yield x, c, m, tuple(c_k)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, (1, 1)),
        ({"server_learning_rate": 0.5}, (1, 1)),
        ({"client_weighting": "examples", "client_weight_decay": 0.2}, SIZES),
    ],
)
def test_rounds_are_those_of_algorithm_1(scalars, options, weights):
    task, data = scalars
    # In three of four rounds a client is absent or alone; 5 of 8 places are taken.
    cohorts, participation = ((0, 1), (1,), (0,), (1,)), 5 / 8
    values = scaffold.ScaffoldHyperparameters(**OPTIONS, **options)
    algorithm = scaffold.build_scaffold(
        task("nt_xent")._replace(participation=participation), values
    )
    clients = [data(k, [int(a)] * n) for k, (a, n) in enumerate(zip(A, SIZES, strict=True))]
    expected = by_hand(
        cohorts, weights, participation, values.server_learning_rate, values.client_weight_decay
    )
    for (server, states), (x, c, m, c_k) in zip(
        run(algorithm, clients, cohorts), expected, strict=True
    ):
        # The network's w and b have the same loss; m is its moving average.
        np.testing.assert_allclose(server.weights.trainable, [x, x], rtol=1e-5)
        np.testing.assert_allclose(server.control, [c, c], rtol=1e-5)
        np.testing.assert_allclose(server.weights.non_trainable, [m], rtol=1e-5)
        np.testing.assert_allclose([s.control for s in states], [[v, v] for v in c_k], rtol=1e-5)


@pytest.mark.slow
def test_new_clients_start_from_a_run_without_its_control_variate(scalars):
    """c stays the mean of the c_i, as it is where server and clients start together."""
    task, data = scalars
    algorithm = scaffold.build_scaffold(
        task("nt_xent")._replace(participation=1.0), scaffold.ScaffoldHyperparameters(**OPTIONS)
    )
    clients = [data(k, [int(a)] * n) for k, (a, n) in enumerate(zip(A, SIZES, strict=True))]
    *_, (model, _) = run(algorithm, clients, [(0, 1)] * 2)
    assert np.abs(model.control[0]) > 0.01
    trained = types.SimpleNamespace(server=types.SimpleNamespace(model=model))
    server, state = algorithm.initial_states(0, trained)
    np.testing.assert_array_equal(server.model.weights.trainable, model.weights.trainable)
    output = algorithm.process.next(server, [state] * 2, clients)
    mean = np.mean([s.control for s in output.client_states], axis=0)
    np.testing.assert_allclose(output.state.model.control, mean, rtol=1e-5)


def fedavg_of(task):
    """FedAvg with the same local training."""
    values = fedbn.FedBNHyperparameters(
        **OPTIONS, client_optimizer="sgd", client_momentum=0.0, learning_rate_schedule="constant",
        client_weighting="uniform", batch_size=2, batch_norm="averaged",
    )  # fmt: skip
    return fedbn.build_fedbn(task, values)


def scaffold_of(task):
    values = scaffold.ScaffoldHyperparameters(**OPTIONS, batch_size=2, temperature=0.5)
    return scaffold.build_scaffold(task, values)


def assert_close(values, expected):
    for a, b in zip(tf.nest.flatten(values), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "like", ["fedbn", pytest.param("fedu", marks=pytest.mark.long)]
)  # With nt_xent, and with BYOL's target network.
def test_the_first_round_is_fedavgs(worker, small_algorithm, like):
    task, clients = small_algorithm(like).inputs
    everyone = [range(len(clients))] * 2
    (first, _), (second, _) = run(scaffold_of(task), clients, everyone)
    (fedavg_first, _), (fedavg_second, _) = run(fedavg_of(task), clients, everyone)
    assert_close(first.weights, fedavg_first)
    # From the second round on, clients that differ have corrections.
    gap = np.abs(second.weights.trainable[0] - fedavg_second.trainable[0])
    assert gap.max() > 1e-4


@pytest.mark.long
@pytest.mark.slow
def test_identical_clients_have_no_drift(worker, small_algorithm):
    task, clients = small_algorithm("fedbn").inputs
    same = [clients[1]] * 2
    cohorts = [(0, 1)] * 3
    for (server, states), (expected, _) in zip(
        run(scaffold_of(task), same, cohorts), run(fedavg_of(task), same, cohorts), strict=True
    ):
        assert_close(server.weights, expected)
        assert max(np.abs(c).max() for c in server.control) > 1e-3
        for state in states:
            assert_close(state.control, server.control)


def after_a_round(scalars):
    """The algorithm, two clients with an image each, and the states of server and clients."""
    task, data = scalars
    values = scaffold.ScaffoldHyperparameters(**OPTIONS)
    algorithm = scaffold.build_scaffold(task("nt_xent"), values)
    clients = [data(k, [int(a)]) for k, a in enumerate(A)]
    ((server, states),) = run(algorithm, clients, [(0, 1)])
    return algorithm, clients, algorithm.process.initialize()._replace(model=server), states


def test_a_client_without_finite_result_changes_nothing(scalars):
    algorithm, clients, state, states = after_a_round(scalars)
    bad = tf.nest.map_structure(lambda c: np.float32(np.inf), states[0])
    nobody = algorithm.process.next(state, [bad], clients[:1])
    assert_close(nobody.state.model, state.model)
    assert nobody.metrics["dropped_clients"] == 1
    assert np.isinf(nobody.client_states[0].control).all()
    alone = algorithm.process.next(state, states[1:], clients[1:])
    both = algorithm.process.next(state, [bad, states[1]], clients)
    assert_close(both.state.model, alone.state.model)


def test_a_client_without_images_is_left_out_and_keeps_its_control_variate(scalars):
    algorithm, clients, state, states = after_a_round(scalars)
    alone = algorithm.process.next(state, states[1:], clients[1:])
    both = algorithm.process.next(state, states, [clients[0].take(0), clients[1]])
    assert_close(both.state.model, alone.state.model)
    assert_close(both.client_states[0].control, states[0].control)
    assert np.abs(states[0].control[0]).max() > 0.1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client_optimizer", "adam"),
        ("client_momentum", 0.9),
        ("learning_rate_schedule", "cosine"),
        ("server_learning_rate", 0.0),
    ],
)
def test_hyperparameters_are_checked(name, value):
    with pytest.raises(ValueError, match=name):
        scaffold.ScaffoldHyperparameters(**{name: value})
