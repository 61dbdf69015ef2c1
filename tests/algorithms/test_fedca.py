"""FedCA against FedSimCLR, against a plain loop in TensorFlow, and its dictionary."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.algorithms import fedavg, fedbn, fedca
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.templates.task import FrozenEncoder

pytestmark = pytest.mark.xdist_group("fedca")

RATE, EPOCHS, T, BETA = 0.1, 2, 0.5, 0.3
TRAINING = {
    "client_optimizer": "sgd", "client_learning_rate": RATE, "client_momentum": 0.0,
    "client_weight_decay": 0.01, "learning_rate_schedule": "constant", "local_epochs": EPOCHS,
    "batch_size": 0, "temperature": T,
}  # fmt: skip
SIZES = (3, 5, 2)


def build(task, **values):
    return fedca.build_fedca(task, fedca.FedCAHyperparameters(**{**TRAINING, **values}))


def train(algorithm, clients, cohorts):
    """The server's model before the first and after each round of these cohorts."""
    server = algorithm.process.initialize()
    states = [tf.nest.map_structure(np.asarray, algorithm.initial_client_state(0))] * len(clients)
    models = [server.model]
    for cohort in cohorts:
        output = algorithm.process.next(
            server, [states[k] for k in cohort], [clients[k] for k in cohort]
        )
        server = output.state
        for k, state in zip(cohort, output.client_states, strict=True):
            states[k] = state
        models.append(server.model)
    return models


