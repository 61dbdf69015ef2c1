"""FedX against FedAvg, a plain loop in TensorFlow, and the values of its terms."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.algorithms import fedavg, fedx
from tff_ssl.losses import segments
from tff_ssl.losses.nt_xent import nt_xent
from tff_ssl.losses.relational import relational
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.registry import Batch

pytestmark = pytest.mark.xdist_group("fedx")

RATE = 0.1
TRAINING = {
    "client_learning_rate": RATE, "client_momentum": 0.0, "client_weight_decay": 0.0,
    "local_epochs": 2, "batch_size": 2, "temperature": 0.5,
}  # fmt: skip
MEAN_OF_MODELS = {
    "server_optimizer": "sgd", "server_learning_rate": 1.0, "server_momentum": 0.0,
    "server_schedule": "constant",
}  # fmt: skip
TEMPERATURES = {"temperature_local": 0.4, "temperature_global": 0.3}


def build(task, **values):
    return fedx.build_fedx(task, fedx.FedXHyperparameters(**{**TRAINING, **values}))


def before_and_after(built, clients, rounds=1):
    state = built.process.initialize()
    for _ in range(rounds):
        before, state = state, built.process.next(state, clients).state
    return [[np.asarray(w) for w in s.global_model_weights.trainable] for s in (before, state)]


@pytest.mark.slow
def test_without_both_weights_it_is_fedavg_and_the_predictor_stays(worker, small_algorithm):
    task, clients = small_algorithm("fedx").inputs
    values = fedavg.FedAvgHyperparameters(**TRAINING, **MEAN_OF_MODELS)
    _, expected = before_and_after(fedavg.build_fedavg(task, values), clients, 2)
    before, got = before_and_after(build(task, relational_weight=0, global_weight=0), clients, 2)
    encoder_and_projector = len(task.model.target_model.trainable_specs)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    for a, b in zip(got[encoder_and_projector:], before[encoder_and_projector:], strict=True):
        np.testing.assert_array_equal(a, b)
    moves = [np.abs(a - b).max() for a, b in zip(got, before, strict=True)]
    assert max(moves[:encoder_and_projector]) > 1e-3


def by_hand(task, client):
    """A client's weights after two steps on all of its examples, in a plain loop."""
    batch = next(iter(client.batch(100)))
    n = len(batch["example_id"])
    weights = start = task.model.init(0).trainable
    target = task.model.target_model.part_of(Weights(start, ()))

    def views(number):
        return task.two_views(batch["image"], batch["example_id"], tf.constant(number, tf.int64))

    for step in range(2):
        (x1, x2), (x3, _) = views(step), views(-1 - step)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            one, two, three = (
                task.model.apply(Weights(weights, ()), x, training=True) for x in (x1, x2, x3)
            )
            # In the first step, the teacher's weights are the very tensors that the tape watches.
            t2, t3 = (
                tf.stop_gradient(task.model.target_model.apply(target, x, training=False).z)
                for x in (x2, x3)
            )
            whole = segments.one(n)
            local = tf.reduce_mean(nt_xent(one.z, two.z, whole, 0.5))
            local += 0.7 * tf.reduce_mean(relational(one.z, two.z, three.z, 0.5, 0.4))
            distilled = tf.reduce_mean(nt_xent(one.p, t2, whole, 0.5))
            distilled += 0.7 * tf.reduce_mean(relational(one.p, two.p, t3, 0.5, 0.3))
            loss = local + 0.6 * distilled
        gradients = tape.gradient(loss, weights)
        weights = tuple(w - RATE * g for w, g in zip(weights, gradients, strict=True))
    return [w.numpy() for w in weights]


@pytest.mark.slow
def test_clients_alone_and_folded_equal_a_plain_loop(worker, small_algorithm):
    task, clients = small_algorithm("fedx").inputs
    # All examples are in each step, so that their order has no effect.
    values = {"batch_size": 0, "relational_weight": 0.7, "global_weight": 0.6, **TEMPERATURES}
    built = build(task, **values)
    sizes = (3, 5, 2)
    models = [by_hand(task, client) for client in clients]
    expected = [np.average(layers, 0, sizes) for layers in zip(*models, strict=True)]
    group = clients[0].concatenate(clients[1]).concatenate(clients[2])
    for groups in (clients, [group]):
        before, got = before_and_after(built, groups)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
    assert max(np.abs(a - b).max() for a, b in zip(before, expected, strict=True)) > 1e-3


