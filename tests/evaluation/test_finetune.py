"""Fine-tuning against steps in plain TensorFlow, and its invariances."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.evaluation import cases, finetune
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.views import augmentation

RNG = np.random.default_rng(0)
LABELS = np.tile(np.arange(3), 8).astype(np.int32)
# The classes are easy to tell: bright on the left, in the middle or on the right.
IMAGES = RNG.integers(0, 60, (24, 8, 8, 1)).astype(np.uint8)
for i, c in enumerate(LABELS):
    IMAGES[i, :, 2 * c + 1 : 2 * c + 3] += 150
IDS = np.arange(24) + 5
ENCODER = DualEncoder("tiny", (8, 8, 1))


def build_tuner(policy="none", norm="group", **config):
    config = {"steps": 1, "batch_size": 24, "learning_rate": 0.01} | config
    encoder = DualEncoder("tiny", (8, 8, 1), norm=norm)
    return finetune.Finetuner(encoder, 3, finetune.FinetuneConfig(**config), policy), encoder


def test_the_papers_settings():
    assert finetune.config_for(5000) == finetune.FinetuneConfig(100, 256, 5e-3)
    assert finetune.config_for(500) == finetune.FinetuneConfig(40, 128, 5e-3)


@pytest.mark.slow
def test_two_steps_are_adam_on_the_cross_entropy_of_the_mean_encoding():
    rate = 0.01
    tuner, encoder = build_tuner(steps=2, learning_rate=rate)
    pairs = cases.group(np.repeat(np.arange(12), 2), np.repeat(LABELS[:12], 2))
    start = encoder.init(1)
    after = tuner.train(start, IMAGES, IDS, pairs, np.arange(12), [0])
    weights = [*start.trainable, tf.zeros([64, 3]), tf.zeros([3])]
    first, second = ([tf.zeros_like(w) for w in weights] for _ in range(2))
    for step in (1, 2):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            x = augmentation.to_float(tf.constant(IMAGES))
            h = encoder.apply(Weights(tuple(weights[:-2]), ()), x, True).h
            mean = tf.reduce_mean(tf.reshape(h, [12, 2, -1]), 1)
            log = tf.nn.log_softmax(mean @ weights[-2] + weights[-1])
            loss = -tf.reduce_mean(tf.gather(log, LABELS[:12], batch_dims=1))
        gradients = tape.gradient(loss, weights)
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
        second = [0.999 * v + 0.001 * g**2 for v, g in zip(second, gradients, strict=True)]
        # Cosine decay: the full rate in the first step, half of it in the second.
        weights = [
            w - rate / step * m / (1 - 0.9**step) / (tf.sqrt(v / (1 - 0.999**step)) + 1e-7)
            for w, m, v in zip(weights, first, second, strict=True)
        ]
    moved = 0
    # The bias is left out: with classes of equal sizes, its first gradient is a rounding error.
    initial = [*start.trainable, 0.0]
    for actual, expected, before, g in zip(
        after.trainable[:-1], weights[:-1], initial, gradients[:-1], strict=True
    ):
        # Where a gradient is a rounding error, the direction of Adam's step is arbitrary.
        clear = np.abs(g) > 0.05 * np.max(np.abs(g)) + 1e-6
        np.testing.assert_allclose(actual[clear], expected[clear], rtol=0, atol=0.03 * rate)
        moved += np.sum(np.abs(expected - before)[clear] > 0.1 * rate)
    # The encoder moves too: only in the first step, with a classifier of zeros, has it no gradient.
    assert moved > 1000


@pytest.mark.long
@pytest.mark.slow
def test_a_case_is_scored_by_the_mean_of_its_images():
    tuner, encoder = build_tuner(steps=3)
    single = cases.each_image(LABELS)
    weights = tuner.train(encoder.init(1), IMAGES, IDS, single, np.arange(24), [0])
    model = dataclasses.replace(encoder, classes=3)
    logits = model.apply(weights, augmentation.to_float(tf.constant(IMAGES)), False).logits.numpy()
    case_of_image = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 3, *[4] * 14])
    labels = np.array([0, 2, 1, -1, 0], np.int32)  # The label of case 3 is not known.
    predicted = [logits[case_of_image == k].mean(0).argmax() for k in range(5)]
    expected = np.mean([predicted[k] == labels[k] for k in (0, 1, 2, 4)])
    scores = tuner.scores(weights, IMAGES, cases.Cases(case_of_image, labels))
    assert scores.accuracy == expected


@pytest.mark.slow
def test_it_learns_classes_that_are_easy_to_tell():
    single = cases.each_image(LABELS)
    tuner, encoder = build_tuner(steps=60, batch_size=12)
    weights = tuner.train(encoder.init(0), IMAGES, IDS, single, np.arange(24), [0])
    assert tuner.scores(weights, IMAGES, single).accuracy > 0.9


@pytest.mark.long
@pytest.mark.slow
def test_the_seed_fixes_the_result_and_the_given_weights_do_not_change():
    tuner, encoder = build_tuner(policy="affine", steps=2, batch_size=8)
    start = encoder.init(0)
    before = [w.numpy().copy() for w in start.trainable]
    single = cases.each_image(LABELS)

    def train(seed):
        return tuner.train(start, IMAGES, IDS, single, np.arange(24), [seed]).trainable

    first, again, other = train(0), train(0), train(1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert all(np.array_equal(a, b) for a, b in zip(before, start.trainable, strict=True))


def test_batch_norm_updates_its_moving_averages():
    tuner, encoder = build_tuner(norm="batch")
    start = encoder.init(0)
    after = tuner.train(start, IMAGES, IDS, cases.each_image(LABELS), np.arange(24), [0])
    assert any(
        np.abs(a - b).max() > 1e-4
        for a, b in zip(start.non_trainable, after.non_trainable, strict=True)
    )


def test_unlabelled_cases_are_not_scored():
    tuner, encoder = build_tuner()
    weights = tuner._add_classifier(encoder.init(0))
    labels = np.array([0] * 4 + [-1] * 20, np.int32)  # A zero classifier predicts class 0.
    assert tuner.scores(weights, IMAGES, cases.each_image(labels)).accuracy == 1.0
