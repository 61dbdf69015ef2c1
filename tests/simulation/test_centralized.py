"""Two centralized steps of each objective, against gradient descent with plain losses."""

import numpy as np
import pytest
import tensorflow as tf

from tests import networks
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.simulation import centralized
from tff_ssl.views import augmentation

N, RATE, STEPS, MOMENTUM = 10, 0.05, 4, 0.8
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (N, 8, 8, 1)).astype(np.uint8)
IDS = np.arange(N) + 50
LABELS = RNG.integers(0, 3, N).astype(np.int32)
BATCHES = ([7, 1, 2, 5, 0, 9], [3, 8, 4, 6, 2, 1])


def affine_views(images, example_ids, round_number):
    return augmentation.two_views("affine", images, example_ids, seed=3, round_number=round_number)


RESNET = (DualEncoder, affine_views)
ONE_LAYER = (networks.OneLayer, networks.two_views)


def unit(x):
    return x / tf.sqrt(tf.reduce_sum(x**2, 1, keepdims=True))


def nt_xent(one, two, target, labels):
    z = tf.concat([unit(one.z), unit(two.z)], 0)
    similar = tf.matmul(z, z, transpose_b=True) / 0.1
    n = len(labels)
    terms = []
    for i in range(2 * n):
        others = tf.stack([similar[i, k] for k in range(2 * n) if k != i])
        terms.append(tf.reduce_logsumexp(others) - similar[i, (i + n) % (2 * n)])
    return tf.add_n(terms) / (2 * n)


def vicreg(one, two, target, labels):
    n, d = one.z.shape
    total = 25.0 * tf.reduce_sum((one.z - two.z) ** 2) / (n * d)
    for z in (one.z, two.z):
        z -= tf.reduce_mean(z, 0)
        covariance = tf.matmul(z, z, transpose_a=True) / n
        spread = tf.sqrt(tf.linalg.diag_part(covariance) + 1e-4)
        total += 25.0 * tf.reduce_mean(tf.maximum(0.0, 1.0 - spread))
        total += (
            tf.reduce_sum((covariance - tf.linalg.diag(tf.linalg.diag_part(covariance))) ** 2) / d
        )
    return total


def byol(one, two, target, labels):
    target1, target2 = (unit(tf.stop_gradient(outputs.z)) for outputs in target)
    first = tf.reduce_sum((unit(one.p) - target2) ** 2, 1)
    second = tf.reduce_sum((unit(two.p) - target1) ** 2, 1)
    return tf.reduce_mean(first + second)


def simsiam(one, two, target, labels):
    first = tf.reduce_sum(unit(one.p) * unit(tf.stop_gradient(two.z)), 1)
    second = tf.reduce_sum(unit(two.p) * unit(tf.stop_gradient(one.z)), 1)
    return -tf.reduce_mean(first + second) / 2


def supervised(one, two, target, labels):
    log = one.logits - tf.reduce_logsumexp(one.logits, 1, keepdims=True)
    return -tf.reduce_mean(tf.stack([log[i, c] for i, c in enumerate(labels)]))


@pytest.mark.parametrize(
    ("loss", "network"),
    [
        pytest.param(nt_xent, RESNET, marks=pytest.mark.slow),
        (nt_xent, ONE_LAYER), (vicreg, ONE_LAYER), (byol, ONE_LAYER), (simsiam, ONE_LAYER),
        (supervised, ONE_LAYER),
    ],
)  # fmt: skip
def test_two_steps_of_descent(loss, network):
    model_class, two_views = network
    name = loss.__name__
    heads = {"projector": (16, 8), "predictor": (8, 8)} if name in ("byol", "simsiam") else {}
    heads = heads or ({"classes": 3} if name == "supervised" else {"projector": (16, 8)})
    model = model_class("tiny", (8, 8, 1), **heads)
    run = centralized.Centralized(
        name, model, two_views, IMAGES, IDS, lambda step: np.array(BATCHES[step]), STEPS,
        centralized.CentralizedHyperparameters(
            optimizer="sgd", learning_rate=RATE, momentum=0.0, target_momentum=MOMENTUM
        ),
        labels=LABELS,
    )  # fmt: skip
    state = run.initialize(1)
    weights = [tf.constant(w) for w in state.weights.trainable]
    target_weights = weights[: len(model.target_model.trainable_specs)]
    for step in range(2):
        state, metrics = run.run_round(state, step)
        chosen = BATCHES[step]
        number = tf.constant(step, tf.int64)
        x = two_views(tf.constant(IMAGES[chosen]), tf.constant(IDS[chosen]), number)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            one, two = (model.apply(Weights(tuple(weights), ()), view, True) for view in x)
            before = Weights(tuple(target_weights), ())
            target = [model.target_model.apply(before, view, True) for view in x]
            value = loss(one, two, target, LABELS[chosen])
        gradients = tape.gradient(value, weights, unconnected_gradients="zero")
        assert metrics["loss"] == pytest.approx(float(value), rel=1e-4)
        # The rate falls by a cosine over the run.
        rate = RATE * (1 + np.cos(np.pi * step / STEPS)) / 2
        weights = [w - rate * g for w, g in zip(weights, gradients, strict=True)]
        target_weights = [
            MOMENTUM * t + (1 - MOMENTUM) * w for t, w in zip(target_weights, weights, strict=False)
        ]
    scale = float(tf.linalg.global_norm(gradients)) * RATE
    for actual, expected in zip(state.weights.trainable, weights, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-3 * scale)
