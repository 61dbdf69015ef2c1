"""Orchestra against a plain loop in TensorFlow, and the parts of its rounds."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms import orchestra
from tff_ssl.losses import clusters
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.templates.weight_groups import encoder_of
from tff_ssl.views import quarter_turns

pytestmark = pytest.mark.xdist_group("orchestra")

RATE, TAU, DECAY, EPOCHS, M = 0.1, 0.8, 0.02, 2, 4
OPTIONS = {
    "client_learning_rate": RATE, "client_momentum": 0.0, "client_weight_decay": DECAY,
    "local_epochs": EPOCHS, "batch_size": 0, "temperature": 0.5, "target_momentum": TAU,
    "global_clusters": 3, "local_clusters": 2, "memory_size": M, "server_steps": 20,
}  # fmt: skip
SIZES = (3, 5, 2)


def build(task, **values):
    return orchestra.build_orchestra(
        task, orchestra.OrchestraHyperparameters(**{**OPTIONS, **values})
    )


def new_states(algorithm, count=3):
    return [tf.nest.map_structure(np.asarray, algorithm.initial_client_state(0))] * count


def all_examples(client):
    return next(iter(client.batch(100)))


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def assert_close(values, expected, **tolerance):
    for a, b in zip(tf.nest.flatten(values), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, **({"atol": 1e-5} | tolerance))


def first_round(algorithm, clients):
    return algorithm.process.next(
        algorithm.process.initialize(), new_states(algorithm, len(clients)), clients
    )


def in_order(rows):
    """The rows in an order that does not depend on theirs."""
    return np.array(sorted(np.round(np.asarray(rows), 5).tolist()))


@pytest.mark.slow
def test_round_0_trains_nothing_and_finds_the_first_clusters(worker, small_algorithm):
    task, clients = small_algorithm("orchestra").inputs
    algorithm = build(task)
    before = algorithm.process.initialize().model
    output = first_round(algorithm, clients)
    after = output.state.model
    for a, b in zip(tf.nest.flatten(after.networks), tf.nest.flatten(before.networks), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.abs(after.centroids - before.centroids).max() > 1e-2
    np.testing.assert_allclose(np.linalg.norm(after.centroids, axis=1), 1, rtol=1e-5)
    assert output.metrics["loss"] == 0
    target = task.model.target_model
    for client, state, n in zip(clients, output.client_states, SIZES, strict=True):
        batch, count = all_examples(client), min(n, M)
        x1, _ = task.two_views(batch["image"], batch["example_id"], tf.constant(0, tf.int64))
        z = target.apply(target.part_of(task.model.init(0)), x1[:M], training=True).z
        np.testing.assert_array_equal(state.memory[: M - count], 0)
        np.testing.assert_allclose(state.memory[M - count :], unit(z.numpy()), rtol=1e-4)


def by_hand(task, model, batch, start, target, centroids, round_number):
    """A client's weights, its target's, and projections of the last epoch, in a plain loop."""
    ids = batch["example_id"]
    weights, projections = start, None

    def views(number):
        return task.two_views(batch["image"], ids, tf.constant(number, tf.int64))

    def predicted(z):
        return tf.nn.softmax(
            tf.matmul(tf.math.l2_normalize(z, 1), centroids, transpose_b=True) / 0.5
        )

    for epoch in range(EPOCHS):
        number = round_number * EPOCHS + epoch
        (x1, x2), (x3, _) = views(number), views(-1 - number)
        x3, k = quarter_turns.turned(x3, ids, seed=task.seed, round_number=number)
        target = [TAU * t + (1 - TAU) * w for t, w in zip(target, weights, strict=False)]
        z1 = model.target_model.apply(Weights(tuple(target), ()), x1, training=True).z
        projections = unit(z1.numpy())
        with tf.GradientTape() as tape:
            tape.watch(weights)
            second = model.apply(Weights(weights, ()), x2, training=True)
            third = model.apply(Weights(weights, ()), x3, training=True)
            loss = -tf.reduce_mean(
                tf.reduce_sum(predicted(z1) * tf.math.log(predicted(second.z)), 1)
            )
            right = tf.gather(tf.nn.log_softmax(third.p), k, batch_dims=1)
            loss -= 0.7 * tf.reduce_mean(right)
        gradients = tape.gradient(loss, weights)
        weights = tuple(w - RATE * (g + DECAY * w) for w, g in zip(weights, gradients, strict=True))
    return weights, target, projections


@pytest.mark.slow
@pytest.mark.parametrize("place", ["server", pytest.param("client", marks=pytest.mark.long)])
def test_rounds_equal_a_plain_loop(worker, small_algorithm, place):
    task, clients = small_algorithm("orchestra").inputs
    task = task._replace(seed=5)
    # All examples are in each step, so that their order has no effect on the weights.
    algorithm = build(task, target=place, rotation_weight=0.7)
    model = orchestra.with_rotation_head(task.model, 0.7)
    output = first_round(algorithm, clients)
    online = model.init(0).trainable
    targets = [encoder_of(model, model.init(0)).trainable] * 3
    for round_number in (1, 2):
        centroids = output.state.model.centroids
        output = algorithm.process.next(output.state, output.client_states, clients)
        trained = [
            by_hand(task, model, all_examples(client), online, target, centroids, round_number)
            for client, target in zip(clients, targets, strict=True)
        ]
        before = online
        online, mean_target = (
            tuple(
                tf.constant(np.average(layers, 0, SIZES), tf.float32)
                for layers in zip(*(t[i] for t in trained), strict=True)
            )
            for i in (0, 1)
        )
        targets = [mean_target if place == "server" else target for _, target, _ in trained]
        networks = output.state.model.networks
        assert_close(networks.online.trainable, online)
        assert_close(networks.target, mean_target if place == "server" else ())
        for state, target, (_, _, rows), n in zip(
            output.client_states, targets, trained, SIZES, strict=True
        ):
            assert_close(state.target, target if place == "client" else ())
            if n <= M:
                np.testing.assert_allclose(
                    in_order(state.memory[M - n :]), in_order(rows), atol=1e-4
                )
            else:
                distances = np.abs(state.memory[:, None] - rows[None]).max(2)
                assert len(set(distances.argmin(1))) == M
                assert distances.min(1).max() < 1e-4
            assert state.rounds == round_number + 1
        assert max(np.abs(a - b).max() for a, b in zip(online, before, strict=True)) > 1e-3
    model_weights = algorithm.global_weights(output.state.model)
    assert len(model_weights.trainable) == len(task.model.trainable_specs)


@pytest.mark.slow
def test_the_server_clusters_the_centroids_of_all_clients(worker, small_algorithm):
    task, clients = small_algorithm("orchestra").inputs
    algorithm = build(task)
    first = first_round(algorithm, clients)
    # In the next round, the second client is absent.
    some = [clients[2], clients[0]]
    states = [first.client_states[2], first.client_states[0]]
    output = algorithm.process.next(first.state, states, some)
    client = orchestra.OrchestraClient(
        orchestra.with_rotation_head(task.model, 1.0),
        orchestra.build_local_training(task, orchestra.OrchestraHyperparameters(**OPTIONS)),
        orchestra.OrchestraHyperparameters(**OPTIONS),
    )
    rows = [
        client._centroids(
            tf.constant(state.memory[M - SIZES[k] :]), tf.constant(k, tf.int64),
            tf.constant(1, tf.int64),
        )
        for k, state in zip((0, 2), reversed(output.client_states), strict=True)
    ]  # fmt: skip
    before = first.state.model.centroids

    # In the worker, as rounding may decide in which iteration Sinkhorn's iterations end.
    @tff.tensorflow.computation((np.float32, [4, 4]), (np.float32, [3, 4]))
    def train(stacked, centroids):
        return clusters.global_centroids(stacked, centroids, 0.5, 20)

    expected = train(tf.concat(rows, 0).numpy(), before)
    np.testing.assert_allclose(output.state.model.centroids, expected, atol=1e-5)
    assert np.abs(expected - before).max() > 0.05


@pytest.mark.long
@pytest.mark.slow
def test_a_client_that_joins_later_fills_its_memory_first(worker, small_algorithm):
    task, clients = small_algorithm("orchestra").inputs
    algorithm = build(task, local_steps=1, batch_size=1)
    state = algorithm.process.initialize()._replace(round_number=np.int64(1))
    output = algorithm.process.next(state, new_states(algorithm, 1), clients[:1])
    batch = all_examples(clients[0])
    # Of three images, one has been seen in training.
    x1, _ = task.two_views(batch["image"], batch["example_id"], tf.constant(1, tf.int64))
    target = task.model.target_model
    rows = unit(target.apply(target.part_of(task.model.init(0)), x1, training=True).z.numpy())
    memory = output.client_states[0].memory
    np.testing.assert_allclose(memory[-3:-1], rows[1:], rtol=1e-4)
    distances = np.abs(memory[-1] - rows).max(1)
    assert distances.min() < 1e-4


def test_clusterings_differ_between_clients_and_rounds_and_repeat(small_algorithm):
    task = small_algorithm("orchestra").task
    values = orchestra.OrchestraHyperparameters(**{**OPTIONS, "local_clusters": 4})
    model = orchestra.with_rotation_head(task.model, 1.0)
    training = orchestra.build_local_training(task, values)
    client = orchestra.OrchestraClient(model, training, values)
    rows = clusters.unit_rows(tf.random.stateless_normal([12, 4], [1, 2]))

    def centroids(number, round_number):
        key = (tf.constant(number, tf.int64), tf.constant(round_number, tf.int64))
        return client._centroids(rows, *key).numpy()

    np.testing.assert_array_equal(centroids(0, 1), centroids(0, 1))
    assert np.abs(centroids(0, 1) - centroids(1, 1)).max() > 1e-3
    assert np.abs(centroids(0, 1) - centroids(0, 2)).max() > 1e-3


@pytest.mark.long
@pytest.mark.slow
def test_batch_norm_averages_follow_the_views_and_stay_in_round_0(worker, small_algorithm):
    task, clients = small_algorithm("orchestra").inputs
    model = DualEncoder("tiny", (2, 2, 3), (8, 4), norm="batch", projector_output_batch_norm=True)
    algorithm = build(task._replace(model=model))
    before = algorithm.process.initialize().model.networks.online.non_trainable
    output = first_round(algorithm, clients)
    after = output.state.model.networks.online.non_trainable
    for a, b in zip(after, before, strict=True):
        np.testing.assert_array_equal(a, b)
    output = algorithm.process.next(output.state, output.client_states, clients)
    moved = output.state.model.networks.online.non_trainable
    assert all(np.any(np.asarray(a) != np.asarray(b)) for a, b in zip(moved, before, strict=True))
    assert all(np.isfinite(w).all() for w in tf.nest.flatten(output.state.model))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["server", pytest.param("client", marks=pytest.mark.long)])
@pytest.mark.parametrize("rotation_weight", [pytest.param(0.0, marks=pytest.mark.long), 1.0])
def test_bytes(small_algorithm, place, rotation_weight):
    task = small_algorithm("orchestra").task
    algorithm = build(task, target=place, rotation_weight=rotation_weight)
    encoder = sum(int(np.prod(w.shape)) for w in task.model.init(0).trainable)
    networks = encoder * (2 if place == "server" else 1) + 4 * 4 * (rotation_weight > 0)
    down, up = algorithm.client_bytes()
    assert down == 4 * (networks + 3 * 4) + 8  # With the global centroids and the round's number.
    assert up == 4 * (networks + 2 * 4) + 8  # With the client's centroids and its number.


def test_models_and_hyperparameters_that_do_not_fit_are_refused(small_algorithm):
    task = small_algorithm("orchestra").task
    with pytest.raises(ValueError, match="--projector"):
        build(task._replace(model=dataclasses.replace(task.model, projector=())))
    with pytest.raises(ValueError, match="client_sizes"):
        build(task._replace(client_sizes=()))
    for bad in (
        {"global_clusters": 0}, {"local_clusters": 0}, {"memory_size": 0}, {"target": "local"},
        {"rotation_weight": -1.0}, {"server_steps": -1}, {"server_learning_rate": 0.0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(bad))):
            orchestra.OrchestraHyperparameters(**bad)
