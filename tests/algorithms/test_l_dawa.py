"""L-DAWA against the paper's rule of the server in NumPy, and against FedAvg where both agree."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.algorithms import fedavg, l_dawa

pytestmark = pytest.mark.xdist_group("l_dawa")

TRAINING = {
    "client_learning_rate": 0.1, "client_momentum": 0.5, "client_weight_decay": 1e-4,
    "local_steps": 3, "batch_size": 0, "client_weighting": "uniform", "temperature": 0.2,
}  # fmt: skip
MEAN_OF_MODELS = {
    "server_optimizer": "sgd", "server_learning_rate": 1.0, "server_momentum": 0.0,
    "server_schedule": "constant",
}  # fmt: skip


def build(task, **values):
    return l_dawa.build_l_dawa(task, l_dawa.LDAWAHyperparameters(**TRAINING, **values))


def build_fedavg(task):
    values = fedavg.FedAvgHyperparameters(**TRAINING, **MEAN_OF_MODELS)
    return fedavg.build_fedavg(task, values)


def after_rounds(built, clients, rounds=1):
    """Arrays of the global model before the last round, and after it."""
    state = before = built.process.initialize()
    for _ in range(rounds):
        before, state = state, built.process.next(state, clients).state
    return tuple(
        [np.asarray(w, np.float64) for w in s.global_model_weights.trainable]
        for s in (before, state)
    )


def cosine(a, b):
    scale = np.linalg.norm(a) * np.linalg.norm(b)
    return np.sum(a * b) / scale if scale else 1.0


def servers_rule(before, models, granularity):
    """The models' mean, each of their layers times its cosine; as the authors' server forms it."""
    result = [np.zeros_like(w) for w in before]
    for model in models:
        whole = cosine(*(np.concatenate([w.ravel() for w in m]) for m in (before, model)))
        for i, (w, w_k) in enumerate(zip(before, model, strict=True)):
            c = cosine(w, w_k) if granularity == "layer" else whole
            result[i] += c * w_k / len(models)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("granularity", ["layer", pytest.param("model", marks=pytest.mark.long)])
def test_the_clients_rule_is_that_of_the_papers_server(worker, small_algorithm, granularity):
    task, clients = small_algorithm("l_dawa").inputs
    # A client's own model is the global model after a round of FedAvg of this client alone.
    alone = build_fedavg(task)
    models = [after_rounds(alone, [client])[1] for client in clients]
    built = build(task, granularity=granularity, fedavg_rounds=0)
    before, after = after_rounds(built, clients)
    expected = servers_rule(before, models, granularity)
    plain = [np.mean(layers, 0) for layers in zip(*models, strict=True)]
    for got, wanted in zip(after, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)
    assert max(np.abs(e - p).max() for e, p in zip(expected, plain, strict=True)) > 1e-3


@pytest.mark.slow
def test_the_first_rounds_are_fedavgs_to_the_last_bit(worker, small_algorithm):
    task, clients = small_algorithm("l_dawa").inputs
    expected = after_rounds(build_fedavg(task), clients, 2)[1]
    for got, wanted in zip(
        after_rounds(build(task, fedavg_rounds=2), clients, 2)[1], expected, strict=True
    ):
        np.testing.assert_array_equal(got, wanted)
    later = after_rounds(build(task, fedavg_rounds=1), clients, 2)[1]
    assert any(np.abs(a - b).max() > 1e-4 for a, b in zip(later, expected, strict=True))


@pytest.mark.slow
def test_clients_that_are_folded_give_the_same_round(worker, small_algorithm):
    task, clients = small_algorithm("l_dawa").inputs
    built = build(task, fedavg_rounds=0)
    _, expected = after_rounds(built, clients)
    group = clients[0].concatenate(clients[1]).concatenate(clients[2])
    _, folded = after_rounds(built, [group])
    for got, wanted in zip(folded, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)


def delta_of(w, w_k, rounds=0, number=0, granularity="layer"):
    as_tensors = [tuple(tf.constant(x, tf.float32) for x in xs) for xs in (w, w_k)]
    delta = l_dawa.angular_delta(granularity, rounds, *as_tensors, tf.constant(number, tf.int64))
    return [d.numpy() for d in delta]


W = [np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([1.0, -2.0]), np.array([0.5])]


@pytest.mark.parametrize("granularity", ["layer", "model"])
def test_models_of_equal_direction_are_averaged_as_by_fedavg(granularity):
    # w_k = s w: the cosine is 1 for s > 0.
    for s in (0.25, 1.0, 3.0):
        got = delta_of(W, [s * w for w in W], granularity=granularity)
        for delta, w in zip(got, W, strict=True):
            np.testing.assert_allclose(delta, w - s * w, atol=1e-6)


def test_a_layer_that_turned_round_is_turned_back():
    # For w_k = -s w the cosine is -1, so that the server gets s w.
    for delta, w in zip(delta_of(W, [-0.5 * w for w in W]), W, strict=True):
        np.testing.assert_allclose(w - delta, 0.5 * w, atol=1e-6)


def test_a_layer_at_right_angles_vanishes():
    (delta,) = delta_of([np.array([2.0, 0.0])], [np.array([0.0, 5.0])])
    np.testing.assert_allclose(delta, [2.0, 0.0], atol=1e-6)


def test_layers_of_zeros_and_single_numbers_keep_the_plain_delta():
    zeros, ones = np.zeros(2), np.ones(2)
    (delta,) = delta_of([zeros], [ones])
    np.testing.assert_array_equal(delta, -ones)
    (delta,) = delta_of([ones], [zeros])
    np.testing.assert_array_equal(delta, ones)
    (delta,) = delta_of([np.array(2.0)], [np.array(-1.0)])
    np.testing.assert_array_equal(delta, 3.0)


def test_tiny_layers_have_a_direction():
    for scale in (1e-30, 1e-36):
        w, w_k = (np.float32(scale) * np.array(x) for x in ([1.0, 0.0], [3.0, 4.0]))
        (delta,) = delta_of([w], [w_k])
        np.testing.assert_allclose(delta / scale, [1 - 0.6 * 3, -0.6 * 4], rtol=1e-5)


def test_the_rule_differs_from_fedavg_in_second_order_of_the_step():
    rng = np.random.default_rng(0)
    w, step = rng.normal(size=8), rng.normal(size=8)
    gaps = []
    for rate in (0.1, 0.05, 0.025):
        (delta,) = delta_of([w], [w + rate * step])
        gaps.append(np.linalg.norm(delta - (w - (w + rate * step))))
        turn = l_dawa.one_minus_cosine(*(tf.constant(x, tf.float32) for x in (w, w + rate * step)))
        assert turn.numpy() == pytest.approx(1 - cosine(w, w + rate * step), rel=1e-4)
    assert 3.5 < gaps[0] / gaps[1] < 4.6
    assert 3.7 < gaps[1] / gaps[2] < 4.4


def test_it_sends_what_fedavg_sends(worker, small_algorithm):
    small = small_algorithm("l_dawa")
    task, built = small.task, small.computations
    assert built.client_bytes() == build_fedavg(task).client_bytes()
    parameters = sum(int(np.prod(w.shape)) for w in task.model.init(0).trainable)
    down, up = built.client_bytes()
    assert down == 4 * parameters + 8  # The model, and the round's number.
    # The delta and its weight; the weight, loss, mean and mean square of z; two counts.
    assert up == 4 * (parameters + 1) + 4 * (1 + 1 + 4 + 4) + 2 * 8


@pytest.mark.parametrize("bad", [{"granularity": "tensor"}, {"fedavg_rounds": -1}])
def test_impossible_hyperparameters_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        l_dawa.LDAWAHyperparameters(**bad)
