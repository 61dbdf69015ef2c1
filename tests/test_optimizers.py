"""LARS against NumPy, cosine decay against exact values, and both in TFF computations."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.algorithms.fedavg import FedAvgHyperparameters


def numpy_lars(weights, gradients, rates, momentum, decay, eta, adapt_1d):
    """You et al. 2017, Algorithm 1, on lists of float64 arrays; one rate and gradient a step."""
    weights = [np.array(w, np.float64) for w in weights]
    velocity = [np.zeros_like(w) for w in weights]
    for rate, step_gradients in zip(rates, gradients, strict=True):
        for i, g in enumerate(step_gradients):
            w, g = weights[i], np.asarray(g, np.float64)
            if w.ndim > 1 or adapt_1d:
                w_norm, g_norm = np.sqrt((w**2).sum()), np.sqrt((g**2).sum())
                zero = w_norm == 0 or g_norm == 0
                local = 1.0 if zero else eta * w_norm / (g_norm + decay * w_norm)
                direction = local * (g + decay * w)
            else:
                direction = g
            velocity[i] = momentum * velocity[i] + rate * direction
            weights[i] = w - velocity[i]
    return weights


SHAPES = [(3, 4), (4,), (2, 3, 2), ()]


def random_arrays(rng):
    return [rng.standard_normal(s).astype(np.float32) for s in SHAPES]


def as_structure(arrays):
    """A nested structure whose leaves are in the order of `arrays`."""
    a, b, c, d = map(tf.constant, arrays)
    return collections.OrderedDict(dense=(a, b), rest=[collections.OrderedDict(conv=c, scale=d)])


def specs_for(structure):
    return tf.nest.map_structure(tf.TensorSpec.from_tensor, structure)


def assert_close(structure, arrays, rtol=2e-5):
    for tensor, array in zip(tf.nest.flatten(structure), arrays, strict=True):
        np.testing.assert_allclose(tensor.numpy(), array, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("adapt_1d", [False, True])
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.1)])
def test_lars_equals_numpy_over_steps(momentum, decay, adapt_1d):
    rng = np.random.default_rng(0)
    initial, gradients = random_arrays(rng), [random_arrays(rng) for _ in range(5)]
    expected = numpy_lars(initial, gradients, [2.0] * 5, momentum, decay, 0.05, adapt_1d)

    lars = optimizers.build_lars(2.0, momentum, decay, trust_coefficient=0.05, adapt_1d=adapt_1d)
    weights = as_structure(initial)
    state = lars.initialize(specs_for(weights))
    step = tf.function(lars.next)
    for g in gradients:
        state, weights = step(state, weights, as_structure(g))

    tf.nest.assert_same_structure(weights, as_structure(initial))
    assert_close(weights, expected)


@pytest.mark.parametrize("zero", ["weights", "gradients"])
def test_a_zero_norm_gives_trust_ratio_one(zero):
    w = np.array([[3.0, 4.0]], np.float32) * (zero != "weights")
    g = np.array([[0.6, 0.8]], np.float32) * (zero != "gradients")
    lars = optimizers.build_lars(0.5, 0.9, weight_decay=0.1)
    _, new = lars.next(lars.initialize(tf.TensorSpec([1, 2])), tf.constant(w), tf.constant(g))
    np.testing.assert_allclose(new.numpy(), w - 0.5 * (g + 0.1 * w), rtol=1e-6)


def test_zero_weights_and_gradients_stay_finite():
    lars = optimizers.build_lars(1.0)
    zeros = tf.zeros([2, 2])
    state, new = lars.next(lars.initialize(tf.TensorSpec([2, 2])), zeros, zeros)
    np.testing.assert_array_equal(new.numpy(), np.zeros([2, 2]))
    np.testing.assert_array_equal(state["accumulator"].numpy(), np.zeros([2, 2]))


def test_lars_step_does_not_depend_on_the_scale_of_the_gradient():
    w, g = tf.constant([[1.0, -2.0], [0.5, 3.0]]), tf.constant([[0.3, 0.1], [-0.7, 0.2]])
    lars = optimizers.build_lars(1.0)
    state = lars.initialize(tf.TensorSpec([2, 2]))
    _, a = lars.next(state, w, g)
    _, b = lars.next(state, w, 1000.0 * g)
    np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(tf.norm(w - a), 0.001 * tf.norm(w), rtol=1e-3)


def test_epsilon_is_in_the_denominator_and_none_gradients_change_nothing():
    w, g = tf.constant([[3.0, 4.0]]), tf.constant([[0.6, 0.8]])  # norms 5 and 1
    lars = optimizers.build_lars(1.0, trust_coefficient=0.1, epsilon=1.5)
    state = lars.initialize((tf.TensorSpec([1, 2]), tf.TensorSpec([1, 2])))
    state, (new, same) = lars.next(state, (w, w), (g, None))
    np.testing.assert_allclose(new, w - 0.1 * 5.0 / 2.5 * g, rtol=1e-6)
    np.testing.assert_array_equal(same, w)
    np.testing.assert_array_equal(state["accumulator"][1], np.zeros([1, 2]))


def test_lars_hparams_can_be_read_and_set():
    lars = optimizers.build_lars(0.5, 0.8, 0.01, 0.002, 1e-9)
    state = lars.initialize(tf.TensorSpec([1, 2]))
    hparams = lars.get_hparams(state)
    assert list(hparams) == [
        "learning_rate",
        "momentum",
        "weight_decay",
        "trust_coefficient",
        "epsilon",
    ]
    np.testing.assert_allclose(list(hparams.values()), [0.5, 0.8, 0.01, 0.002, 1e-9])
    hparams["learning_rate"] = tf.constant(7.0)
    changed = lars.set_hparams(state, hparams)
    assert list(changed) == list(state)
    assert changed["learning_rate"] == 7.0
    assert state["learning_rate"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": 1.0, "momentum": 1.0}, "momentum"),
        ({"learning_rate": 1.0, "weight_decay": -0.1}, "weight_decay"),
        ({"learning_rate": 1.0, "trust_coefficient": 0.0}, "trust_coefficient"),
    ],
)
def test_lars_refuses_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimizers.build_lars(**arguments)


def test_lars_refuses_gradients_of_another_shape():
    lars = optimizers.build_lars(1.0)
    state = lars.initialize(tf.TensorSpec([1, 2]))
    with pytest.raises(ValueError, match="same shapes"):
        lars.next(state, tf.zeros([1, 2]), tf.zeros([2, 1]))


def test_cosine_decay_values():
    schedule = optimizers.cosine_decay(0.4, 100)
    steps = [0, 25, 50, 75, 100, 1000]
    expected = [0.4, 0.2 * (1 + np.sqrt(0.5)), 0.2, 0.2 * (1 - np.sqrt(0.5)), 0.0, 0.0]
    np.testing.assert_allclose([schedule(t) for t in steps], expected, rtol=1e-6, atol=1e-7)
    assert schedule(0) == np.float32(0.4)
    assert schedule(100) == 0.0
    assert schedule(tf.constant(50)).dtype == tf.float32


def test_cosine_decay_with_warmup():
    schedule = optimizers.cosine_decay(1.0, decay_steps=14, warmup_steps=4)
    rates = [float(schedule(tf.constant(t))) for t in range(15)]
    np.testing.assert_allclose(rates[:5], [0.25, 0.5, 0.75, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(rates[9], 0.5, rtol=1e-6)
    assert rates[14] == 0.0
    assert np.all(np.diff(rates[4:]) < 0)


@pytest.mark.parametrize(("steps", "warmup"), [(0, 0), (5, 5), (5, -1)])
def test_cosine_decay_refuses_an_empty_schedule(steps, warmup):
    with pytest.raises(ValueError, match="warmup_steps"):
        optimizers.cosine_decay(1.0, steps, warmup)


def test_scheduled_lars_uses_the_rate_of_step_zero_first():
    rng = np.random.default_rng(1)
    initial, gradients = random_arrays(rng), [random_arrays(rng) for _ in range(4)]
    rates = [0.5 * 3.0 * (1 + np.cos(np.pi * t / 4)) for t in range(4)]
    expected = numpy_lars(initial, gradients, rates, 0.9, 0.02, 0.001, False)

    optimizer = optimizers.build_scheduled_optimizer("lars", 3.0, steps=4, weight_decay=0.02)
    weights = as_structure(initial)
    state = optimizer.initialize(specs_for(weights))
    for g in gradients:
        state, weights = optimizer.next(state, weights, as_structure(g))

    assert_close(weights, expected)
    assert state["round_num"] == 4
    assert state["optimizer"]["learning_rate"] == 0.0


@pytest.mark.parametrize("name", optimizers.OPTIMIZER_NAMES)
def test_a_longer_schedule_counts_from_the_first_step_after_a_resumption(name):
    short = optimizers.build_scheduled_optimizer(name, 0.1, steps=2)
    longer = optimizers.build_scheduled_optimizer(name, 0.1, steps=4)
    w, g = tf.constant([[1.0, 2.0]]), tf.constant([[0.5, -0.25]])
    state = short.initialize(tf.TensorSpec([1, 2]))
    for _ in range(2):
        state, w = short.next(state, w, g)

    _, after = longer.next(state, w, g)

    constant = optimizers.build_optimizer(name, 0.05)  # Half of the rate after half of the steps.
    inner = constant.set_hparams(
        state["optimizer"], constant.get_hparams(constant.initialize(tf.TensorSpec([1, 2])))
    )
    _, expected = constant.next(inner, w, g)
    np.testing.assert_allclose(after, expected, rtol=1e-6)
    assert np.abs(after - w).min() > 1e-6


def test_server_sgd_and_adam_first_steps():
    w, g = tf.constant([1.0, 2.0]), tf.constant([0.5, -0.25])
    for name, expected in [("sgd", w - 0.1 * g), ("adam", w - 0.1 * tf.sign(g))]:
        optimizer = optimizers.build_scheduled_optimizer(name, 0.1, steps=10)
        _, new = optimizer.next(optimizer.initialize(tf.TensorSpec([2])), w, g)
        np.testing.assert_allclose(new, expected, rtol=1e-5)


def test_the_servers_weight_decay_and_the_clients_beta_1():
    # Decoupled: w' = w - rate (step + decay w), and Adam's first step is 1 without a sign change.
    values = optimizers.ServerOptimizerHyperparameters(
        server_optimizer="adamw", server_learning_rate=0.1, server_weight_decay=0.5
    )
    decaying, weights = values.build_server_optimizer(10), tf.constant([2.0])
    _, after = decaying.next(decaying.initialize(tf.TensorSpec([1])), weights, tf.constant([3.0]))
    np.testing.assert_allclose(after, 2 - 0.1 * (1 + 0.5 * 2), rtol=1e-5)
    for options, message in (({"server_weight_decay": -1.0}, "-1.0"),
                           ({"server_weight_decay": 0.1}, "with sgd")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            optimizers.ServerOptimizerHyperparameters(**options)
    # FedAvg's clients have no momentum by default; Adam's beta_1 is the usual one all the same.
    client = FedAvgHyperparameters(client_optimizer="adam").build_client_optimizer()
    assert client.get_hparams(client.initialize(tf.TensorSpec([1])))["beta_1"] == 0.9


def test_a_constant_server_rate_of_one_sets_the_model_to_the_mean():
    values = optimizers.ServerOptimizerHyperparameters(
        server_optimizer="sgd", server_learning_rate=1.0, server_momentum=0.0,
        server_schedule="constant",
    )  # fmt: skip
    server = values.build_server_optimizer(rounds=2)
    state, weights = server.initialize(tf.TensorSpec([1])), tf.constant([2.0])
    for step in range(5):  # Also after the last of the rounds, where cosine decay is at 0.
        mean = tf.constant([float(step)])
        state, weights = server.next(state, weights, weights - mean)
        np.testing.assert_array_equal(weights, mean)
    for options in ({"server_schedule": "nosuch"},
                    {"server_schedule": "constant", "warmup_rounds": 1}):  # fmt: skip
        with pytest.raises(ValueError, match="server_schedule"):
            optimizers.ServerOptimizerHyperparameters(**options)


def test_server_optimizer_errors():
    with pytest.raises(ValueError, match="adam, adamw, lars, sgd"):
        optimizers.build_scheduled_optimizer("rmsprob", 0.1, 10)
    for name in ("adam", "sgd"):
        with pytest.raises(ValueError, match="weight_decay"):
            optimizers.build_scheduled_optimizer(name, 0.1, 10, weight_decay=0.1)


@pytest.mark.parametrize("name", optimizers.OPTIMIZER_NAMES)
def test_compiled_steps_are_equal_up_to_rounding(name):
    def three_steps(xla):
        rng = np.random.default_rng(0)
        optimizer = optimizers.build_scheduled_optimizer(name, 0.1, 4, xla=xla)
        weights = [tf.constant(array) for array in random_arrays(rng)]
        state = optimizer.initialize([tf.TensorSpec(shape) for shape in SHAPES])
        for _ in range(3):
            gradients = [tf.constant(array) for array in random_arrays(rng)]
            state, weights = optimizer.next(state, weights, gradients)
        return tf.nest.flatten((state, weights))

    for a, b in zip(three_steps(xla=True), three_steps(xla=False), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", optimizers.OPTIMIZER_NAMES)
def test_builds_as_a_tff_finalizer(name):
    trainable = (
        tff.TensorType(np.float32, [3, 4]),
        tff.TensorType(np.float32, [4]),
    )
    weights_type = tff.types.to_type(
        tff.learning.models.ModelWeights(trainable=trainable, non_trainable=())
    )
    optimizer = optimizers.build_scheduled_optimizer(name, 0.1, steps=10, warmup_steps=2)
    finalizer = tff.learning.templates.build_apply_optimizer_finalizer(optimizer, weights_type)
    state_type = finalizer.initialize.type_signature.result
    assert state_type.placement is tff.SERVER
    assert finalizer.next.type_signature.result.state == state_type
    assert finalizer.next.type_signature.result.result.member == weights_type
    blob = tff.framework.serialize_computation(finalizer.next)
    restored = tff.framework.deserialize_computation(blob)
    assert restored.type_signature.is_equivalent_to(finalizer.next.type_signature)


def test_lars_state_keeps_its_type_in_a_tff_computation():
    lars = optimizers.build_lars(0.1)
    weights_type = tff.types.to_type(
        collections.OrderedDict(kernel=tff.TensorType(np.float32, [3, 4]))
    )
    initialize = tff.tensorflow.computation(
        lambda: lars.initialize(collections.OrderedDict(kernel=tf.TensorSpec([3, 4])))
    )
    state_type = initialize.type_signature.result
    step = tff.tensorflow.computation(lars.next, [state_type, weights_type, weights_type])
    assert step.type_signature.result[0] == state_type
    assert step.type_signature.result[1] == weights_type