EVERYONE = [(0, 1, 2)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [0, pytest.param(2, marks=pytest.mark.long)])
def test_with_neither_part_it_is_fedsimclr(worker, small_algorithm, batch_size):
    task, clients = small_algorithm("fedca").inputs
    options = {**TRAINING, "batch_size": batch_size}
    neither = build(task, dictionary=False, alignment_weight=0.0, batch_size=batch_size)
    before, *_, got = train(neither, clients, EVERYONE)
    averaged = fedbn.build_fedbn(task, fedbn.FedBNHyperparameters(**options, batch_norm="averaged"))
    expected = train(averaged, clients, EVERYONE)[-1]
    assert got.dictionary == ()
    for a, b in zip(got.weights.trainable, expected.trainable, strict=True):
        np.testing.assert_array_equal(a, b)
    # FedAvg sends the models' changes, which differ in rounding.
    values = fedavg.FedAvgHyperparameters(
        **options, server_optimizer="sgd", server_learning_rate=1.0, server_momentum=0.0,
        server_schedule="constant",
    )  # fmt: skip
    process = fedavg.build_fedavg(task, values).process
    state = process.initialize()
    for _ in EVERYONE:
        state = process.next(state, clients).state
    for a, b in zip(got.weights.trainable, state.global_model_weights.trainable, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    moves = [
        np.abs(a - b).max()
        for a, b in zip(got.weights.trainable, before.weights.trainable, strict=True)
    ]
    assert max(moves) > 1e-3
    assert neither.client_bytes() == averaged.client_bytes()


def all_examples(client):
    return next(iter(client.batch(100)))


def unit(z):
    return z / tf.norm(z, axis=1, keepdims=True)


def by_hand(task, batch, weights, others, round_number, beta):
    """A client's weights, and its projections in the last epoch, in a plain loop."""
    base, n = task.base_encoder, len(batch["example_id"])
    for epoch in range(EPOCHS):
        number = tf.constant(round_number * EPOCHS + epoch, tf.int64)
        views = task.two_views(batch["image"], batch["example_id"], number)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            outputs = [task.model.apply(Weights(weights, ()), x, training=True) for x in views]
            z = unit(tf.concat([o.z for o in outputs], 0))
            loss = 0.0
            for i in range(2 * n):
                of_batch = [tf.exp(tf.tensordot(z[i], z[k], 1) / T) for k in range(2 * n) if k != i]
                of_others = [tf.exp(tf.tensordot(z[i], v, 1) / T) for v in others]
                positive = tf.exp(tf.tensordot(z[i], z[(i + n) % (2 * n)], 1) / T)
                loss -= tf.math.log(positive / tf.add_n(of_batch + of_others)) / (2 * n)
            for x, output in zip(views, outputs, strict=True):
                a = base.model.apply(base.weights, x, training=False).h
                loss += beta * tf.reduce_sum(tf.square(output.h - a)) / (2 * n)
        gradients = tape.gradient(loss, weights)
        weights = tuple(w - RATE * (g + 0.01 * w) for w, g in zip(weights, gradients, strict=True))
    return weights, z[:n]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dictionary", "beta"),
    [
        (True, BETA),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((True, 0.0), (False, BETA))),
    ],
)
def test_rounds_equal_a_plain_loop(worker, small_algorithm, dictionary, beta):
    task, clients = small_algorithm("fedca").inputs
    algorithm = build(task, dictionary=dictionary, alignment_weight=beta)
    # The second client is absent in the second round, and counts with its rows of the first.
    cohorts = [(0, 1, 2), (2, 0), (1, 2)]
    before, *models = train(algorithm, clients, cohorts)
    weights, rows = tuple(map(tf.constant, before.weights.trainable)), {}
    for round_number, (cohort, got) in enumerate(zip(cohorts, models, strict=True)):
        trained = {}
        for k in cohort:
            others = [v for j, part in rows.items() for v in part if j != k and dictionary]
            trained[k] = by_hand(
                task, all_examples(clients[k]), weights, others, round_number, beta
            )
        sizes = [SIZES[k] for k in cohort]
        models_of_clients = (trained[k][0] for k in cohort)
        weights = tuple(
            tf.constant(np.average(layers, 0, sizes), tf.float32)
            for layers in zip(*models_of_clients, strict=True)
        )
        rows |= {k: trained[k][1] for k in cohort}
        for a, b in zip(got.weights.trainable, weights, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
        for k, n in enumerate(SIZES if dictionary else ()):
            np.testing.assert_allclose(got.dictionary[k, :n], rows[k], atol=1e-4)
            np.testing.assert_array_equal(got.dictionary[k, n:], 0)


def test_a_clients_own_rows_have_no_effect_and_those_of_others_have(worker, small_algorithm):
    task, clients = small_algorithm("fedca").inputs
    algorithm = build(task)
    state = algorithm.process.initialize()
    fresh = [tf.nest.map_structure(np.asarray, algorithm.initial_client_state(0))]
    rng = np.random.default_rng(0)

    def after(changed):
        dictionary = np.zeros([3, 5, 4], np.float32)
        dictionary[:, :2] = [0.6, 0.8, 0.0, 0.0]
        if changed is not None:
            random = rng.normal(size=[5, 4])
            dictionary[changed] = random / np.linalg.norm(random, axis=1, keepdims=True)
        model = state.model._replace(dictionary=dictionary)
        output = algorithm.process.next(state._replace(model=model), fresh, clients[1:2])
        return output.state.model

    plain, own, other = after(None), after(1), after(2)
    for a, b in zip(plain.weights.trainable, own.weights.trainable, strict=True):
        np.testing.assert_array_equal(a, b)
    gaps = [
        np.abs(a - b).max()
        for a, b in zip(plain.weights.trainable, other.weights.trainable, strict=True)
    ]
    assert max(gaps) > 1e-4
    # The client's new rows take the places of its old ones, and the others' stay.
    np.testing.assert_allclose(plain.dictionary[0, :2], [[0.6, 0.8, 0, 0]] * 2)
    np.testing.assert_allclose(np.linalg.norm(plain.dictionary[1], axis=1), 1, rtol=1e-5)


def test_rows_of_absent_clients_and_of_images_that_were_in_no_step_stay():
    def rows(*values):
        return tf.constant(values, tf.float32)[..., tf.newaxis]

    weights = Weights((tf.zeros(1),), ())
    server = fedca.ServerModel(weights, rows((1, 2), (3, 4)))
    after = fedca.server_update(server, (weights,), rows((0, 0), (5, 0)))
    np.testing.assert_array_equal(after.dictionary, rows((1, 2), (5, 4)))


def test_the_base_encoder_stays_in_the_clients_state(worker, small_algorithm):
    task, clients = small_algorithm("fedca").inputs
    algorithm = build(task)
    state = tf.nest.map_structure(np.asarray, algorithm.initial_client_state(0))
    output = algorithm.process.next(algorithm.process.initialize(), [state], clients[:1])
    for a, b in zip(
        output.client_states[0].base.trainable, task.base_encoder.weights.trainable, strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dictionary", [True, pytest.param(False, marks=pytest.mark.long)])
def test_bytes(small_algorithm, dictionary):
    task = small_algorithm("fedca").task
    weights = sum(int(np.prod(w.shape)) for w in task.model.init(0).trainable)
    down, up = build(task, dictionary=dictionary).client_bytes()
    # Three clients, with the places of the largest one's five images, of four numbers each.
    assert down == 4 * (weights + dictionary * 3 * 5 * 4) + 8
    assert up == 4 * (weights + dictionary * 5 * 4) + dictionary * 8


@pytest.mark.slow
def test_encoders_and_hyperparameters_that_do_not_fit_are_refused(small_algorithm):
    task = small_algorithm("fedca").task
    with pytest.raises(ValueError, match=r"alignment_weight=0.3 needs --alignment_encoder"):
        build(task._replace(base_encoder=None), alignment_weight=BETA)
    build(task._replace(base_encoder=None), alignment_weight=0.0)
    model = dataclasses.replace(task.base_encoder.model, image_shape=(4, 4, 3))
    other = FrozenEncoder(model, model.init(0))
    with pytest.raises(ValueError, match="--alignment_encoder has encodings"):
        build(task._replace(base_encoder=other))
    with pytest.raises(ValueError, match="client_sizes"):
        build(task._replace(client_sizes=()))
    build(task._replace(client_sizes=()), dictionary=False)
    with pytest.raises(ValueError, match="alignment_weight"):
        fedca.FedCAHyperparameters(alignment_weight=-1.0)