def test_the_other_images_are_of_the_same_client_and_in_another_order(small_algorithm):
    task = small_algorithm("fedx").task
    seen = []

    def evaluate(model, weights, target, batch, values):
        seen.append((batch.example_ids.numpy().tolist(), batch.x3.numpy()))
        losses = tf.reduce_sum(weights.trainable[0]) + tf.zeros([len(batch.x1)])
        outputs = model.apply(weights, batch.x1, True)
        return fedx.Evaluated(losses, outputs.z, (outputs.p,) * 2, (), (outputs.h,) * 2)

    def views(images, ids, number):
        shown = tf.cast(ids, tf.float32)[:, None, None, None] + 0 * tf.cast(images, tf.float32)
        return shown + 1000 * tf.cast(number, tf.float32), shown

    training = dataclasses.replace(
        fedx.build_local_training(
            task._replace(two_views=views), fedx.FedXHyperparameters(**TRAINING)
        ),
        objective=fedx.Objective("a test", evaluate, others=True),
    )
    examples = {
        "example_id": tf.range(10, 16, dtype=tf.int64), "image": tf.zeros([6, 2, 2, 3], tf.uint8)
    }  # fmt: skip
    weights = task.model.init(0)
    training.train(weights, Weights((), ()), tf.constant(1, tf.int64), examples)
    assert len(seen) == 6
    for epoch, number in ((seen[:3], 2), (seen[3:], 3)):
        ids = [i for batch, _ in epoch for i in batch]
        drawn = [x3[:, 0, 0, 0] + 1000 * (1 + number) for _, x3 in epoch]
        drawn = [round(float(i)) for batch in drawn for i in batch]
        assert sorted(ids) == sorted(drawn) == list(range(10, 16))
        assert ids != drawn


def test_in_the_first_step_the_teachers_terms_have_the_values_of_the_clients_own():
    rng = np.random.default_rng(0)
    z1, z2, z3 = (tf.constant(rng.normal(size=(4, 3)), tf.float32) for _ in range(3))
    ids = tf.range(4, dtype=tf.int64)
    batch = Batch(z1, z2, segments.one(4), None, ids)
    values = fedx.FedXHyperparameters(
        temperature=0.5, **{**TEMPERATURES, "temperature_global": 0.4}
    )
    # The predictor is the identity, and the teacher is the client's own network.
    got = fedx.fedx_losses((z1, z2, z3), (z1, z2), (z2, z3), batch, values)
    own = nt_xent(z1, z2, batch.segments, 0.5) + relational(z1, z2, z3, 0.5, 0.4)
    np.testing.assert_allclose(got, 2 * own, rtol=1e-5)


def test_it_sends_what_fedavg_sends(worker, small_algorithm):
    small = small_algorithm("fedx")
    task, built = small.task, small.computations
    parameters = sum(int(np.prod(w.shape)) for w in task.model.init(0).trainable)
    down, up = built.client_bytes()
    assert down == 4 * parameters + 8  # The model, and the round's number.
    # The delta and its weight; the weight, loss, mean and mean square of z; two counts.
    assert up == 4 * (parameters + 1) + 4 * (1 + 1 + 4 + 4) + 2 * 8


def test_models_and_hyperparameters_that_do_not_fit_are_refused(small_algorithm):
    task = small_algorithm("fedx").task
    for predictor in ((), (5,)):
        model = dataclasses.replace(task.model, predictor=predictor)
        with pytest.raises(ValueError, match="--predictor"):
            fedx.build_fedx(task._replace(model=model))
    for bad in (
        {"relational_weight": -1.0}, {"global_weight": -1.0}, {"temperature_local": 0.0},
        {"temperature_global": -1.0}, {"divergence": "kl"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(bad))):
            fedx.FedXHyperparameters(**bad)
