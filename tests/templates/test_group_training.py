"""The terms that algorithms add to local training, and the mean over the clients of a call."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests.networks import OneLayer, two_views
from tff_ssl.losses import segments
from tff_ssl.losses.nt_xent import nt_xent
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.registry import Evaluated, Objective
from tff_ssl.templates import group_training
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.local_training import build_local_training
from tff_ssl.templates.task import Task

RATE, MU, DECAY, SIZES = 0.1, 0.7, 0.01, (3, 5)
SHAPE = (4, 4, 1)
MODEL = OneLayer("tiny", SHAPE, projector=(6,))
TASK = Task(MODEL, two_views, None, 10, "nt_xent")
CLIENT = np.repeat(np.arange(2), SIZES)
IMAGES = np.random.default_rng(0).integers(0, 256, (sum(SIZES), *SHAPE), np.uint8)
NOTHING = Weights((), ())


def training(**parts):
    values = ClientHyperparameters(
        client_learning_rate=RATE, client_momentum=0.0, client_weight_decay=DECAY, local_steps=2,
        temperature=0.5,
    )  # fmt: skip
    return build_local_training(TASK, values, **parts)


def examples():
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(
            client=CLIENT.astype(np.int64), example_id=np.arange(sum(SIZES)), image=IMAGES
        )
    )


def by_hand(k, extra):
    """(initial minus final weights, mean loss) of two steps of client k, without their code."""
    chosen = np.flatnonzero(k == CLIENT)
    initial = weights = MODEL.init(0).trainable
    losses = []
    for step in range(2):
        x1, x2 = two_views(IMAGES[chosen], tf.constant(chosen, tf.int64), np.int64(step))
        with tf.GradientTape() as tape:
            tape.watch(weights)
            one, two = (MODEL.apply(Weights(weights, ()), x, training=True) for x in (x1, x2))
            loss = tf.reduce_mean(nt_xent(one.z, two.z, segments.one(len(chosen)), 0.5))
            loss += extra(one.h, two.h, weights, initial)
        gradient = tape.gradient(loss, weights)
        weights = tuple(w - RATE * (g + DECAY * w) for w, g in zip(weights, gradient, strict=True))
        losses.append(float(loss))
    return [w0 - w for w0, w in zip(initial, weights, strict=True)], np.mean(losses)


def test_regularizers_see_encodings_and_the_broadcast_weights_and_enter_the_loss():
    def of_weights(weights, initial):
        pairs = zip(weights.trainable, initial.trainable, strict=True)
        return MU / 2 * tf.add_n([tf.reduce_sum((w - w0) ** 2) for w, w0 in pairs])

    def of_client(step):
        first, second = step.evaluated.h
        return of_weights(step.weights, step.initial) + tf.reduce_mean(first * second)

    def of_examples(step):
        return tf.reduce_sum(step.evaluated.h[0], 1)

    def extra(h1, h2, weights, initial):
        pull = sum(tf.reduce_sum((w - v) ** 2) for w, v in zip(weights, initial, strict=True))
        return MU * pull + tf.reduce_mean(h1 * h2) + tf.reduce_mean(tf.reduce_sum(h1, 1))

    trained = group_training.many_steps(
        training(regularizers=[of_client, of_examples], weight_terms=[of_weights]),
        MODEL.init(0), NOTHING, tf.constant(0, tf.int64), examples(),
    )  # fmt: skip
    parts = [by_hand(k, extra) for k in range(2)]
    shares = np.array(SIZES) / sum(SIZES)
    for i, delta in enumerate(trained.means.delta):
        expected = sum(s * part[0][i] for s, part in zip(shares, parts, strict=True))
        np.testing.assert_allclose(delta, expected, atol=1e-5)
    # The term of the weights alone is not in the loss that is reported.
    loss = sum(s * part[1] for s, part in zip(shares, parts, strict=True))
    assert loss - 0.05 < trained.means.loss < loss - 1e-4
    without = by_hand(0, lambda *_: 0.0)[0]
    assert max(np.abs(a - b).max() for a, b in zip(without, parts[0][0], strict=True)) > 1e-2


def test_another_objective_takes_the_place_of_the_tasks():
    def evaluate(model, weights, target, batch, values):
        outputs = model.apply(weights, batch.x1, training=True)
        losses = weights.trainable[0][0, 0] + tf.zeros([sum(SIZES)])
        return Evaluated(losses, outputs.z, (outputs.z,) * 2, (), (outputs.h,) * 2)

    other = training(objective=Objective("a sum", evaluate))
    batch = next(iter(examples().batch(100)))
    trained = other.train(MODEL.init(0), NOTHING, tf.constant(0, tf.int64), batch)
    # One weight descends with a gradient of 1; all decay.
    before, after = MODEL.init(0).trainable[0], trained.weights.trainable[0]
    expected = before.numpy() * (1 - RATE * DECAY) ** 2
    expected[0, 0] -= RATE * (1 + 1 - RATE * DECAY)
    np.testing.assert_allclose(after, expected, rtol=1e-5)


@pytest.mark.parametrize("rule", [None, lambda before, after, number: after])
def test_a_rule_gives_each_clients_delta(rule):
    trained = group_training.many_steps(
        training(), MODEL.init(0), NOTHING, tf.constant(0, tf.int64), examples(), rule
    )
    initial = MODEL.init(0).trainable
    expected = [by_hand(k, lambda *_: 0.0)[0] for k in range(2)]
    for i, delta in enumerate(trained.means.delta):
        mean = np.average([part[i] for part in expected], 0, SIZES)
        np.testing.assert_allclose(delta, initial[i] - mean if rule else mean, atol=1e-5)
